// This file takes the place of the compiler's of this name: the instructions of AVX-512 and AMX
// that amx_product_x86.h uses, in plain C++, so that its logic is tested on any processor.
// Convention: a tile adds the products of k one after the other; a processor adds pairs of them, so
// bits differ from its.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

using __mmask8 = std::uint8_t;
using __mmask16 = std::uint16_t;
using __mmask32 = std::uint32_t;
struct __m512 {
  float f[16];
};
struct __m512i {
  std::uint32_t u[16];
};
struct __m256i {
  std::uint16_t h[16];
};
struct __m128i {
  std::uint8_t b[16];
};

namespace emulated {

template <class To, class From>
To bits(const From& x) {
  static_assert(sizeof(To) == sizeof(From));
  To out;
  std::memcpy(&out, &x, sizeof(To));
  return out;
}
inline float wide(std::uint16_t x) { return bits<float>(static_cast<std::uint32_t>(x) << 16); }
template <class V, class Body>
V each(V v, const Body& body) {
  for (int i = 0; i < 16; ++i) body(v, i);
  return v;
}

struct Tile {
  unsigned char row[16][64];
};
inline std::array<Tile, 8>& tiles() {
  thread_local std::array<Tile, 8> all;
  return all;
}
// Bytes of a row and rows of each tile: all, until a configuration says otherwise.
struct Sizes {
  std::uint16_t bytes[8] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[8] = {16, 16, 16, 16, 16, 16, 16, 16};
};
inline Sizes& sizes() {
  thread_local Sizes of_all;
  return of_all;
}
inline void configure(const void* config) {
  const char* const from = static_cast<const char*>(config);
  std::memcpy(sizes().bytes, from + 16, sizeof(Sizes::bytes));
  std::memcpy(sizes().rows, from + 48, sizeof(Sizes::rows));
}
// A tile is not loaded beyond its size: large numbers are there, which show where they are used.
inline void load(int tile, const void* from, std::int64_t pitch) {
  Tile& to = tiles()[static_cast<std::size_t>(tile)];
  std::memset(&to, 0x7f, sizeof to);
  for (int r = 0; r < sizes().rows[tile]; ++r)
    std::memcpy(to.row[r], static_cast<const char*>(from) + r * pitch, sizes().bytes[tile]);
}
inline void store(int tile, void* to, std::int64_t pitch) {
  for (int r = 0; r < 16; ++r)
    std::memcpy(static_cast<char*>(to) + r * pitch, tiles()[static_cast<std::size_t>(tile)].row[r],
                64);
}
inline void multiply(int sums, int a, int b) {
  auto& all = tiles();
  const Tile &left = all[static_cast<std::size_t>(a)], &right = all[static_cast<std::size_t>(b)];
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      float sum = 0;
      void* const at = all[static_cast<std::size_t>(sums)].row[m] + 4 * n;
      std::memcpy(&sum, at, 4);
      for (int k = 0; k < sizes().rows[b]; ++k) {
        std::uint16_t x[2], y[2];
        std::memcpy(x, left.row[m] + 4 * k, 4);
        std::memcpy(y, right.row[k] + 4 * n, 4);
        for (int i = 0; i < 2; ++i) sum += wide(x[i]) * wide(y[i]);
      }
      std::memcpy(at, &sum, 4);
    }
}
inline void multiply_bytes(int sums, int a, int b) {
  auto& all = tiles();
  const Tile &left = all[static_cast<std::size_t>(a)], &right = all[static_cast<std::size_t>(b)];
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      std::int32_t sum = 0;
      void* const at = all[static_cast<std::size_t>(sums)].row[m] + 4 * n;
      std::memcpy(&sum, at, 4);
      for (int k = 0; k < sizes().rows[b]; ++k)
        for (int i = 0; i < 4; ++i)
          sum += static_cast<std::int8_t>(left.row[m][4 * k + i]) *
                 static_cast<std::int8_t>(right.row[k][4 * n + i]);
      std::memcpy(at, &sum, 4);
    }
}

}  // namespace emulated

#define _tile_loadconfig(config) emulated::configure(config)
#define _tile_loadd(tile, from, pitch) emulated::load(tile, from, pitch)
#define _tile_stored(tile, to, pitch) emulated::store(tile, to, pitch)
#define _tile_zero(tile) emulated::tiles()[tile] = {}
#define _tile_dpbf16ps(sums, a, b) emulated::multiply(sums, a, b)
#define _tile_dpbssd(sums, a, b) emulated::multiply_bytes(sums, a, b)

enum { _MM_HINT_T0 = 3, _CMP_UNORD_Q = 3, _CMP_ORD_Q = 7 };
inline void _mm_prefetch(const void*, int) {}

inline __m512 _mm512_set1_ps(float x) {
  return emulated::each(__m512{}, [x](__m512& v, int i) { v.f[i] = x; });
}
inline __m512 _mm512_setzero_ps() { return {}; }
inline __m512i _mm512_set1_epi32(int x) {
  return emulated::each(__m512i{},
                        [x](__m512i& v, int i) { v.u[i] = static_cast<std::uint32_t>(x); });
}
inline __m512 _mm512_max_ps(__m512 a, __m512 b) {
  return emulated::each(a, [&](__m512& v, int i) { v.f[i] = v.f[i] > b.f[i] ? v.f[i] : b.f[i]; });
}
inline __m512 _mm512_min_ps(__m512 a, __m512 b) {
  return emulated::each(a, [&](__m512& v, int i) { v.f[i] = v.f[i] < b.f[i] ? v.f[i] : b.f[i]; });
}
inline __m512 _mm512_mul_ps(__m512 a, __m512 b) {
  return emulated::each(a, [&](__m512& v, int i) { v.f[i] *= b.f[i]; });
}
inline __m512 _mm512_add_ps(__m512 a, __m512 b) {
  return emulated::each(a, [&](__m512& v, int i) { v.f[i] += b.f[i]; });
}
inline __m512 _mm512_rcp14_ps(__m512 a) {
  return emulated::each(a, [](__m512& v, int i) { v.f[i] = 1 / v.f[i]; });
}
inline __m512 _mm512_fnmadd_ps(__m512 a, __m512 b, __m512 c) {
  return emulated::each(a, [&](__m512& v, int i) { v.f[i] = std::fma(-v.f[i], b.f[i], c.f[i]); });
}
inline __m512 _mm512_fmadd_ps(__m512 a, __m512 b, __m512 c) {
  return emulated::each(a, [&](__m512& v, int i) { v.f[i] = std::fma(v.f[i], b.f[i], c.f[i]); });
}
inline __m512 _mm512_loadu_ps(const void* from) {
  __m512 v;
  std::memcpy(&v, from, 64);
  return v;
}
inline __m512i _mm512_loadu_si512(const void* from) {
  __m512i v;
  std::memcpy(&v, from, 64);
  return v;
}
inline __m512 _mm512_load_ps(const void* from) { return _mm512_loadu_ps(from); }
inline void _mm512_store_ps(void* to, __m512 v) { std::memcpy(to, &v, 64); }
inline void _mm512_storeu_si512(void* to, __m512i v) { std::memcpy(to, &v, 64); }
inline __m512 _mm512_maskz_loadu_ps(__mmask16 there, const float* from) {
  return emulated::each(__m512{}, [&](__m512& v, int i) {
    if (there >> i & 1) v.f[i] = from[i];
  });
}
inline void _mm512_mask_storeu_ps(float* to, __mmask16 there, __m512 v) {
  for (int i = 0; i < 16; ++i)
    if (there >> i & 1) to[i] = v.f[i];
}
inline __m512 _mm512_castsi512_ps(__m512i a) { return emulated::bits<__m512>(a); }
inline __m512i _mm512_castps_si512(__m512 a) { return emulated::bits<__m512i>(a); }
inline __m512 _mm512_cvtepi32_ps(__m512i a) {
  return emulated::each(__m512{}, [&](__m512& v, int i) {
    v.f[i] = static_cast<float>(static_cast<std::int32_t>(a.u[i]));
  });
}
// As the processor's, what no i32 holds becomes the least of them.
inline __m512i _mm512_maskz_cvtps_epi32(__mmask16 there, __m512 a) {
  return emulated::each(__m512i{}, [&](__m512i& v, int i) {
    const bool fits = std::abs(a.f[i]) < 2147483648.0f;
    if (there >> i & 1)
      v.u[i] = fits ? static_cast<std::uint32_t>(std::lrint(a.f[i])) : 0x80000000u;
  });
}
inline __m128i _mm512_cvtepi32_epi8(__m512i a) {
  __m128i v;
  for (int i = 0; i < 16; ++i) v.b[i] = static_cast<std::uint8_t>(a.u[i]);
  return v;
}
inline void _mm_mask_storeu_epi8(void* to, __mmask16 there, __m128i v) {
  for (int i = 0; i < 16; ++i)
    if (there >> i & 1) static_cast<std::uint8_t*>(to)[i] = v.b[i];
}
inline __m512i _mm512_slli_epi32(__m512i a, int by) {
  return emulated::each(a, [by](__m512i& v, int i) { v.u[i] <<= by; });
}
inline __m512i _mm512_srli_epi32(__m512i a, int by) {
  return emulated::each(a, [by](__m512i& v, int i) { v.u[i] >>= by; });
}
inline __m512i _mm512_and_si512(__m512i a, __m512i b) {
  return emulated::each(a, [&](__m512i& v, int i) { v.u[i] &= b.u[i]; });
}
inline __m512i _mm512_add_epi32(__m512i a, __m512i b) {
  return emulated::each(a, [&](__m512i& v, int i) { v.u[i] += b.u[i]; });
}
inline __m512i _mm512_set1_epi64(std::int64_t x) {
  return emulated::bits<__m512i>(std::array<std::int64_t, 8>{x, x, x, x, x, x, x, x});
}
inline __m512i _mm512_sub_epi64(__m512i a, __m512i b) {
  auto out = emulated::bits<std::array<std::uint64_t, 8>>(a);
  const auto less = emulated::bits<std::array<std::uint64_t, 8>>(b);
  for (std::size_t i = 0; i < 8; ++i) out[i] -= less[i];
  return emulated::bits<__m512i>(out);
}
inline __mmask8 _mm512_cmpneq_epi64_mask(__m512i a, __m512i b) {
  const auto x = emulated::bits<std::array<std::uint64_t, 8>>(a),
             y = emulated::bits<std::array<std::uint64_t, 8>>(b);
  unsigned out = 0;
  for (std::size_t i = 0; i < 8; ++i)
    if (x[i] != y[i]) out |= 1u << i;
  return static_cast<__mmask8>(out);
}
inline __m512i _mm512_mask_or_epi32(__m512i other, __mmask16 there, __m512i a, __m512i b) {
  return emulated::each(other, [&](__m512i& v, int i) {
    if (there >> i & 1) v.u[i] = a.u[i] | b.u[i];
  });
}
inline __m512i _mm512_cvtepu16_epi32(__m256i a) {
  return emulated::each(__m512i{}, [&](__m512i& v, int i) { v.u[i] = a.h[i]; });
}
inline __m256i _mm512_cvtepi32_epi16(__m512i a) {
  return emulated::each(
      __m256i{}, [&](__m256i& v, int i) { v.h[i] = static_cast<std::uint16_t>(a.u[i] & 0xffff); });
}
inline __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int how) {
  unsigned out = 0;
  for (unsigned i = 0; i < 16; ++i) {
    const bool unordered = std::isnan(a.f[i]) || std::isnan(b.f[i]),
               is = unordered == (how == _CMP_UNORD_Q);
    if (is) out |= 1u << i;
  }
  return static_cast<__mmask16>(out);
}
inline __m256i _mm256_maskz_loadu_epi16(__mmask16 there, const void* from) {
  return emulated::each(__m256i{}, [&](__m256i& v, int i) {
    if (there >> i & 1) v.h[i] = static_cast<const std::uint16_t*>(from)[i];
  });
}
inline void _mm512_mask_storeu_epi16(void* to, __mmask32 there, __m512i v) {
  const auto all = emulated::bits<std::array<std::uint16_t, 32>>(v);
  for (std::size_t i = 0; i < 32; ++i)
    if (there >> i & 1) static_cast<std::uint16_t*>(to)[i] = all[i];
}
inline __m256i _mm512_castsi512_si256(__m512i v) {
  return emulated::bits<std::array<__m256i, 2>>(v)[0];
}
inline __m256i _mm512_extracti64x4_epi64(__m512i v, int half) {
  return emulated::bits<std::array<__m256i, 2>>(v)[static_cast<std::size_t>(half)];
}
inline __m512i _mm512_castsi256_si512(__m256i v) {
  return emulated::bits<__m512i>(std::array<__m256i, 2>{v, {}});
}
inline __m512i _mm512_inserti64x4(__m512i v, __m256i x, int half) {
  auto halves = emulated::bits<std::array<__m256i, 2>>(v);
  halves[static_cast<std::size_t>(half)] = x;
  return emulated::bits<__m512i>(halves);
}
inline __mmask16 _mm512_fpclass_ps_mask(__m512 a, int) {  // of class 0x20 alone
  unsigned out = 0;
  for (unsigned i = 0; i < 16; ++i)
    if (std::fpclassify(a.f[i]) == FP_SUBNORMAL) out |= 1u << i;
  return static_cast<__mmask16>(out);
}
// As the processor's, it takes the smallest numbers for zeros.
inline __m512i _mm512_cvtne2ps_pbh(__m512 high, __m512 low) {
  std::array<std::uint16_t, 32> out{};
  for (std::size_t i = 0; i < 32; ++i) {
    const float x = i < 16 ? low.f[i] : high.f[i - 16];
    const auto u = emulated::bits<std::uint32_t>(x);
    const std::uint32_t nearest = std::isnan(x) ? u | 0x400000 : u + 0x7fff + (u >> 16 & 1);
    out[i] = std::fpclassify(x) == FP_SUBNORMAL ? 0 : static_cast<std::uint16_t>(nearest >> 16);
  }
  return emulated::bits<__m512i>(out);
}
inline __m512i _mm512_maskz_loadu_epi16(__mmask32 there, const void* from) {
  std::uint16_t all[32] = {};
  for (int i = 0; i < 32; ++i)
    if (there >> i & 1) all[i] = static_cast<const std::uint16_t*>(from)[i];
  __m512i v;
  std::memcpy(&v, all, 64);
  return v;
}
