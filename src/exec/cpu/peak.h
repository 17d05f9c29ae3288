// What this machine's cores can do at most: the number that "% of peak" is against.
#pragma once

namespace tessera::exec::cpu {

// Independent f32 multiply-adds in registers, all threads at once; GFLOP/s. Takes about 60 ms.
double measure_peak_gflops(int threads);

// A large copy, bytes read plus bytes written, all threads at once; GB/s. Takes about 100 ms.
double measure_copy_gbytes(int threads);

}  // namespace tessera::exec::cpu
