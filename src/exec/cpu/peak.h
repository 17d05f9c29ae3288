// What this machine's cores can do at most: the number that "% of peak" is against.
#pragma once

namespace tessera::exec::cpu {

// Independent f32 multiply-adds in registers, all threads at once, in GFLOP/s.
struct MeasuredPeak {
  double gflops = 0;  // by the CPU time of each thread: what they do when nobody takes their cores
                      // away; the best round
  double wall_gflops = 0;  // by the wall clock; the median round
  double spread = 0;       // how far the median round is below the best, as a share of the best
};
// Takes about 100 ms.
MeasuredPeak measure_peak(int threads);

// A large copy, bytes read plus bytes written, all threads at once; GB/s. Takes about 100 ms.
double measure_copy_gbytes(int threads);

}  // namespace tessera::exec::cpu
