// Architectures without a bf16 micro-kernel of their own.
#include "exec/cpu/gemm/micro.h"

namespace tessera::exec::cpu {

std::vector<const Micro*> machine_micros() { return {}; }

}  // namespace tessera::exec::cpu
