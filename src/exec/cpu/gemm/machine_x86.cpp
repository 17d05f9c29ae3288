// bf16 micro-kernels of x86-64: AMX tiles, and the dot products of AVX-512-BF16. Functions are
// compiled for their instructions and called only where the processor and the system have them.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "exec/cpu/attention/attend_x86.h"
#include "exec/cpu/gemm/amx_product_x86.h"
#include "exec/cpu/gemm/amx_x86.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/x86.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// C = alpha part + beta C from a dense tile of 32 columns.
TESSERA_AVX512 void store_part(const float* part, const TileOut& out) {
  const __m512 alpha = _mm512_set1_ps(out.alpha), beta = _mm512_set1_ps(out.beta);
  for (int64_t i = 0; i < out.rows; ++i, part += 32) {
    float* const to = out.c + i * out.rs;
    if (out.cs != 1) {
      for (int64_t j = 0; j < out.cols; ++j) {
        float& c = to[j * out.cs];
        c = out.beta == 0 ? out.alpha * part[j] : out.alpha * part[j] + out.beta * c;
      }
      continue;
    }
    for (int64_t j = 0; j < out.cols; j += 16) {
      const __mmask16 mask = first_of_16(out.cols - j);
      __m512 v = _mm512_mul_ps(alpha, _mm512_loadu_ps(part + j));
      if (out.beta != 0) v = _mm512_fmadd_ps(beta, _mm512_maskz_loadu_ps(mask, to + j), v);
      _mm512_mask_storeu_ps(to + j, mask, v);
    }
  }
}

// ---- AVX-512-BF16: 12 rows of two vectors of columns, two numbers of k at a time.

// Two numbers of A in all lanes, loaded once for both vectors of columns (tile-inl.h: spread).
TESSERA_AVX512_BF16 inline __m512bh spread_pair(const std::uint32_t* a) {
  __m512i pair = _mm512_set1_epi32(static_cast<int>(*a));
  __asm__("" : "+v"(pair));
  return (__m512bh)pair;
}
TESSERA_AVX512_BF16 inline void add_pair(__m512bh x, __m512bh b0, __m512bh b1, __m512& sum0,
                                         __m512& sum1) {
  sum0 = _mm512_dpbf16_ps(sum0, x, b0);
  sum1 = _mm512_dpbf16_ps(sum1, x, b1);
}
template <int W, int... I>
TESSERA_AVX512_BF16 inline void dots(std::integer_sequence<int, I...>, int64_t k,
                                     const std::uint32_t* a, const std::uint32_t* b,
                                     const TileOut& out) {
  __m512 sum0[12] = {((void)I, _mm512_setzero_ps())...},
         sum1[12] = {((void)I, _mm512_setzero_ps())...};
  for (int64_t p = 0; p < k; p += 2, a += 12, b += 32) {
    const auto b0 = (__m512bh)_mm512_loadu_si512(b);
    const auto b1 = (__m512bh)_mm512_loadu_si512(b + 16);
    if constexpr (W == 2)
      (add_pair(spread_pair(a + I), b0, b1, sum0[I], sum1[I]), ...);
    else
      ((sum0[I] = _mm512_dpbf16_ps(sum0[I], spread_pair(a + I), b0)), ...);
  }
  alignas(64) float part[12 * 32];
  ((_mm512_store_ps(part + I * 32, sum0[I]), _mm512_store_ps(part + I * 32 + 16, sum1[I])), ...);
  store_part(part, out);
}
TESSERA_AVX512_BF16 void tile_dots(int64_t k, const void* a, const void* b, const TileOut& out) {
  const auto* const pairs_a = static_cast<const std::uint32_t*>(a);
  const auto* const pairs_b = static_cast<const std::uint32_t*>(b);
  if (out.cols > 16)
    dots<2>(std::make_integer_sequence<int, 12>(), k, pairs_a, pairs_b, out);
  else
    dots<1>(std::make_integer_sequence<int, 12>(), k, pairs_a, pairs_b, out);
}

// ---- AMX (amx_x86.h)

TESSERA_AMX void tile_amx(int64_t k, const void* a, const void* b, const TileOut& out) {
  const auto *const a_rows = static_cast<const char*>(a), *const b_rows =
                                                              static_cast<const char*>(b);
  const bool in_place = out.cs == 1 && out.rows == 32 && out.cols == 32 && out.alpha == 1 &&
                        (out.beta == 0 || out.beta == 1);
  if (in_place)
    return amx_sums<2, 2>(k / 32, a_rows, 2 * k, b_rows, out.beta == 0 ? nullptr : out.c, out.c,
                          out.rs);
  alignas(64) float part[32 * 32];
  // Sums go on from those of C, as in place.
  const bool more = out.cs == 1 && out.alpha == 1 && out.beta == 1;
  if (more) copy_sums(out.c, out.rs, out.rows, out.cols, part, 32);
  amx_sums(out.rows > 16, out.cols > 16, k / 32, a_rows, 2 * k, b_rows, part, 32, more);
  TileOut end = out;
  if (more) end.beta = 0;
  store_part(part, end);
}

void pack_a_pairs(const Lanes& lanes, void* panel) { low_packs().pairs_12(lanes, panel); }
void pack_b_pairs(const Lanes& lanes, void* panel) { low_packs().pairs_32(lanes, panel); }
void pack_a_rows(const Lanes& lanes, void* panel) { low_packs().rows_32(lanes, panel); }

constexpr Micro dots_micro{.name = "avx512_bf16",
                           .rows = 12,
                           .columns = 32,
                           .group = 2,
                           .a_bytes = 12 * 2,
                           .b_bytes = 32 * 2,
                           .k_block = 512,
                           .turns = true,
                           .pack_a = pack_a_pairs,
                           .pack_b = pack_b_pairs,
                           .tile = tile_dots};
constexpr Micro amx_micro{.name = "amx",
                          .rows = 32,
                          .columns = 32,
                          .group = low_group,
                          .a_bytes = 32 * 2,
                          .b_bytes = 32 * 2,
                          .k_block = most_low_k_block,
                          .a_block = most_a_block,
                          .row_major = true,
                          .turns = true,
                          .pack_a = pack_a_rows,
                          .pack_b = pack_b_pairs,
                          .tile = tile_amx,
                          .product = product_amx<float>,
                          .attend = attend_amx,
                          .begin = begin_amx,
                          .end = end_amx};

}  // namespace

std::vector<const Micro*> machine_micros() {
  const X86Features& has = x86_features();
  std::vector<const Micro*> out;
  if (has.amx_bf16 && has.avx512_bf16) out.push_back(&amx_micro);
  if (has.avx512_bf16) out.push_back(&dots_micro);
  return out;
}

// VCVTNEPS2BF16 makes zeros of the smallest numbers.
RoundLow machine_round() { return nullptr; }
const Micro* machine_f32() { return nullptr; }

}  // namespace tessera::exec::cpu
