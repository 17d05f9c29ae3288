// One head of an attention in bf16 with BFMMLA (Micro::attend): a few queries at a time, whose
// scores stay in the first-level cache. Scores are in units of log2, so that the exponential is a
// power of two; they are rounded into the panel from which they are multiplied with v. Keys and
// values are packed once for all queries. Convention: a query's bits do not depend on those it is
// computed with.
#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "exec/cpu/attention/attend.h"
#include "exec/cpu/gemm/finish_arm.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/mmla_arm.h"

namespace tessera::exec::cpu {

// Queries whose scores are computed together, so that keys and values are read again soon.
inline constexpr int attended_rows = 4 * mmla_rows;

// Where things lie in a thread's room.
struct AttendRoom {
  std::int64_t keys, pitch;  // of a panel of probabilities, of a row of scores
  Low *k, *v, *q, *p;
  float* scores;
  std::int64_t bytes;

  AttendRoom(const Attend& x)
      : keys((x.s + 3) / 4 * 4), pitch((x.s + mmla_columns - 1) / mmla_columns * mmla_columns) {
    Low* at = static_cast<Low*>(x.room);
    const auto take = [&at](std::int64_t n) { return std::exchange(at, at + (n + 31) / 32 * 32); };
    k = take(pitch * x.d);
    v = take(keys * x.d);
    q = take(attended_rows * x.d);
    p = take(attended_rows * keys);
    scores = reinterpret_cast<float*>(take(2 * attended_rows * pitch));
    bytes = (at - static_cast<Low*>(x.room)) * static_cast<std::int64_t>(sizeof(Low));
  }
};

// 16 columns of tokens `row` elements apart: groups of four tokens, zeros behind the last one.
inline void pack_tokens(const Low* from, std::int64_t row, std::int64_t tokens, std::int64_t padded,
                        Low* to) {
  static constexpr Low none[mmla_columns] = {};
  for (std::int64_t token = 0; token < padded; token += 4, to += 4 * mmla_columns) {
    const Low* at[4];
    for (int i = 0; i < 4; ++i) at[i] = token + i < tokens ? from + (token + i) * row : none;
    pack_four_rows(at, to);
  }
}
// Tokens as rows of the left factor, or as columns of the right one.
inline Lanes token_lanes(const Low* from, std::int64_t row, std::int64_t tokens, std::int64_t d) {
  return {.used = tokens, .k = d, .padded = d, .from = from, .lane_step = row, .k_step = 1};
}
inline void pack_keys(const Low* from, std::int64_t row, std::int64_t tokens, std::int64_t d,
                      Low* to) {
  for (std::int64_t key = 0; key < tokens; key += mmla_columns)
    pack_mmla_columns(
        token_lanes(from + key * row, row, std::min<std::int64_t>(mmla_columns, tokens - key), d),
        to + key * d);
}
inline void pack_queries(const Low* from, std::int64_t row, std::int64_t tokens, std::int64_t d,
                         Low* to) {
  for (std::int64_t query = 0; query < tokens; query += mmla_rows)
    pack_mmla_rows(
        token_lanes(from + query * row, row, std::min<std::int64_t>(mmla_rows, tokens - query), d),
        to + query * d);
}

// Four addends of scores.
TESSERA_ARM_INLINE float32x4_t load_four(const float* x) { return vld1q_f32(x); }
TESSERA_ARM_INLINE float32x4_t load_four(const Low* x) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(x), 16));
}
TESSERA_ARM_INLINE float32x4_t plus(float32x4_t v, NoAddend, std::int64_t) { return v; }
template <class T>
TESSERA_ARM_INLINE float32x4_t plus(float32x4_t v, const T* x, std::int64_t at) {
  return vfmaq_n_f32(v, load_four(x + at), log2_of_e);
}
// The last `left`, fewer than four, of n: no more than n can be read. Lanes behind them do not
// count.
TESSERA_ARM_INLINE float32x4_t plus_last(float32x4_t v, NoAddend, std::int64_t, std::int64_t) {
  return v;
}
template <class T>
TESSERA_ARM_INLINE float32x4_t plus_last(float32x4_t v, const T* x, std::int64_t n,
                                         std::int64_t left) {
  if (n < 4) {
    T few[4] = {};
    std::copy_n(x, n, few);
    return plus(v, static_cast<const T*>(few), 0);
  }
  static constexpr std::uint8_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const auto by = static_cast<std::uint8_t>(16 - 4 * left);
  const uint8x16_t last = vreinterpretq_u8_f32(load_four(x + n - 4)),
                   moved = vqtbl1q_u8(last, vaddq_u8(vld1q_u8(lane), vdupq_n_u8(by)));
  return vfmaq_n_f32(v, vreinterpretq_f32_u8(moved), log2_of_e);
}

// Which of four lanes are the first `n`.
TESSERA_ARM_INLINE uint32x4_t first_lanes(std::int64_t n) {
  static constexpr std::uint32_t lane[4] = {0, 1, 2, 3};
  return vcltq_u32(vld1q_u32(lane), vdupq_n_u32(static_cast<std::uint32_t>(n)));
}

// A row of scores gets scale and addends; its greatest number.
template <class B, class M>
TESSERA_ARM_INLINE float scale_and_max(float* row, std::int64_t n, float scale, B bias, M mask) {
  const float least = -std::numeric_limits<float>::infinity();
  float32x4_t most = vdupq_n_f32(least), other = most;
  std::int64_t i = 0;
  const auto take = [&](std::int64_t at) {
    const float32x4_t v = plus(plus(vmulq_n_f32(vld1q_f32(row + at), scale), bias, at), mask, at);
    vst1q_f32(row + at, v);
    return v;
  };
  for (; i + 8 <= n; i += 8) {
    most = vmaxq_f32(most, take(i));
    other = vmaxq_f32(other, take(i + 4));
  }
  for (; i + 4 <= n; i += 4) most = vmaxq_f32(most, take(i));
  if (i < n) {
    const std::int64_t left = n - i;
    const float32x4_t v =
        plus_last(plus_last(vmulq_n_f32(vld1q_f32(row + i), scale), bias, n, left), mask, n, left);
    const float32x4_t padded = vbslq_f32(first_lanes(left), v, vdupq_n_f32(least));
    vst1q_f32(row + i, padded);
    most = vmaxq_f32(most, padded);
  }
  return vmaxvq_f32(vmaxq_f32(most, other));
}

// The powers of two of a row of scores are relative to 2^base, base an integer, and at least
// 2^-126 of that. Adding `shift` rounds to an integer, takes base from it and leaves it where an
// exponent has it after a shift to the left.
struct PowersOfTwo {
  float32x4_t shift, least;

  TESSERA_ARM_INLINE explicit PowersOfTwo(float base)
      : shift(vdupq_n_f32(12583039.0f - base)), least(vdupq_n_f32(base - 126)) {}
  // Relative error 3e-6.
  TESSERA_ARM_INLINE float32x4_t of(float32x4_t x) const {
    x = vmaxq_f32(x, least);
    const float32x4_t shifted = vaddq_f32(x, shift), r = vsubq_f32(x, vsubq_f32(shifted, shift)),
                      r2 = vmulq_f32(r, r);
    const auto pair = [r](float low, float high) { return vfmaq_n_f32(vdupq_n_f32(low), r, high); };
    const float32x4_t p =
        vfmaq_f32(pair(0.999999285f, 0.693121791f),
                  vfmaq_n_f32(pair(0.240247443f, 0.0559178591f), r2, 0.0095701022f), r2);
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23)));
  }
};
// The base of a row's powers from its greatest score. Where that is beyond what PowersOfTwo can
// round, the row is moved by it.
inline float move_base(float most, float* row, std::int64_t n, float* moved_by) {
  const float base = std::nearbyint(most);
  *moved_by = 0;
  if (std::abs(base) <= 1 << 20) return base;
  for (std::int64_t i = 0; i < n; ++i) row[i] -= base;
  *moved_by = base;
  return 0;
}

// Two rows of scores become powers of two in a panel, which has the two side by side; their sums.
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_powers(const float* row, std::int64_t pitch,
                                                  std::int64_t keys, const float* base, Low* to,
                                                  float* sum) {
  const PowersOfTwo first(base[0]), second(base[1]);
  float32x4_t sum0 = vdupq_n_f32(0), sum1 = sum0;
  for (std::int64_t key = 0; key < keys; key += 4, to += mmla_rows * 4) {
    const float32x4_t p0 = first.of(vld1q_f32(row + key)),
                      p1 = second.of(vld1q_f32(row + pitch + key));
    sum0 = vaddq_f32(sum0, p0);
    sum1 = vaddq_f32(sum1, p1);
    vst1q_u16(to, vreinterpretq_u16_u32(round_two(p0, p1)));
  }
  sum[0] = vaddvq_f32(sum0);
  sum[1] = vaddvq_f32(sum1);
}

// The sums of values of six queries over the sums of their probabilities, 16 columns of them.
template <int... I>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_values_to(std::integer_sequence<int, I...>,
                                                     const float32x4_t* sums, const float* share,
                                                     Low* to, std::int64_t pitch) {
  constexpr int halves = mmla_columns / 8;
  const float32x4_t by[] = {vcombine_f32(vdup_n_f32(share[0]), vdup_n_f32(share[1])),
                            vcombine_f32(vdup_n_f32(share[2]), vdup_n_f32(share[3])),
                            vcombine_f32(vdup_n_f32(share[4]), vdup_n_f32(share[5]))};
  (put_two(vmulq_f32(sums[I * 4], by[I / halves]), vmulq_f32(sums[I * 4 + 1], by[I / halves]),
           vmulq_f32(sums[I * 4 + 2], by[I / halves]), vmulq_f32(sums[I * 4 + 3], by[I / halves]),
           to + I / halves * 2 * pitch + I % halves * 8, pitch),
   ...);
}
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_values(const float32x4_t* sums, const float* share,
                                                  std::int64_t rows, Low* to, std::int64_t pitch) {
  Low room[mmla_rows * mmla_columns];
  const bool whole = rows >= mmla_rows;
  put_values_to(std::make_integer_sequence<int, mmla_sums / 4>(), sums, share, whole ? to : room,
                whole ? pitch : mmla_columns);
  if (!whole) copy_rows(room, rows, to, pitch);
}

TESSERA_BFMMLA TESSERA_ARM_INLINE bfloat16x8_t load_eight(const Low* from) {
  return vreinterpretq_bf16_u16(vld1q_u16(from));
}
// The first two keys of a panel, as multiply_keys has them.
TESSERA_BFMMLA TESSERA_ARM_INLINE void multiply_two_keys(const Low* a, const Low* keys, int tiles,
                                                         std::int64_t d, float* to,
                                                         std::int64_t pitch) {
  for (int tile = 0; tile < tiles; ++tile, to += mmla_rows * pitch) {
    float32x4_t sums[mmla_rows / 2] = {vdupq_n_f32(0), vdupq_n_f32(0), vdupq_n_f32(0)};
    const Low* b = keys;
    for (std::int64_t p = 0; p < d; p += 4, a += 4 * mmla_rows, b += 4 * mmla_columns)
      for (int i = 0; i < mmla_rows / 2; ++i)
        sums[i] = vbfmmlaq_f32(sums[i], load_eight(a + 8 * i), load_eight(b));
    for (int i = 0; i < mmla_rows / 2; ++i) {
      vst1_f32(to + 2 * i * pitch, vget_low_f32(sums[i]));
      vst1_f32(to + (2 * i + 1) * pitch, vget_high_f32(sums[i]));
    }
  }
}
// Products of `tiles` times six packed queries with s packed keys of d numbers each: rows `pitch`
// apart, of whole panels, but where one or two keys are left (49 and 65 leave one), which would
// take as long as 16.
TESSERA_BFMMLA inline void multiply_keys(const Low* queries, const Low* keys, int tiles,
                                         std::int64_t s, std::int64_t d, float* to,
                                         std::int64_t pitch) {
  for (std::int64_t key = 0; key < s; key += mmla_columns) {
    const Low* const columns = keys + key * d;
    if (s - key <= 2) return multiply_two_keys(queries, columns, tiles, d, to + key, pitch);
    for (int tile = 0; tile < tiles; ++tile) {
      float32x4_t sums[mmla_sums];
      const void *const a = queries + tile * mmla_rows * d, *const b = columns;
      TESSERA_MMLA_SUMS("bfmmla", "8h", sums, d / 4, a, b);
      put_tile(sums, to + tile * mmla_rows * pitch + key, pitch);
    }
  }
}
// The results of queries from `first` on, whose probabilities are in room.p; those of a query sum
// up to 1 / share.
TESSERA_BFMMLA inline void multiply_values(const Attend& x, const AttendRoom& room, int tiles,
                                           std::int64_t first, const float* share) {
  for (std::int64_t column = 0; column < x.d; column += mmla_columns)
    for (int tile = 0; tile < tiles; ++tile) {
      const std::int64_t row = first + tile * mmla_rows;
      float32x4_t sums[mmla_sums];
      const void *const a = room.p + tile * mmla_rows * room.keys, *const b =
                                                                       room.v + column * room.keys;
      TESSERA_MMLA_SUMS("bfmmla", "8h", sums, room.keys / 4, a, b);
      put_values(sums, share + tile * mmla_rows, x.rows - row, x.o + row * x.row + column, x.row);
    }
}

// Queries from `first` on, which are packed in room.q.
template <class B, class M>
TESSERA_BFMMLA void attend_some(const Attend& x, const AttendRoom& room, std::int64_t first, B bias,
                                M mask) {
  const std::int64_t rows = std::min<std::int64_t>(attended_rows, x.rows - first);
  const int tiles = static_cast<int>((rows + mmla_rows - 1) / mmla_rows);
  multiply_keys(room.q, room.k, tiles, x.s, x.d, room.scores, room.pitch);
  // Powers are taken two rows at a time; a row behind the last has any scores.
  float base[attended_rows] = {}, moved_by[attended_rows], sum[attended_rows] = {};
  for (std::int64_t row = 0; row < rows; ++row) {
    if (x.next != 0)
      for (const Low* from : {x.q, x.k, x.v})
        __builtin_prefetch(from + x.next + (first + row) * x.row, 0, 2);
    float* const scores = room.scores + row * room.pitch;
    const std::int64_t at = (first + row) * x.s;
    const float most =
        scale_and_max(scores, x.s, x.scale * log2_of_e, moved(bias, at), moved(mask, at));
    base[row] = move_base(most, scores, x.s, moved_by + row);
  }
  for (std::int64_t row = 0; row < rows; row += 2)
    put_powers(room.scores + row * room.pitch, room.pitch, room.keys, base + row,
               room.p + row / mmla_rows * mmla_rows * room.keys + row % mmla_rows * 4, sum + row);
  if (x.lse)
    for (std::int64_t row = 0; row < rows; ++row)
      x.lse[first + row] = (base[row] + moved_by[row]) * ln_of_2 + std::log(sum[row]);
  if (!x.o) return;
  for (std::int64_t row = 0; row < rows; ++row) sum[row] = 1 / sum[row];
  multiply_values(x, room, tiles, first, sum);
}

template <class B, class M>
void attend_all(const Attend& x, const AttendRoom& room, B bias, M mask) {
  pack_keys(x.k, x.row, x.s, x.d, room.k);
  for (std::int64_t column = 0; column < x.d; column += mmla_columns)
    pack_tokens(x.v + column, x.row, x.s, room.keys, room.v + column * room.keys);
  for (std::int64_t first = 0; first < x.rows; first += attended_rows) {
    pack_queries(x.q + first * x.row, x.row, std::min<std::int64_t>(attended_rows, x.rows - first),
                 x.d, room.q);
    attend_some(x, room, first, bias, mask);
  }
}
inline bool attend_bfmmla(const Attend& x) {
  if (x.s == 0 || x.d == 0 || x.d % mmla_columns != 0) return false;
  const AttendRoom room(x);
  if (room.bytes > x.room_bytes) return false;
  with_addends(x.bias, x.mask, [&](auto bias, auto mask) { attend_all(x, room, bias, mask); });
  return true;
}

}  // namespace tessera::exec::cpu
