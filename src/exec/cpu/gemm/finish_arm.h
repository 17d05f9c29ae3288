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

// Four registers are two rows of eight columns.
struct TwoRows {
  float32x4_t x[4];
};
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_two(const TwoRows& two, Low* to, std::int64_t pitch,
                                               std::int64_t rows) {
  const uint32x4_t left = round_two(two.x[0], two.x[1]), right = round_two(two.x[2], two.x[3]);
  if (rows > 0) vst1q_u16(to, vreinterpretq_u16_u32(vuzp1q_u32(left, right)));
  if (rows > 1) vst1q_u16(to + pitch, vreinterpretq_u16_u32(vuzp2q_u32(left, right)));
}

// C scale + offset of eight columns, `least` at least; where not `scaled`, C + offset.
template <bool scaled>
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
      if (scaled) scale[j] = twice(scales, j);
      offset[j] = twice(offsets, j);
    }
    least = vdupq_n_f32(f.relu ? 0 : -std::numeric_limits<float>::infinity());
  }
  TESSERA_ARM_INLINE TwoRows of(const float32x4_t* sums) const {
    TwoRows out;
    for (int j = 0; j < 4; ++j)
      out.x[j] = scaled ? vmaxq_f32(vfmaq_f32(offset[j], sums[j], scale[j]), least)
                        : vaddq_f32(sums[j], offset[j]);
    return out;
  }
};

template <bool scaled>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_low_tile(const float32x4_t* sums, std::int64_t rows,
                                                    const Finish& f) {
  for (int column = 0; column < mmla_columns; column += 8) {
    const FinishColumns<scaled> columns(f, column);
    for (int row = 0; row < mmla_rows; row += 2)
      put_two(columns.of(sums + row / 2 * 8 + column / 2), f.low + row * f.pitch + column, f.pitch,
              rows - row);
  }
}

// The same with gelu, which is looked up at the rounded sums.
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_gelu_tile(const float32x4_t* sums, std::int64_t rows,
                                                     const Finish& f) {
  Low room[mmla_rows * mmla_columns];
  Low* const x = f.before ? f.before : room;
  const std::int64_t pitch = f.before ? f.pitch : mmla_columns;
  const std::uint16_t* const table = gelu_table(f.act == Act::gelu_tanh);
  put_low_tile<false>(sums, rows, {.offset = f.offset, .low = x, .pitch = pitch});
  for (std::int64_t row = 0; row < std::min<std::int64_t>(rows, mmla_rows); ++row)
    look_up(table, x + row * pitch, f.low + row * f.pitch, mmla_columns);
}
// A function, since clang's vst1q_f32 is a macro that takes no pack of parameters.
TESSERA_ARM_INLINE void store_four(float* to, float32x4_t x) { vst1q_f32(to, x); }
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
template <int... I>
TESSERA_ARM_INLINE void spread(std::integer_sequence<int, I...>, const float32x4_t* sums, float* to,
                               std::int64_t pitch = mmla_columns) {
  constexpr int quads = mmla_columns / 4;
  (store_four(to + I / quads * pitch + I % quads * 4, mmla_row(sums, I / quads, I % quads)), ...);
}
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

template <int... R>
TESSERA_ARM_INLINE void fetch_low(std::integer_sequence<int, R...>, const Finish& f) {
  (__builtin_prefetch(f.low + R * f.pitch, 1), ...);
  if (f.low_addend) (__builtin_prefetch(f.low_addend + R * f.pitch), ...);
}
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_low(const float32x4_t* sums, const TileOut& out,
                                               const Finish& f) {
  constexpr auto all = std::make_integer_sequence<int, mmla_sums>();
  const bool more = out.beta != 0, rows = more || f.low_addend;
  float part[mmla_rows * mmla_columns];
  if (out.cols < mmla_columns || (rows && f.act != Act::none)) {
    spread(all, sums, part);
    return put_low_part(part, out, f);
  }
  if (rows) {
    if (!more) return put_rows_low<false, true>(sums, out, f);
    return f.low_addend ? put_rows_low<true, true>(sums, out, f)
                        : put_rows_low<true, false>(sums, out, f);
  }
  if (f.act != Act::none) return put_gelu_tile(sums, out.rows, f);
  f.scale || f.relu ? put_low_tile<true>(sums, out.rows, f)
                    : put_low_tile<false>(sums, out.rows, f);
}

// Tiles below each other.
TESSERA_BFMMLA inline void tile_low_bfmmla(std::int64_t k, const void* a, const void* b,
                                           const TileOut& tiles, const Finish& finish) {
  constexpr auto rows = std::make_integer_sequence<int, mmla_rows>();
  TileOut out = tiles;
  Finish f = finish;
  while (out.rows > 0) {
    out.next.fetch_share();
    fetch_low(rows, f);
    if (out.beta != 0) fetch_rows(rows, out);
    float32x4_t sums[mmla_sums];
    TESSERA_MMLA_SUMS("bfmmla", "8h", sums, k / 4, a, b);
    put_low(sums, out, f);
    a = static_cast<const Low*>(a) + k * mmla_rows;
    out.rows -= mmla_rows;
    out.c += mmla_rows * out.rs;
    f.low += mmla_rows * f.pitch;
    if (f.before) f.before += mmla_rows * f.pitch;
    if (f.low_addend) f.low_addend += mmla_rows * f.pitch;
  }
}

}  // namespace tessera::exec::cpu
