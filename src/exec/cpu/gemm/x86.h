// Parts that the micro-kernels of x86-64 share: which instructions the processor has and the system
// allows, and the configuration of AMX's tiles.
#pragma once

namespace tessera::exec::cpu {

struct X86Features {
  bool avx512_bf16 = false, avx512_vnni = false;
  bool amx_bf16 = false, amx_int8 = false;
};
const X86Features& x86_features();

// Around products: all eight tiles are 16 rows of 64 bytes.
void begin_amx();
void end_amx();

}  // namespace tessera::exec::cpu
