// The peak of this machine's cores: the number that "% of peak" is against.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/threads.h"
#include "exec/device.h"

namespace tessera::exec::cpu {

// The element type whose instructions multiply factors of a type: bf16 and int8 have instructions
// of their own on some machines, all other types are computed in f32.
std::string_view multiplied_in(std::string_view dtype);

// Independent multiply-adds in registers with factors of a type, all threads at once. Such rounds
// may take turns with what is held against them: a core's clock follows what it and its neighbours
// do.
class PeakRounds {
 public:
  // A loop of one thread, which returns the operations it did.
  using Loop = std::function<double(float* sink)>;

  PeakRounds(int threads, std::string_view dtype);  // takes about 100 ms
  // The best of several rounds, by the CPU time of each thread.
  MeasuredPeak best() const { return best_; }
  // It takes a few milliseconds: the rate of all threads now, each by the time that passes for it.
  double gflops();

 private:
  ThreadPool pool_;
  Loop loop_;
  MeasuredPeak best_{};
};

// The best round of such a loop.
MeasuredPeak measure_peak(int threads, std::string_view dtype);
// The instructions that this peak of a type comes from: "f32 multiply-adds", "bf16 bfmmla".
std::string peak_instructions(std::string_view dtype);

// A large copy, bytes read plus bytes written, all threads at once; GB/s. Takes about 100 ms.
double measure_copy_gbytes(int threads);

}  // namespace tessera::exec::cpu
