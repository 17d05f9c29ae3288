// i8 micro-kernels of x86-64. AMX multiplies signed bytes. VNNI multiplies u8 by i8: A is packed as
// u8, 128 too large, and sums begin with -128 times the sum of B's column, which is exact.
// Functions are compiled for their instructions and called only where the processor has them.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "exec/cpu/gemm/amx_product_x86.h"
#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/gemm/x86.h"

#define TESSERA_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

constexpr int vnni_rows = 12;

// [padded / 4][12][4], each byte 128 too large as u8; the sign bit turned does that.
TESSERA_VNNI void pack_shifted(const Lanes& l, void* panel) {
  const auto* const from = static_cast<const std::int8_t*>(l.from);
  auto* const to = static_cast<std::int8_t*>(panel);
  int64_t lanes = 0, numbers = 0;  // done: the first numbers of the first lanes
  if (l.k_step == 1) {
    const __m128i shift = _mm_set1_epi8(-128);
    lanes = l.used / 4 * 4;
    numbers = l.k / 16 * 16;
    for (int64_t lane = 0; lane < lanes; lane += 4)
      for (int64_t p = 0; p < numbers; p += 16) {
        __m128i row[4];
        for (int i = 0; i < 4; ++i)
          row[i] = _mm_xor_si128(shift, _mm_loadu_si128(reinterpret_cast<const __m128i*>(
                                            from + (lane + i) * l.lane_step + p)));
        const __m128i low01 = _mm_unpacklo_epi32(row[0], row[1]),
                      low23 = _mm_unpacklo_epi32(row[2], row[3]),
                      high01 = _mm_unpackhi_epi32(row[0], row[1]),
                      high23 = _mm_unpackhi_epi32(row[2], row[3]);
        const __m128i turned[4] = {
            _mm_unpacklo_epi64(low01, low23), _mm_unpackhi_epi64(low01, low23),
            _mm_unpacklo_epi64(high01, high23), _mm_unpackhi_epi64(high01, high23)};
        for (int i = 0; i < 4; ++i)
          _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (p / 4 + i) * vnni_rows * 4 + lane * 4),
                           turned[i]);
      }
  }
  for (int64_t lane = 0; lane < vnni_rows; ++lane)
    for (int64_t p = lane < lanes ? numbers : 0; p < l.padded; ++p) {
      const int x = lane < l.used && p < l.k ? from[lane * l.lane_step + p * l.k_step] : 0;
      to[p / 4 * vnni_rows * 4 + lane * 4 + p % 4] = static_cast<std::int8_t>(x ^ 0x80);
    }
}
void pack_quads_32(const Lanes& l, void* panel) {
  pack_i8_groups(l, 32, 4, static_cast<std::int8_t*>(panel));
}
void pack_rows_32(const Lanes& l, void* panel) {
  pack_i8_groups(l, 32, l.padded, static_cast<std::int8_t*>(panel));
}

// Adds 16 columns from `j` on of a row to what is there, or to what sums begin with.
TESSERA_VNNI inline void put_sums(__m512i sum, int64_t i, int64_t j, const TileOut& out,
                                  const std::int32_t* start) {
  if (j >= out.cols) return;
  const auto mask = static_cast<__mmask16>((1u << std::min<int64_t>(16, out.cols - j)) - 1);
  std::int32_t* const to = out.sums + i * out.rs + j;
  const std::int32_t* const before = out.beta == 0 ? start : to;
  if (before) sum = _mm512_add_epi32(sum, _mm512_maskz_loadu_epi32(mask, before));
  _mm512_mask_storeu_epi32(to, mask, sum);
}

// ---- VNNI: 12 rows of two vectors of columns, four numbers of k at a time.

// Four numbers of A in all lanes, loaded once for both vectors of columns (tile-inl.h: spread).
TESSERA_VNNI inline __m512i spread_quad(const std::uint32_t* a) {
  __m512i quad = _mm512_set1_epi32(static_cast<int>(*a));
  __asm__("" : "+v"(quad));
  return quad;
}
TESSERA_VNNI inline void add_quads(__m512i x, __m512i b0, __m512i b1, __m512i& sum0,
                                   __m512i& sum1) {
  sum0 = _mm512_dpbusd_epi32(sum0, x, b0);
  sum1 = _mm512_dpbusd_epi32(sum1, x, b1);
}
TESSERA_VNNI inline void put_vnni_row(int64_t i, __m512i sum0, __m512i sum1, const TileOut& out) {
  if (i >= out.rows) return;
  put_sums(sum0, i, 0, out, out.start);
  put_sums(sum1, i, 16, out, out.start + 16);
}
template <int W, int... I>
TESSERA_VNNI inline void quads(std::integer_sequence<int, I...>, int64_t k, const std::uint32_t* a,
                               const std::int8_t* b, const TileOut& out) {
  __m512i sum0[vnni_rows] = {((void)I, _mm512_setzero_si512())...},
          sum1[vnni_rows] = {((void)I, _mm512_setzero_si512())...};
  for (int64_t p = 0; p < k; p += 4, a += vnni_rows, b += 128) {
    const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 64);
    if constexpr (W == 2)
      (add_quads(spread_quad(a + I), b0, b1, sum0[I], sum1[I]), ...);
    else
      ((sum0[I] = _mm512_dpbusd_epi32(sum0[I], spread_quad(a + I), b0)), ...);
  }
  (put_vnni_row(I, sum0[I], sum1[I], out), ...);
}
TESSERA_VNNI void tile_vnni(int64_t k, const void* a, const void* b, const TileOut& out) {
  constexpr auto all = std::make_integer_sequence<int, vnni_rows>();
  const auto* const words = static_cast<const std::uint32_t*>(a);
  const auto* const columns = static_cast<const std::int8_t*>(b);
  if (out.cols > 16)
    quads<2>(all, k, words, columns, out);
  else
    quads<1>(all, k, words, columns, out);
}

// ---- AMX (amx_x86.h). Products that end in bf16 are amx_product_x86.h's, all others' sums go to
// memory.

TESSERA_AMX void tile_amx_i8(int64_t k, const void* a, const void* b, const TileOut& out) {
  const auto *const rows = static_cast<const char*>(a), *const columns =
                                                            static_cast<const char*>(b);
  if (out.rows == 32 && out.cols == 32)
    return amx_sums<2, 2>(k / 64, rows, out.a_pitch, columns, out.beta == 0 ? nullptr : out.sums,
                          out.sums, out.rs);
  alignas(64) std::int32_t part[32 * 32];
  amx_sums(out.rows > 16, out.cols > 16, k / 64, rows, out.a_pitch, columns, part, 32);
  for (int64_t i = 0; i < out.rows; ++i)
    for (int64_t j = 0; j < out.cols; j += 16)
      put_sums(_mm512_load_si512(part + i * 32 + j), i, j, out, nullptr);
}

constexpr Micro vnni_micro{.name = "avx512_vnni",
                           .rows = vnni_rows,
                           .columns = 32,
                           .group = 4,
                           .a_bytes = vnni_rows,
                           .b_bytes = 32,
                           .k_block = 512,
                           .pack_a = pack_shifted,
                           .pack_b = pack_quads_32,
                           .tile = tile_vnni};
constexpr Micro amx_i8_micro{.name = "amx_int8",
                             .rows = i8_rows,
                             .columns = 32,
                             .group = i8_group,
                             .a_bytes = i8_rows,
                             .b_bytes = 32,
                             .k_block = 4096,
                             .row_major = true,
                             .pack_a = pack_rows_32,
                             .pack_b = pack_quads_32,
                             .tile = tile_amx_i8,
                             .product = product_amx<std::int32_t>,
                             .begin = begin_amx,
                             .end = end_amx};
static_assert(i8_rows * amx_i8_micro.k_block <= i8_panel_bytes, "rows of a panel are copied there");

}  // namespace

std::vector<const Micro*> machine_i8_micros() {
  const X86Features& has = x86_features();
  std::vector<const Micro*> out;
  // Ends in bf16 are rounded by AVX-512-BF16.
  if (has.amx_int8 && has.avx512_bf16) out.push_back(&amx_i8_micro);
  if (has.avx512_vnni) out.push_back(&vnni_micro);
  return out;
}

}  // namespace tessera::exec::cpu
