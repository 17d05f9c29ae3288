// What this machine's cores can do at most: the number that "% of peak" is against.
#pragma once

#include "exec/device.h"

namespace tessera::exec::cpu {

// Independent f32 multiply-adds in registers, all threads at once; the best round is by the CPU
// time of each thread. Takes about 100 ms.
MeasuredPeak measure_peak(int threads);

// A large copy, bytes read plus bytes written, all threads at once; GB/s. Takes about 100 ms.
double measure_copy_gbytes(int threads);

}  // namespace tessera::exec::cpu
