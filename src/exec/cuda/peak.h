// Peaks of the card of this process, measured on it; each takes about 100 ms.
#pragma once

#include <string>
#include <string_view>

#include "exec/device.h"

namespace tessera::exec::cuda {

// Multiply-adds with factors of this type: of f32 in registers, since no product of f32 matrices
// uses less exact factors; of the others by a large product of random matrices.
// Measured once by a process: a run that has taken the card's memory leaves too little for it.
double measure_peak_gflops(std::string_view dtype);
std::string how_peak_is_measured(std::string_view dtype);
double measure_copy_gbytes();     // a large copy, bytes read plus bytes written
LinkRates measure_link_gbytes();  // copies of 64 MiB of pinned memory

}  // namespace tessera::exec::cuda
