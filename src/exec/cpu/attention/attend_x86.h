// One head of an attention in bf16 by AMX (Micro::attend): 32 queries at a time, or 64 of few keys,
// whose scores stay in the first-level cache. Scores are in units of log2, so that the exponential
// is a power of two; they are rounded into rows from which they are multiplied with v. Keys and
// values are packed once for all queries. Convention: a query's bits do not depend on those it is
// computed with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "exec/cpu/attention/attend.h"
#include "exec/cpu/gemm/amx_x86.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/x86.h"

namespace tessera::exec::cpu {

// Queries whose scores are multiplied together, then become shares, then are multiplied with
// values: tiles wait for what vectors have just stored, and vectors for tiles.
inline constexpr std::int64_t most_attended_rows = 64;

// Where things lie in a thread's room. Keys and the numbers of a head are padded to whole steps.
struct AttendRoom {
  std::int64_t keys, d, rows;
  Low *k, *v, *q, *p;
  float *scores, *values;
  std::int64_t bytes;

  AttendRoom(const Attend& x)
      : keys((x.s + 31) / 32 * 32),
        d((x.d + 31) / 32 * 32),
        rows(keys <= 96 ? most_attended_rows : 32) {
    Low* at = static_cast<Low*>(x.room);
    const auto take = [&at](std::int64_t n) { return std::exchange(at, at + n); };
    k = take(keys * d);
    v = take(keys * d);
    q = take(32 * d);
    p = take(rows * keys);
    scores = reinterpret_cast<float*>(take(2 * rows * keys));
    values = reinterpret_cast<float*>(take(2 * rows * d));
    bytes = (at - static_cast<Low*>(x.room)) * static_cast<std::int64_t>(sizeof(Low));
  }
};

// 16 rows of 16 pairs of numbers, turned.
TESSERA_AVX512 inline void turn_pairs(const __m512i* row, Low* to) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + 2 + j]);
      b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + 2 + j]);
    }
  // b[4 g + c] has pairs c, c + 4, c + 8, c + 12 of rows 4 g to 4 g + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(b[c], b[4 + c], 0x88),
                  high = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0x88),
                  low_odd = _mm512_shuffle_i32x4(b[c], b[4 + c], 0xdd),
                  high_odd = _mm512_shuffle_i32x4(b[8 + c], b[12 + c], 0xdd);
    _mm512_storeu_si512(to + 64 * c, _mm512_shuffle_i32x4(low, high, 0x88));
    _mm512_storeu_si512(to + 64 * (c + 4), _mm512_shuffle_i32x4(low_odd, high_odd, 0x88));
    _mm512_storeu_si512(to + 64 * (c + 8), _mm512_shuffle_i32x4(low, high, 0xdd));
    _mm512_storeu_si512(to + 64 * (c + 12), _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd));
  }
}
// Panels of 32 keys, [d / 2][32][2], with zeros for keys and numbers that are missing.
TESSERA_AVX512 inline void pack_keys(const Attend& x, const AttendRoom& room) {
  for (std::int64_t key = 0; key < room.keys; key += 16)
    for (std::int64_t i = 0; i < room.d; i += 32) {
      const __mmask32 there = first_of_32(x.d - i);
      __m512i row[16];
      for (std::int64_t r = 0; r < 16; ++r)
        row[r] = key + r < x.s ? _mm512_maskz_loadu_epi16(there, x.k + (key + r) * x.row + i)
                               : _mm512_setzero_si512();
      turn_pairs(row, room.k + key / 32 * 32 * room.d + i * 32 + key % 32 * 2);
    }
}
// Panels of 32 columns, [keys / 2][32][2].
TESSERA_AVX512 inline void pack_values(const Attend& x, const AttendRoom& room) {
  alignas(64) static constexpr std::uint16_t turn[64] = {
      0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
      11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
      22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  const __m512i first = _mm512_loadu_si512(turn), second = _mm512_loadu_si512(turn + 32);
  for (std::int64_t column = 0; column < room.d; column += 32) {
    const __mmask32 there = first_of_32(x.d - column);
    Low* to = room.v + column * room.keys;
    for (std::int64_t key = 0; key < room.keys; key += 2, to += 64) {
      const auto row = [&](std::int64_t at) TESSERA_AVX512 {
        return at < x.s ? _mm512_maskz_loadu_epi16(there, x.v + at * x.row + column)
                        : _mm512_setzero_si512();
      };
      const __m512i even = row(key), odd = row(key + 1);
      _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, first, odd));
      _mm512_storeu_si512(to + 32, _mm512_permutex2var_epi16(even, second, odd));
    }
  }
}

// Addends of 16 scores.
TESSERA_AVX512 inline __m512 plus(__m512 v, NoAddend, std::int64_t, __mmask16) { return v; }
TESSERA_AVX512 inline __m512 plus(__m512 v, const float* x, std::int64_t at, __mmask16 there) {
  return _mm512_fmadd_ps(_mm512_maskz_loadu_ps(there, x + at), _mm512_set1_ps(log2_of_e), v);
}
TESSERA_AVX512 inline __m512 plus(__m512 v, const Low* x, std::int64_t at, __mmask16 there) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(there, x + at));
  return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16)),
                         _mm512_set1_ps(log2_of_e), v);
}

// A row of scores gets scale and addends; its greatest number. Behind the last score: -inf.
template <class B, class M>
TESSERA_AVX512 inline float scale_and_max(float* row, std::int64_t n, float scale, B bias, M mask) {
  const __m512 by = _mm512_set1_ps(scale),
               least = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 most = least;
  const auto some = [&](std::int64_t i, __mmask16 there) TESSERA_AVX512
      __attribute__((always_inline)) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(row + i), by),
                 v = _mm512_mask_mov_ps(least, there,
                                        plus(plus(scaled, bias, i, there), mask, i, there));
    _mm512_storeu_ps(row + i, v);
    most = _mm512_max_ps(most, v);
  };
  std::int64_t i = 0;
  for (; i + 16 <= n; i += 16) some(i, 0xffff);
  if (i < n) some(i, first_of_16(n - i));
  return _mm512_reduce_max_ps(most);
}

// 2^x for x <= 0, at least 2^-126. Relative error 2e-7. Adding 1.5 * 2^23 + 127 rounds to an
// integer and leaves it where an exponent has it after a shift. A NaN is the second factor of the
// maximum, which is what it gives then.
TESSERA_AVX512 inline __m512 power_of_two(__m512 x) {
  const __m512 shift = _mm512_set1_ps(12583039.0f);
  x = _mm512_max_ps(_mm512_set1_ps(-126), x);
  const __m512 shifted = _mm512_add_ps(x, shift),
               r = _mm512_sub_ps(x, _mm512_sub_ps(shifted, shift)), r2 = _mm512_mul_ps(r, r);
  const auto pair = [r](float low, float high) TESSERA_AVX512 {
    return _mm512_fmadd_ps(r, _mm512_set1_ps(high), _mm512_set1_ps(low));
  };
  const __m512 p = _mm512_fmadd_ps(
      _mm512_fmadd_ps(pair(0.00967554562f, 0.00132764818f), r2, pair(0.240221202f, 0.0555071346f)),
      r2, pair(1.00000012f, 0.693146944f));
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_mul_ps(p, _mm512_castsi512_ps(exponent));
}

// A row of scores becomes powers of two, with zeros behind the last key; their sum. None is so
// small that rounding by the instruction would make it a zero.
TESSERA_AVX512_BF16 inline float put_powers(const float* row, std::int64_t n, float most, Low* to) {
  const __m512 greatest = _mm512_set1_ps(most);
  __m512 sum = _mm512_setzero_ps();
  const auto some = [&](std::int64_t i, __mmask32 there) TESSERA_AVX512_BF16
      __attribute__((always_inline)) {
    const auto power = [&](std::int64_t at, __mmask16 mask) TESSERA_AVX512_BF16
        __attribute__((always_inline)) {
      const __m512 p = _mm512_maskz_mov_ps(
          mask, power_of_two(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, row + at), greatest)));
      sum = _mm512_add_ps(sum, p);
      return p;
    };
    const __m512 low = power(i, static_cast<__mmask16>(there)),
                 high = power(i + 16, static_cast<__mmask16>(there >> 16));
    _mm512_storeu_si512(to + i, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  };
  std::int64_t i = 0;
  for (; i + 32 <= n; i += 32) some(i, 0xffffffff);
  if (i < n) some(i, first_of_32(n - i));
  return _mm512_reduce_add_ps(sum);
}

// Sums of values, rows `from` apart, times each query's share, rounded.
TESSERA_AVX512_BF16 inline void put_values(const float* sums, std::int64_t from, const float* share,
                                           std::int64_t rows, std::int64_t d, Low* to,
                                           std::int64_t pitch) {
  for (std::int64_t row = 0; row < rows; ++row, sums += from, to += pitch) {
    const __m512 by = _mm512_set1_ps(share[row]);
    for (std::int64_t i = 0; i < d; i += 32)
      _mm512_mask_storeu_epi16(to + i, first_of_32(d - i),
                               rounded_32(_mm512_mul_ps(_mm512_loadu_ps(sums + i), by),
                                          _mm512_mul_ps(_mm512_loadu_ps(sums + i + 16), by)));
  }
}

// 32 rows of queries from `first` on. Rows that are missing, and numbers behind those of the head,
// are zeros in a copy.
TESSERA_AVX512 inline void copy_queries(const Attend& x, const AttendRoom& room,
                                        std::int64_t first) {
  for (std::int64_t row = 0; row < 32; ++row)
    for (std::int64_t i = 0; i < room.d; i += 32) {
      const bool there = first + row < x.rows;
      const Low* const from = there ? x.q + (first + row) * x.row + i : x.q;
      _mm512_storeu_si512(room.q + row * room.d + i,
                          _mm512_maskz_loadu_epi16(there ? first_of_32(x.d - i) : 0, from));
    }
}
inline const char* bytes_of(const Low* p) { return reinterpret_cast<const char*>(p); }

// Scores of 32 queries; `rows` of them are there.
TESSERA_AMX inline void multiply_keys(const Attend& x, const AttendRoom& room, std::int64_t first,
                                      std::int64_t rows, float* scores) {
  const Low* q = x.q + first * x.row;
  std::int64_t pitch = 2 * x.row;
  if (room.d != x.d || rows < 32) {
    copy_queries(x, room, first);
    q = room.q;
    pitch = 2 * room.d;
  }
  for (std::int64_t key = 0; key < x.s; key += 32)
    amx_sums(rows > 16, x.s - key > 16, room.d / 32, bytes_of(q), pitch,
             bytes_of(room.k + key * room.d), scores + key, room.keys);
}

// Queries from `first` on.
template <class B, class M>
TESSERA_AMX void attend_some(const Attend& x, const AttendRoom& room, std::int64_t first, B bias,
                             M mask) {
  const std::int64_t rows = std::min(room.rows, x.rows - first);
  for (std::int64_t row = 0; row < rows; row += 32)
    multiply_keys(x, room, first + row, std::min<std::int64_t>(32, rows - row),
                  room.scores + row * room.keys);
  float share[most_attended_rows];
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = (first + row) * x.s;
    float* const scores = room.scores + row * room.keys;
    const float most = scale_and_max(scores, x.s, x.scale * log2_of_e, moved(bias, at),
                                     moved(mask, at)),
                sum = put_powers(scores, x.s, most, room.p + row * room.keys);
    if (x.lse) x.lse[first + row] = most * ln_of_2 + std::log(sum);
    share[row] = 1 / sum;
  }
  if (!x.o) return;
  // Rows that nobody has are read with the others' tiles.
  std::fill_n(room.p + rows * room.keys, ((rows + 31) / 32 * 32 - rows) * room.keys, Low{0});
  for (std::int64_t row = 0; row < rows; row += 32)
    for (std::int64_t column = 0; column < x.d; column += 32)
      amx_sums(rows - row > 16, x.d - column > 16, room.keys / 32,
               bytes_of(room.p + row * room.keys), 2 * room.keys,
               bytes_of(room.v + column * room.keys), room.values + row * room.d + column, room.d);
  put_values(room.values, room.d, share, rows, x.d, x.o + first * x.row, x.row);
}

template <class B, class M>
TESSERA_AMX void attend_all(const Attend& x, const AttendRoom& room, B bias, M mask) {
  pack_keys(x, room);
  if (x.o) pack_values(x, room);
  begin_amx();
  for (std::int64_t first = 0; first < x.rows; first += room.rows)
    attend_some(x, room, first, bias, mask);
  end_amx();
}

inline bool attend_amx(const Attend& x) {
  if (x.s == 0 || x.d == 0 || x.d % 16 != 0) return false;
  const AttendRoom room(x);
  if (room.bytes > x.room_bytes) return false;
  with_addends(x.bias, x.mask, [&](auto bias, auto mask) { attend_all(x, room, bias, mask); });
  return true;
}

}  // namespace tessera::exec::cpu
