// Devices by name (run.device): what a plan must know of one, what it can do at most, and the
// executor that runs on it. Convention: only make_executor takes hold of the device; everything
// else may be asked without starting anything.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/comm.h"
#include "plan/target.h"

namespace tessera::exec {

class Executor;

// By axis of the mesh, the ranks that this one shares the axis with.
using Groups = std::map<std::string, comm::Comm*, std::less<>>;

// How what crosses ranks gets from one device to another: through memory of the host and the verbs
// of comm/, or from card to card (NCCL).
enum class Carrier : std::uint8_t { host, nccl };

// Which work a rank's cores share out among their threads, and how it is cut (run.threading). Bits
// are the same in all of them.
enum class Threading : std::uint8_t {
  automatic,  // every op, in tiles
  heads,      // attention, whole heads; all else is one thread's
  rows,       // every op, whole rows of its result
  products    // matrix products and convolutions, in tiles; all else is one thread's
};
Threading threading_named(std::string_view name);  // "auto", else as above

// Liberties that a device may take to be faster; a device that has none of them ignores them.
struct Liberties {
  bool tf32 = false;       // factors of f32 products may be rounded to TF32 (10 bits)
  bool any_order = false;  // sums need no fixed order, so bits may differ between two runs
  bool winograd = true;    // convolutions of f32 may be computed by Winograd's algorithm
  Threading threading = Threading::automatic;
};

// The peak of a device in GFLOP/s, as it was measured. One that nobody else uses has one number.
struct MeasuredPeak {
  double gflops = 0;       // when nobody takes the device away; the best round
  double wall_gflops = 0;  // by the wall clock; the median round
  double spread = 0;       // how far the median round is below the best, as a share of the best
  MeasuredPeak() = default;
  MeasuredPeak(double all) : gflops(all), wall_gflops(all) {}
  MeasuredPeak(double best, double wall, double below)
      : gflops(best), wall_gflops(wall), spread(below) {}
};

// GB/s of large copies between (pinned) memory of the host and a device: to it, from it, and each
// way while both are under way.
struct LinkRates {
  double up = 0, down = 0, both = 0;
};

struct DeviceInfo {
  std::string name;  // as run.device says it
  // The device that this process would run on, by its maker's name; "": the host's cores. It looks
  // at the driver, after which a process must not fork.
  std::function<std::string()> card{};
  // Measured when they are asked for, which takes about 0.1 s each: multiply-adds with factors of
  // an element type (precision.dtype), and bytes read and written by a copy.
  std::function<MeasuredPeak(std::string_view dtype)> peak_gflops{};
  std::function<double()> copy_gbytes{};
  std::function<LinkRates()> link_gbytes{};
  // How that peak was measured, for who reads the number.
  std::function<std::string(std::string_view dtype)> how{};
  std::function<std::int64_t()> memory{};  // bytes that could still be given, now
  // The card of this rank among all cards of its machine, by a name that no other has; "": none.
  std::function<std::string()> own_card{};
  // Why NCCL cannot be used here, in a sentence, "": it can; and its version. Nothing is started.
  std::function<std::string()> without_nccl{}, nccl{};
  std::function<int()> count{};  // how many of it ranks of this machine share out
};

std::vector<std::string> device_names();  // of this build
// Why this machine cannot run what the build can, in a sentence; empty: it can.
std::string missing(std::string_view device);
// Why the device of this machine cannot compute with elements of this type (precision.dtype), or
// cannot run at all, in a sentence; empty: it can. The device must be one of this build.
std::string lacks(std::string_view device, std::string_view dtype);
// Facts about the devices of this build beside cores: drivers, cards, libraries; names and values.
std::vector<std::pair<std::string, std::string>> device_facts();
// Error(usage) when this build has no such device. `threads` is how many of the host's cores may be
// used.
DeviceInfo device_info(std::string_view device, int threads);
plan::Target target_of(std::string_view device, int threads, const Liberties& liberties = {});
// The groups must outlive the executor. `folder`: for buffers that rest in a file.
std::unique_ptr<Executor> make_executor(std::string_view device, int threads, Groups groups = {},
                                        Carrier carrier = Carrier::host, std::string folder = {},
                                        Liberties liberties = {});

}  // namespace tessera::exec
