// Architectures without instructions of their own for bf16 and i8.
#include "exec/cpu/gemm/peak_loops.h"

namespace tessera::exec::cpu {

std::vector<PeakLoop> low_peak_loops() { return {}; }
std::vector<PeakLoop> i8_peak_loops() { return {}; }

}  // namespace tessera::exec::cpu
