// The gradient of one head of an attention in bf16 with BFMMLA (Micro::attend_grad). Scores and
// the slopes of P are computed for a few queries at a time; P and dS stay, rounded, and are turned
// a few columns at a time for the products that sum over queries. The formulas are in
// attention/attention.cpp.
#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "exec/cpu/attention/attend_arm.h"
#include "exec/cpu/gemm/finish_arm.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/mmla_arm.h"

namespace tessera::exec::cpu {

inline constexpr std::int64_t turned_at_once = 4 * mmla_rows;  // columns of P and dS

// Where things lie in a thread's room. Products sum over `queries` and `keys`: tokens, and zeros
// behind them up to whole groups.
struct AttendGradRoom {
  std::int64_t queries, keys, pitch;  // of a row of P, dS and scores
  Low *k, *v, *q, *d_o;               // panels from which scores and slopes are multiplied
  Low *of_q, *of_k, *of_d_o;          // tokens that are summed over
  Low *p, *ds, *turned;
  float *scores, *slopes;
  std::int64_t bytes;

  AttendGradRoom(const AttendGrad& x)
      : queries((x.t + 3) / 4 * 4),
        keys((x.s + 7) / 8 * 8),
        pitch((x.s + mmla_columns - 1) / mmla_columns * mmla_columns) {
    Low* at = static_cast<Low*>(x.room);
    const auto take = [&at](std::int64_t n) { return std::exchange(at, at + (n + 31) / 32 * 32); };
    k = take(pitch * x.d);
    v = take(pitch * x.d);
    q = take(attended_rows * x.d);
    d_o = take(attended_rows * x.d);
    of_q = take(queries * x.d);
    of_k = take(keys * x.d);
    of_d_o = take(queries * x.d);
    p = take(queries * pitch);
    ds = take(queries * pitch);
    turned = take(std::max(turned_at_once * queries, mmla_rows * keys));
    scores = reinterpret_cast<float*>(take(2 * attended_rows * pitch));
    slopes = reinterpret_cast<float*>(take(2 * attended_rows * pitch));
    bytes = (at - static_cast<Low*>(x.room)) * static_cast<std::int64_t>(sizeof(Low));
  }
};

// Four numbers of P and of dS: P = 2^(score - lse), all in units of log2, and dS = P (slope - dot).
struct PandSlope {
  float32x4_t p, ds;

  TESSERA_ARM_INLINE PandSlope(float32x4_t score, float32x4_t slope, float32x4_t lse,
                               float32x4_t dot)
      : p(PowersOfTwo(0).of(vsubq_f32(score, lse))), ds(vmulq_f32(p, vsubq_f32(slope, dot))) {}
};
TESSERA_BFMMLA TESSERA_ARM_INLINE uint16x4_t round_four(float32x4_t x) {
  return vget_low_u16(vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(x)));
}
// The sums of x * y over d numbers of `rows` tokens.
TESSERA_BFMMLA TESSERA_ARM_INLINE void dot_rows(const Low* x, const Low* y, std::int64_t row,
                                                std::int64_t rows, std::int64_t d, float* dots) {
  for (std::int64_t r = 0; r < rows; ++r, x += row, y += row) {
    float32x4_t first = vdupq_n_f32(0), second = first;
    for (std::int64_t i = 0; i < d; i += mmla_columns) {
      first = vbfdotq_f32(first, load_eight(x + i), load_eight(y + i));
      second = vbfdotq_f32(second, load_eight(x + i + 8), load_eight(y + i + 8));
    }
    dots[r] = vaddvq_f32(vaddq_f32(first, second));
  }
}
// Whole vectors of one row, and zeros behind them.
template <bool summed, class B, class M>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_gradients(const AttendGrad& x,
                                                     const AttendGradRoom& room, std::int64_t row,
                                                     const float* scores, const float* slopes,
                                                     float dots, B bias, M mask) {
  const float scale = x.scale * log2_of_e;
  const float32x4_t lse = vdupq_n_f32(x.lse[row] * log2_of_e), dot = vdupq_n_f32(dots);
  Low *const p_to = room.p + row * room.pitch, *const ds_to = room.ds + row * room.pitch;
  float* const sum = summed ? x.bias_sum + row * x.s : nullptr;
  const auto four_at = [&](std::int64_t at) {
    const float32x4_t scaled = vmulq_n_f32(vld1q_f32(scores + at), scale);
    const PandSlope four(plus(plus(scaled, bias, at), mask, at), vld1q_f32(slopes + at), lse, dot);
    if (summed) vst1q_f32(sum + at, vaddq_f32(vld1q_f32(sum + at), four.ds));
    return four;
  };
  std::int64_t i = 0;
  for (; i + 8 <= x.s; i += 8) {
    const PandSlope first = four_at(i), second = four_at(i + 4);
    vst1q_u16(p_to + i, vreinterpretq_u16_u32(round_two(first.p, second.p)));
    vst1q_u16(ds_to + i, vreinterpretq_u16_u32(round_two(first.ds, second.ds)));
  }
  for (; i + 4 <= x.s; i += 4) {
    const PandSlope four = four_at(i);
    vst1_u16(p_to + i, round_four(four.p));
    vst1_u16(ds_to + i, round_four(four.ds));
  }
  for (; i < room.keys; i += 4) vst1_u16(ds_to + i, vdup_n_u16(0));
}

// Four numbers `pitch` apart, of which the first `n` count; the others are the last of these.
struct Below {
  std::int64_t n, pitch;
  std::int64_t at(int i) const { return std::min<std::int64_t>(i, n - 1) * pitch; }
};
TESSERA_ARM_INLINE float32x4_t load_below(const float* x, Below b) {
  float32x4_t v = vld1q_dup_f32(x);
  v = vld1q_lane_f32(x + b.at(1), v, 1);
  v = vld1q_lane_f32(x + b.at(2), v, 2);
  return vld1q_lane_f32(x + b.at(3), v, 3);
}
TESSERA_ARM_INLINE float32x4_t load_below(const Low* x, Below b) {
  uint16x4_t v = vld1_dup_u16(x);
  v = vld1_lane_u16(x + b.at(1), v, 1);
  v = vld1_lane_u16(x + b.at(2), v, 2);
  v = vld1_lane_u16(x + b.at(3), v, 3);
  return vreinterpretq_f32_u32(vshll_n_u16(v, 16));
}
TESSERA_ARM_INLINE float32x4_t plus_below(float32x4_t v, NoAddend, Below) { return v; }
template <class T>
TESSERA_ARM_INLINE float32x4_t plus_below(float32x4_t v, const T* x, Below b) {
  return vfmaq_n_f32(v, load_below(x, b), log2_of_e);
}
// The columns behind whole vectors, of `rows` rows from `first` on: vectors go down the rows.
template <bool summed, class B, class M>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_last_gradients(const AttendGrad& x,
                                                          const AttendGradRoom& room,
                                                          std::int64_t first, std::int64_t rows,
                                                          const float* dots, B bias, M mask) {
  const float scale = x.scale * log2_of_e;
  for (std::int64_t column = x.s / 4 * 4; column < x.s; ++column)
    for (std::int64_t row = 0; row < rows; row += 4) {
      const std::int64_t n = std::min<std::int64_t>(4, rows - row), query = first + row,
                         at = row * room.pitch + column, to = query * room.pitch + column,
                         dense = query * x.s + column;
      const Below wide{n, room.pitch}, narrow{n, x.s}, next{n, 1};
      const float32x4_t scaled = vmulq_n_f32(load_below(room.scores + at, wide), scale);
      const PandSlope four(
          plus_below(plus_below(scaled, moved(bias, dense), narrow), moved(mask, dense), narrow),
          load_below(room.slopes + at, wide),
          vmulq_n_f32(load_below(x.lse + query, next), log2_of_e), load_below(dots + row, next));
      float ds[4];
      Low low_p[4], low_ds[4];
      vst1q_f32(ds, four.ds);
      vst1_u16(low_p, round_four(four.p));
      vst1_u16(low_ds, round_four(four.ds));
      for (std::int64_t i = 0; i < n; ++i) {
        room.p[to + i * room.pitch] = low_p[i];
        room.ds[to + i * room.pitch] = low_ds[i];
        if (summed) x.bias_sum[dense + i * x.s] += ds[i];
      }
    }
}

// 16 columns at a time: `rows` rows of a packed panel with `groups` groups of tokens, times scale.
TESSERA_BFMMLA inline void multiply_tokens(const Low* panel, const Low* tokens, std::int64_t groups,
                                           std::int64_t rows, std::int64_t d, float scale, Low* to,
                                           std::int64_t pitch) {
  const float all[mmla_rows] = {scale, scale, scale, scale, scale, scale};
  for (std::int64_t column = 0; column < d; column += mmla_columns) {
    float32x4_t sums[mmla_sums];
    const void *const a = panel, *const b = tokens + column * groups * 4;
    TESSERA_MMLA_SUMS("bfmmla", "8h", sums, groups, a, b);
    put_values(sums, all, rows, to + column, pitch);
  }
}
// Gradients of keys or values: the columns of `from`, which has a row for every query, with tokens.
// Columns of P and dS that no key has, up to their pitch, are turned with the others.
inline void multiply_turned(const AttendGrad& x, const AttendGradRoom& room, const Low* from,
                            const Low* tokens, float scale, Low* to) {
  for (std::int64_t first = 0; first < x.s; first += turned_at_once) {
    const std::int64_t keys = std::min<std::int64_t>(turned_at_once, x.s - first),
                       used = (keys + mmla_rows - 1) / mmla_rows * mmla_rows;
    pack_rows_beside({.used = std::min(used, room.pitch - first),
                      .k = room.queries,
                      .padded = room.queries,
                      .from = from + first,
                      .lane_step = 1,
                      .k_step = room.pitch,
                      .pitch = room.queries},
                     room.turned);
    for (std::int64_t key = 0; key < keys; key += mmla_rows)
      multiply_tokens(room.turned + key * room.queries, tokens, room.queries / 4, keys - key, x.d,
                      scale, to + (first + key) * x.to_row, x.to_row);
  }
}

// The first line of a token of the head that comes next is fetched into the second-level cache.
TESSERA_ARM_INLINE void fetch_next(const AttendGrad& x, std::int64_t token) {
  if (x.next == 0) return;
  const std::int64_t at = x.next + token * x.row;
  for (const Low* from : {x.q, x.k, x.v, x.o, x.d_o}) __builtin_prefetch(from + at, 0, 2);
}

template <bool summed, class B, class M>
TESSERA_BFMMLA void attend_grad_rows(const AttendGrad& x, const AttendGradRoom& room, B bias,
                                     M mask) {
  for (std::int64_t first = 0; first < x.t; first += attended_rows) {
    const std::int64_t rows = std::min<std::int64_t>(attended_rows, x.t - first);
    const int tiles = static_cast<int>((rows + mmla_rows - 1) / mmla_rows);
    pack_queries(x.q + first * x.row, x.row, rows, x.d, room.q);
    pack_queries(x.d_o + first * x.row, x.row, rows, x.d, room.d_o);
    multiply_keys(room.q, room.k, tiles, x.s, x.d, room.scores, room.pitch);
    multiply_keys(room.d_o, room.v, tiles, x.s, x.d, room.slopes, room.pitch);
    float dots[attended_rows];
    dot_rows(x.o + first * x.row, x.d_o + first * x.row, x.row, rows, x.d, dots);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t at = row * room.pitch, addend = (first + row) * x.s;
      fetch_next(x, first + row);
      put_gradients<summed>(x, room, first + row, room.scores + at, room.slopes + at, dots[row],
                            moved(bias, addend), moved(mask, addend));
    }
    put_last_gradients<summed>(x, room, first, rows, dots, bias, mask);
  }
}

inline bool attend_grad_bfmmla(const AttendGrad& x) {
  if (x.t == 0 || x.s == 0 || x.d == 0 || x.d % mmla_columns != 0) return false;
  const AttendGradRoom room(x);
  if (room.bytes > x.room_bytes) return false;
  pack_keys(x.k, x.row, x.s, x.d, room.k);
  pack_keys(x.v, x.row, x.s, x.d, room.v);
  for (std::int64_t column = 0; column < x.d; column += mmla_columns) {
    pack_tokens(x.q + column, x.row, x.t, room.queries, room.of_q + column * room.queries);
    pack_tokens(x.k + column, x.row, x.s, room.keys, room.of_k + column * room.keys);
    pack_tokens(x.d_o + column, x.row, x.t, room.queries, room.of_d_o + column * room.queries);
  }
  with_addends(x.bias, x.mask, [&](auto bias, auto mask) {
    x.bias_sum ? attend_grad_rows<true>(x, room, bias, mask)
               : attend_grad_rows<false>(x, room, bias, mask);
  });
  const std::int64_t end = x.t * room.pitch, none = (room.queries - x.t) * room.pitch;
  std::fill_n(room.p + end, none, Low{0});
  std::fill_n(room.ds + end, none, Low{0});
  if (x.dv) multiply_turned(x, room, room.p, room.of_d_o, 1, x.dv);
  if (x.dk) multiply_turned(x, room, room.ds, room.of_q, x.scale, x.dk);
  for (std::int64_t row = 0; x.dq && row < x.t; row += mmla_rows) {
    const std::int64_t rows = std::min<std::int64_t>(mmla_rows, x.t - row);
    pack_mmla_rows(token_lanes(room.ds + row * room.pitch, room.pitch, rows, room.keys),
                   room.turned);
    multiply_tokens(room.turned, room.of_k, room.keys / 4, rows, x.d, x.scale,
                    x.dq + row * x.to_row, x.to_row);
  }
  return true;
}

}  // namespace tessera::exec::cpu
