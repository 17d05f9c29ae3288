// Peak loops of x86-64: AMX tiles, and the dot products of AVX-512-BF16 and VNNI. Called only where
// the processor and the system have them.
#include <immintrin.h>

#include <utility>

#include "exec/cpu/gemm/peak_loops.h"
#include "exec/cpu/gemm/x86.h"

#define TESSERA_PEAK_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define TESSERA_PEAK_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define TESSERA_PEAK_AMX __attribute__((target("amx-tile,amx-bf16,amx-int8")))

namespace tessera::exec::cpu {
namespace {

constexpr int dot_chains = 20;  // of 32 registers

// Empty statements that read a sum: without one the compiler would leave the sum out.
TESSERA_PEAK_BF16 inline void read_sum(__m512 sum) { __asm__ volatile("" : : "v"(sum)); }
TESSERA_PEAK_VNNI inline void read_i8_sum(__m512i sum) { __asm__ volatile("" : : "v"(sum)); }

// The empty statement keeps the compiler from knowing the factors.
template <int... I>
TESSERA_PEAK_BF16 inline double bf16_rounds(std::integer_sequence<int, I...>, std::int64_t rounds) {
  __m512 sum[] = {_mm512_set1_ps(0.01f * (I + 1))...};
  __m512i x = _mm512_set1_epi16(0x3f7f), y = _mm512_set1_epi16(0x3a83);
  __asm__ volatile("" : "+v"(x), "+v"(y));
  for (std::int64_t r = 0; r < rounds; ++r)
    ((sum[I] = _mm512_dpbf16_ps(sum[I], (__m512bh)x, (__m512bh)y)), ...);
  (read_sum(sum[I]), ...);
  return 64.0 * dot_chains * static_cast<double>(rounds);  // 16 sums of two products
}
TESSERA_PEAK_BF16 double bf16_loop(std::int64_t rounds) {
  return bf16_rounds(std::make_integer_sequence<int, dot_chains>(), rounds);
}

template <int... I>
TESSERA_PEAK_VNNI inline double vnni_rounds(std::integer_sequence<int, I...>, std::int64_t rounds) {
  __m512i sum[] = {_mm512_set1_epi32(I + 1)...};
  __m512i x = _mm512_set1_epi8(3), y = _mm512_set1_epi8(-1);
  __asm__ volatile("" : "+v"(x), "+v"(y));
  for (std::int64_t r = 0; r < rounds; ++r) ((sum[I] = _mm512_dpbusd_epi32(sum[I], x, y)), ...);
  (read_i8_sum(sum[I]), ...);
  return 128.0 * dot_chains * static_cast<double>(rounds);  // 16 sums of four products
}
TESSERA_PEAK_VNNI double vnni_loop(std::int64_t rounds) {
  return vnni_rounds(std::make_integer_sequence<int, dot_chains>(), rounds);
}

// Four tiles of 16 x 16 sums, as the micro-kernels have them.
TESSERA_PEAK_AMX void zero_tiles() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
}
TESSERA_PEAK_AMX double amx_bf16_loop(std::int64_t rounds) {
  begin_amx();
  zero_tiles();
  for (std::int64_t r = 0; r < rounds; ++r) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  end_amx();
  return 4 * 2.0 * 16 * 16 * 32 * static_cast<double>(rounds);
}
TESSERA_PEAK_AMX double amx_i8_loop(std::int64_t rounds) {
  begin_amx();
  zero_tiles();
  for (std::int64_t r = 0; r < rounds; ++r) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  end_amx();
  return 4 * 2.0 * 16 * 16 * 64 * static_cast<double>(rounds);
}

}  // namespace

std::vector<PeakLoop> low_peak_loops() {
  const X86Features& has = x86_features();
  std::vector<PeakLoop> out;
  if (has.amx_bf16) out.push_back({.instruction = "amx", .rounds = 40'000, .run = amx_bf16_loop});
  if (has.avx512_bf16)
    out.push_back({.instruction = "avx512_bf16", .rounds = 150'000, .run = bf16_loop});
  return out;
}
std::vector<PeakLoop> i8_peak_loops() {
  const X86Features& has = x86_features();
  std::vector<PeakLoop> out;
  if (has.amx_int8)
    out.push_back({.instruction = "amx_int8", .rounds = 40'000, .run = amx_i8_loop});
  if (has.avx512_vnni)
    out.push_back({.instruction = "avx512_vnni", .rounds = 150'000, .run = vnni_loop});
  return out;
}

}  // namespace tessera::exec::cpu
