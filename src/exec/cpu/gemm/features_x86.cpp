#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "exec/cpu/gemm/amx_x86.h"
#include "exec/cpu/gemm/x86.h"

namespace tessera::exec::cpu {

namespace {

// Bits of CPUID leaf 7 (what the processor has) and of XCR0 (what the system saves).
X86Features features() {
  X86Features out;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 27))) return out;  // OSXSAVE
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return out;
  constexpr unsigned avx512 = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31);  // F DQ BW VL
  if ((b & avx512) != avx512 || (low & 0xe6u) != 0xe6u) return out;
  out.avx512_vnni = (c & (1u << 11)) != 0;
  const bool tiles = (d & (1u << 24)) && (low & (3u << 17)) == (3u << 17);
  // Linux gives a process the registers of tiles when it asks for them.
  constexpr int request_permission = 0x1023, tile_data = 18;
  if (tiles && ::syscall(SYS_arch_prctl, request_permission, tile_data) == 0) {
    out.amx_bf16 = (d & (1u << 22)) != 0;
    out.amx_int8 = (d & (1u << 25)) != 0;
  }
  unsigned a1 = 0;
  if (a >= 1 && __get_cpuid_count(7, 1, &a1, &b, &c, &d)) out.avx512_bf16 = (a1 & (1u << 5)) != 0;
  return out;
}

}  // namespace

const X86Features& x86_features() {
  static const X86Features out = features();
  return out;
}

TESSERA_AMX void begin_amx() { configure_tiles(32); }
TESSERA_AMX void end_amx() { _tile_release(); }

}  // namespace tessera::exec::cpu
