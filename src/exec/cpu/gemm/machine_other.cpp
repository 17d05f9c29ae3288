// Architectures without micro-kernels of their own.
#include "exec/cpu/gemm/i8.h"

namespace tessera::exec::cpu {

std::vector<const Micro*> machine_micros() { return {}; }
RoundLow machine_round() { return nullptr; }
const Micro* machine_f32() { return nullptr; }
std::vector<const Micro*> machine_i8_micros() { return {}; }

}  // namespace tessera::exec::cpu
