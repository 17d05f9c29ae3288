// The peak that "% of peak" is against: multiply-adds that the cores of a job can do in the element
// type that a run multiplies in. It is measured once per machine, number of threads and type, under
// a lock, and kept (docs/measuring.md), so that a run which goes on later has the same denominator.
// Convention: ranks that share cores share their peak; threads beyond the number of cores add
// nothing.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "config/config.h"
#include "exec/device.h"
#include "ranks/ranks.h"

namespace tessera::run {

struct Peak {
  double gflops = 0;          // of one rank: its part of what its machine gives to all of them
  double all_gflops = 0;      // of all ranks on all machines
  int threads = 0;            // of all ranks of this machine
  int cores = 0;              // that they may use
  std::string measured;       // when, in UTC
  std::string doubt;          // why it may be wrong; "": nothing speaks against it
  std::string dtype = "f32";  // of the factors
  bool operator==(const Peak&) const = default;
};

// The key of a peak: a machine and a way to use it. Two that differ have different peaks.
struct PeakKey {
  std::string host, cpu;
  int ranks = 1, threads = 1, cores = 1;  // ranks on this machine, threads of each
  std::string dtype = "f32";              // of the factors: f32, bf16 or int8
};
// All ranks make the call.
PeakKey peak_key(const Ranks& ranks, int threads, const std::string& dtype = "f32");
// The element type that a run multiplies in, as peak_on() takes it: precision.dtype, or int8 of
// layers that are quantised so on a CPU.
std::string multiplies_in(const config::Config& config);

// The peak of a machine, from the measurements of all its ranks together.
struct MachinePeak {
  double gflops = 0;     // of all its ranks
  std::string measured;  // when
  std::string doubt;
};
MachinePeak judge_peak(const std::vector<exec::MeasuredPeak>& ranks, const PeakKey& key);

// The peak of all ranks, each with so many threads; all make the call. `before` are the segments of
// a run that goes on (segments.h), whose own peak is taken where the machine is the same.
Peak peak_of(const Ranks& ranks, int threads, const nlohmann::json& before = nullptr,
             const std::string& dtype = "f32");
// The same of a device by its name, for factors of an element type (precision.dtype); cards of a
// machine are shared out among its ranks. Of several devices ("cuda,cpu", one for each rank) each
// rank has the peak of its own, measured in turn.
Peak peak_on(const std::string& device, const std::string& dtype, const Ranks& ranks, int threads,
             const nlohmann::json& before = nullptr);
// Measures cards while they have memory to spare: behind this peak_on knows what they can do.
void measure_cards(const config::Config& config, const Ranks& ranks);

}  // namespace tessera::run
