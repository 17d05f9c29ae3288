// What the card of this process can do at most, measured on it; each takes about 100 ms.
#pragma once

namespace tessera::exec::cuda {

double measure_peak_gflops();  // f32 multiply-adds in registers
double measure_copy_gbytes();  // a large copy, bytes read plus bytes written

}  // namespace tessera::exec::cuda
