// A bf16 tile of BFMMLA (mmla_arm.h) that is finished and rounded from its registers (Finish).
// Sums are finished as they lie there, two rows of two columns to a register, and come apart when
// they are bf16. Convention: an element sees the same operations in a whole tile and in a partial
// one; gelu is that of the rounded sum, as if the op of that name followed.
#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/mmla_arm.h"
#include "exec/cpu/simd/convert.h"
#include "exec/cpu/simd/gelu_table.h"
#include "exec/cpu/simd/vector.h"

#define TESSERA_BFMMLA __attribute__((target("arch=armv8.2-a+bf16")))

namespace tessera::exec::cpu {

TESSERA_BFMMLA TESSERA_ARM_INLINE uint32x4_t round_two(float32x4_t first, float32x4_t second) {
  return vreinterpretq_u32_bf16(vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(first), second));
}

// Columns 2j and 2j + 1 of a row, for two rows.
TESSERA_ARM_INLINE float32x4_t twice(const float* columns, int j) {
  double both;
  std::memcpy(&both, columns + 2 * j, sizeof both);
  return vreinterpretq_f32_f64(vdupq_n_f64(both));
}

// Two rows of eight columns, which four registers hold.
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_two(float32x4_t x0, float32x4_t x1, float32x4_t x2,
                                               float32x4_t x3, Low* to, std::int64_t pitch) {
  const uint32x4_t left = round_two(x0, x1), right = round_two(x2, x3);
  vst1q_u16(to, vreinterpretq_u16_u32(vuzp1q_u32(left, right)));
  vst1q_u16(to + pitch, vreinterpretq_u16_u32(vuzp2q_u32(left, right)));
}
// The rows of a tile that count, from where a whole one was put.
inline void copy_rows(const Low* tile, std::int64_t rows, Low* to, std::int64_t pitch) {
  for (std::int64_t row = 0; row < rows; ++row, tile += mmla_columns, to += pitch)
    std::memcpy(to, tile, mmla_columns * sizeof(Low));
}

// The ends of a tile: its sums stay as they are (`bare`), get an offset, or a scale or relu too,
// all three as they lie in registers; rows get C of the steps before (`more`) or an addend; some of
// the columns are missing (`part`).
enum class Ends { bare, plain, scaled, more, addend, more_and_addend, part };

// C scale + offset of eight columns, `least` at least; where it is plain, C + offset.
template <Ends ends>
struct FinishColumns {
  float32x4_t scale[4], offset[4], least;

  TESSERA_ARM_INLINE explicit FinishColumns(const Finish& f, int column) {
    alignas(16) static constexpr float one[mmla_columns] = {1, 1, 1, 1, 1, 1, 1, 1,
                                                            1, 1, 1, 1, 1, 1, 1, 1},
                                       zero[mmla_columns] = {};
    const float *const scales = (f.scale ? f.scale : one) + column, *const offsets =
                                                                        (f.offset ? f.offset
                                                                                  : zero) +
                                                                        column;
    for (int j = 0; j < 4; ++j) {
      if (ends == Ends::scaled) scale[j] = twice(scales, j);
      if (ends != Ends::bare) offset[j] = twice(offsets, j);
    }
    least = vdupq_n_f32(f.relu ? 0 : -std::numeric_limits<float>::infinity());
  }
  TESSERA_ARM_INLINE float32x4_t of(float32x4_t sum, int j) const {
    return ends == Ends::scaled  ? vmaxq_f32(vfmaq_f32(offset[j], sum, scale[j]), least)
           : ends == Ends::plain ? vaddq_f32(sum, offset[j])
                                 : sum;
  }
};

// Indices of registers are constants here and below: g++ 12 keeps sums in memory that a loop
// counts through.
template <Ends ends, int Column, int... Pair>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_low_columns(std::integer_sequence<int, Pair...>,
                                                       const float32x4_t* sums, const Finish& f) {
  const FinishColumns<ends> c(f, Column);
  constexpr int at = Column / 2;
  (put_two(c.of(sums[Pair * 8 + at], 0), c.of(sums[Pair * 8 + at + 1], 1),
           c.of(sums[Pair * 8 + at + 2], 2), c.of(sums[Pair * 8 + at + 3], 3),
           f.low + 2 * Pair * f.pitch + Column, f.pitch),
   ...);
}
// A whole tile.
template <Ends ends>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_low_tile(const float32x4_t* sums, const Finish& f) {
  constexpr auto pairs = std::make_integer_sequence<int, mmla_rows / 2>();
  put_low_columns<ends, 0>(pairs, sums, f);
  put_low_columns<ends, 8>(pairs, sums, f);
}
// Row R of eight columns, to which C (`more`) or the addend is added.
template <bool more, bool addend, int Half, int R>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_row_low(const float32x4_t* sums, const TileOut& out,
                                                   const Finish& f, const float32x4_t* scale,
                                                   const float32x4_t* offset, float32x4_t least) {
  if (R >= out.rows) return;
  float32x4_t x = mmla_row(sums, R, 2 * Half), y = mmla_row(sums, R, 2 * Half + 1);
  if (more) {
    const float* const c = out.c + R * out.rs + 8 * Half;
    x = vaddq_f32(x, vld1q_f32(c));
    y = vaddq_f32(y, vld1q_f32(c + 4));
  }
  x = vfmaq_f32(offset[0], x, scale[0]);
  y = vfmaq_f32(offset[1], y, scale[1]);
  const std::int64_t at = R * f.pitch + 8 * Half;
  if (addend) {
    const uint16x8_t low = vld1q_u16(f.low_addend + at);
    x = vaddq_f32(x, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)));
    y = vaddq_f32(y, vreinterpretq_f32_u32(vshll_high_n_u16(low, 16)));
  }
  vst1q_u16(f.low + at, vreinterpretq_u16_u32(round_two(vmaxq_f32(x, least), vmaxq_f32(y, least))));
}
template <bool more, bool addend, int Half, int... R>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_half_low(std::integer_sequence<int, R...>,
                                                    const float32x4_t* sums, const TileOut& out,
                                                    const Finish& f) {
  alignas(16) static constexpr float one[8] = {1, 1, 1, 1, 1, 1, 1, 1}, zero[8] = {};
  const float *const s = f.scale ? f.scale + 8 * Half : one, *const o = f.offset
                                                                            ? f.offset + 8 * Half
                                                                            : zero;
  const float32x4_t scale[2] = {vld1q_f32(s), vld1q_f32(s + 4)},
                    offset[2] = {vld1q_f32(o), vld1q_f32(o + 4)},
                    least = vdupq_n_f32(f.relu ? 0 : -std::numeric_limits<float>::infinity());
  (put_row_low<more, addend, Half, R>(sums, out, f, scale, offset, least), ...);
}
template <bool more, bool addend>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_rows_low(const float32x4_t* sums, TileOut out,
                                                    Finish f) {
  constexpr auto rows = std::make_integer_sequence<int, mmla_rows>();
  put_half_low<more, addend, 0>(rows, sums, out, f);
  put_half_low<more, addend, 1>(rows, sums, out, f);
}

// Any tile, from its rows in memory one after the other.
inline void put_low_part(const float* part, const TileOut& out, const Finish& f) {
  float row[mmla_columns];
  for (std::int64_t i = 0; i < std::min<std::int64_t>(out.rows, mmla_rows);
       ++i, part += mmla_columns) {
    for (std::int64_t j = 0; j < out.cols; ++j) {
      float v = out.beta == 0 ? part[j] : part[j] + out.c[i * out.rs + j];
      v = std::fma(v, f.scale ? f.scale[j] : 1, f.offset ? f.offset[j] : 0);
      if (f.low_addend) v += widen_bf16(f.low_addend[i * f.pitch + j]);
      row[j] = f.relu && v <= 0 ? 0.0f : v;
    }
    Low* const low = f.low + i * f.pitch;
    if (f.before) round_to_bf16(row, f.before + i * f.pitch, out.cols);
    round_to_bf16(row, low, out.cols);
    if (f.act != Act::none) look_up(gelu_table(f.act == Act::gelu_tanh), low, low, out.cols);
  }
}

// From one tile to the one below it.
TESSERA_ARM_INLINE void next_tile(TileOut& out, Finish& f) {
  out.rows -= mmla_rows;
  out.c += mmla_rows * out.rs;
  f.low += mmla_rows * f.pitch;
  if (f.before) f.before += mmla_rows * f.pitch;
  if (f.low_addend) f.low_addend += mmla_rows * f.pitch;
}
template <int... R>
TESSERA_ARM_INLINE void fetch_low(std::integer_sequence<int, R...>, const Finish& f) {
  (__builtin_prefetch(f.low + R * f.pitch, 1), ...);
  if (f.low_addend) (__builtin_prefetch(f.low_addend + R * f.pitch), ...);
}

template <Ends ends>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_low(const float32x4_t* sums, const TileOut& out,
                                               const Finish& f) {
  if constexpr (ends <= Ends::scaled) {
    Low room[mmla_rows * mmla_columns];
    const bool whole = out.rows >= mmla_rows;
    Finish to = f;
    if (!whole) {
      to.low = room;
      to.pitch = mmla_columns;
    }
    put_low_tile<ends>(sums, to);
    if (!whole) copy_rows(room, out.rows, f.low, f.pitch);
  } else if constexpr (ends == Ends::part) {
    float part[mmla_rows * mmla_columns];
    put_tile(sums, part, mmla_columns);
    put_low_part(part, out, f);
  } else {
    put_rows_low<ends != Ends::addend, ends != Ends::more>(sums, out, f);
  }
}
// Tiles below each other.
template <Ends ends>
TESSERA_BFMMLA void tiles_low(std::int64_t k, const void* a, const void* b, TileOut out, Finish f) {
  constexpr auto rows = std::make_integer_sequence<int, mmla_rows>();
  while (out.rows > 0) {
    out.next.fetch_share();
    fetch_low(rows, f);
    if (out.beta != 0) fetch_rows(rows, out);
    float32x4_t sums[mmla_sums];
    TESSERA_MMLA_SUMS("bfmmla", "8h", sums, k / 4, a, b);
    put_low<ends>(sums, out, f);
    a = static_cast<const Low*>(a) + k * mmla_rows;
    next_tile(out, f);
  }
}

}  // namespace tessera::exec::cpu
