// Products by AMX: four tiles of 16 x 16 sums; a step takes 64 bytes of k (32 bf16 or 64 i8) of two
// tiles of A and two of B. Sums of bf16 are float, those of i8 std::int32_t, and functions for both
// are templates over that. Called only where the processor and the system have them, between
// begin_amx() and end_amx().
#pragma once

// g++ 12 warns of what its own header leaves undefined (its bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstdint>
#include <type_traits>
#include <utility>

#include "exec/cpu/gemm/targets_x86.h"

namespace tessera::exec::cpu {
inline namespace TESSERA_X86 {

// The sizes of tiles: 0 to 3 are sums, rows of A in 4 and 5 have `numbers` of k, and B in 6 and 7
// has a row for every two of them. A tile has 16 rows of 64 bytes at most.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t bytes_of_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};

  constexpr TileConfig(std::int64_t numbers) {
    bytes_of_row[4] = bytes_of_row[5] = static_cast<std::uint16_t>(2 * numbers);
    rows[6] = rows[7] = static_cast<std::uint8_t>(numbers / 2);
  }
};
// `numbers`: a multiple of four. They are constants because g++ 12 does not see that the
// instruction reads all 64 bytes.
TESSERA_AMX inline void configure_tiles(std::int64_t numbers) {
  static constexpr TileConfig all[] = {4, 8, 12, 16, 20, 24, 28, 32};
  _tile_loadconfig(all + numbers / 4 - 1);
}

// The sums of M x N tiles begin with those at `from`, whose rows are `pitch` apart, or with zeros.
template <int M, int N, class Sum>
TESSERA_AMX inline void begin_sums(const Sum* from, std::int64_t pitch) {
  const std::int64_t c_row = 4 * pitch;
  if (from) {
    _tile_loadd(0, from, c_row);
    if constexpr (N == 2) _tile_loadd(1, from + 16, c_row);
    if constexpr (M == 2) _tile_loadd(2, from + 16 * pitch, c_row);
    if constexpr (M == 2 && N == 2) _tile_loadd(3, from + 16 * pitch + 16, c_row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
}
template <int M, int N, class Sum>
TESSERA_AMX inline void store_sums(Sum* to, std::int64_t pitch) {
  const std::int64_t c_row = 4 * pitch;
  _tile_stored(0, to, c_row);
  if constexpr (N == 2) _tile_stored(1, to + 16, c_row);
  if constexpr (M == 2) _tile_stored(2, to + 16 * pitch, c_row);
  if constexpr (M == 2 && N == 2) _tile_stored(3, to + 16 * pitch + 16, c_row);
}
// Fetches the 2 KiB of a panel of B that are multiplied two steps later. They are written out: a
// compiler would keep a loop, with three instructions and a jump for each line.
inline constexpr std::int64_t amx_step_bytes = 16 * 128;
template <int... Line>
__attribute__((always_inline)) inline void fetch_lines(const char* at,
                                                       std::integer_sequence<int, Line...>) {
  __asm__ volatile("");  // g++ drops calls of functions that only fetch: they have no effect
  (_mm_prefetch(at + 64 * Line, _MM_HINT_T0), ...);
}
inline void fetch_step_after_next(const char* b) {
  fetch_lines(b + 2 * amx_step_bytes, std::make_integer_sequence<int, amx_step_bytes / 64>());
}
// Adds the products of a step to tile (I, J) of the sums; rows of A are in tiles 4 and 5, columns
// of B in 6 and 7. (Intrinsics want literals.)
template <class Sum, int I, int J>
TESSERA_AMX inline void add_products() {
  if constexpr (std::is_same_v<Sum, float>) {
    if constexpr (I == 0 && J == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (I == 0 && J == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (I == 1 && J == 0) _tile_dpbf16ps(2, 5, 6);
    if constexpr (I == 1 && J == 1) _tile_dpbf16ps(3, 5, 7);
  } else {
    static_assert(std::is_same_v<Sum, std::int32_t>);
    if constexpr (I == 0 && J == 0) _tile_dpbssd(0, 4, 6);
    if constexpr (I == 0 && J == 1) _tile_dpbssd(1, 4, 7);
    if constexpr (I == 1 && J == 0) _tile_dpbssd(2, 5, 6);
    if constexpr (I == 1 && J == 1) _tile_dpbssd(3, 5, 7);
  }
}
// Sums of 16 M rows of A, `row` bytes apart, and 16 N columns of B, 64 bytes of k in a step. They
// begin with those at `from`, or with zeros; its rows are `pitch` apart, as those of `to`. Columns
// of i8 come from a large matrix and are fetched ahead, those of bf16 are near.
template <int M, int N, class Sum>
TESSERA_AMX inline void amx_sums(std::int64_t steps, const char* a, std::int64_t row, const char* b,
                                 const Sum* from, Sum* to, std::int64_t pitch) {
  begin_sums<M, N>(from, pitch);
  for (std::int64_t s = 0; s < steps; ++s, a += 64, b += amx_step_bytes) {
    _tile_loadd(4, a, row);
    _tile_loadd(6, b, 128);
    add_products<Sum, 0, 0>();
    if constexpr (std::is_same_v<Sum, std::int32_t>) fetch_step_after_next(b);
    if constexpr (N == 2) {
      _tile_loadd(7, b + 64, 128);
      add_products<Sum, 0, 1>();
    }
    if constexpr (M == 2) {
      _tile_loadd(5, a + 16 * row, row);
      add_products<Sum, 1, 0>();
      if constexpr (N == 2) add_products<Sum, 1, 1>();
    }
  }
  store_sums<M, N>(to, pitch);
}
// The same for one or two tiles of rows and of columns; `more`: they begin with those at `to`.
template <class Sum>
TESSERA_AMX inline void amx_sums(bool tall, bool wide, std::int64_t steps, const char* a,
                                 std::int64_t row, const char* b, Sum* to, std::int64_t pitch,
                                 bool more = false) {
  const Sum* const from = more ? to : nullptr;
  if (tall && wide)
    amx_sums<2, 2>(steps, a, row, b, from, to, pitch);
  else if (tall)
    amx_sums<2, 1>(steps, a, row, b, from, to, pitch);
  else if (wide)
    amx_sums<1, 2>(steps, a, row, b, from, to, pitch);
  else
    amx_sums<1, 1>(steps, a, row, b, from, to, pitch);
}

// The first n of 16 or of 32 lanes.
inline __mmask16 first_of_16(std::int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}
inline __mmask32 first_of_32(std::int64_t n) {
  return n >= 32 ? 0xffffffffu : n <= 0 ? 0u : (1u << n) - 1;
}

// Whether 16 rows are equally far apart: the differences of neighbours are those of the first two.
TESSERA_AVX512 inline bool evenly_apart(const void* const* rows) {
  const auto apart = [rows](int i) TESSERA_AVX512 {
    return _mm512_sub_epi64(_mm512_loadu_si512(rows + i + 1), _mm512_loadu_si512(rows + i));
  };
  const __m512i first =
      _mm512_set1_epi64(static_cast<const char*>(rows[1]) - static_cast<const char*>(rows[0]));
  return (_mm512_cmpneq_epi64_mask(apart(0), first) | _mm512_cmpneq_epi64_mask(apart(7), first)) ==
         0;
}

// To nearest even; a NaN stays one.
TESSERA_AVX512 inline __m256i rounded_16(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v), kept = _mm512_srli_epi32(bits, 16),
                up = _mm512_add_epi32(_mm512_and_si512(kept, _mm512_set1_epi32(1)),
                                      _mm512_set1_epi32(0x7fff)),
                nearest = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(nearest, nan, kept, _mm512_set1_epi32(0x40)));
}
// To nearest even. The instruction takes the smallest numbers for zeros; they have a way of their
// own.
TESSERA_AVX512_BF16 inline __m512i rounded_32(__m512 low, __m512 high) {
  constexpr int smallest = 0x20;
  if ((_mm512_fpclass_ps_mask(low, smallest) | _mm512_fpclass_ps_mask(high, smallest)) == 0)
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
  return _mm512_inserti64x4(_mm512_castsi256_si512(rounded_16(low)), rounded_16(high), 1);
}

}  // namespace TESSERA_X86
}  // namespace tessera::exec::cpu
