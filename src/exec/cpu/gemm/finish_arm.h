// A bf16 tile of BFMMLA (mmla_arm.h) that is finished and rounded from its registers (Finish).
// Convention: an element sees the same operations in a whole tile and in a partial one.
#pragma once

#include <arm_neon.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/mmla_arm.h"
#include "exec/cpu/simd/convert.h"

#define TESSERA_BFMMLA __attribute__((target("arch=armv8.2-a+bf16")))

namespace tessera::exec::cpu {

// Eight columns of a tile as they are finished: few enough numbers to stay in registers.
struct FinishColumns {
  float32x4_t scale0, scale1, offset0, offset1;
  float32x4_t least;  // -infinity: no relu
};
TESSERA_ARM_INLINE FinishColumns finish_columns(const Finish& f, std::int64_t column) {
  alignas(16) static constexpr float one[8] = {1, 1, 1, 1, 1, 1, 1, 1}, zero[8] = {};
  const float *scale = f.scale ? f.scale + column : one,
              *offset = f.scale ? f.offset + column : zero;
  return {.scale0 = vld1q_f32(scale),
          .scale1 = vld1q_f32(scale + 4),
          .offset0 = vld1q_f32(offset),
          .offset1 = vld1q_f32(offset + 4),
          .least = vdupq_n_f32(f.relu ? 0 : -std::numeric_limits<float>::infinity())};
}
// Row R of them; `more`: C is added to the sums.
template <bool more, bool addend, int Half, int R>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_low(const float32x4_t* sums, const TileOut& out,
                                               const Finish& f, const FinishColumns& columns) {
  if (R >= out.rows) return;
  float32x4_t x = mmla_row(sums, R, 2 * Half), y = mmla_row(sums, R, 2 * Half + 1);
  if (more) {
    const float* const c = out.c + R * out.rs + 8 * Half;
    x = vaddq_f32(x, vld1q_f32(c));
    y = vaddq_f32(y, vld1q_f32(c + 4));
  }
  x = vfmaq_f32(columns.offset0, x, columns.scale0);
  y = vfmaq_f32(columns.offset1, y, columns.scale1);
  const std::int64_t at = R * f.pitch + 8 * Half;
  if (addend) {
    const uint16x8_t low = vld1q_u16(f.low_addend + at);
    x = vaddq_f32(x, vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(low), 16)));
    y = vaddq_f32(y, vreinterpretq_f32_u32(vshll_high_n_u16(low, 16)));
  }
  x = vmaxq_f32(x, columns.least);
  y = vmaxq_f32(y, columns.least);
  vst1q_bf16(reinterpret_cast<bfloat16_t*>(f.low + at),
             vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(x), y));
}
template <bool more, bool addend, int... R>
TESSERA_BFMMLA TESSERA_ARM_INLINE void put_low_rows(std::integer_sequence<int, R...>,
                                                    const float32x4_t* sums, TileOut out,
                                                    Finish f) {
  const FinishColumns first = finish_columns(f, 0);
  (put_low<more, addend, 0, R>(sums, out, f, first), ...);
  const FinishColumns second = finish_columns(f, 8);
  (put_low<more, addend, 1, R>(sums, out, f, second), ...);
}
template <int... R>
TESSERA_ARM_INLINE void fetch_low(std::integer_sequence<int, R...>, const Finish& f) {
  (__builtin_prefetch(f.low + R * f.pitch, 1), ...);
  if (f.low_addend) (__builtin_prefetch(f.low_addend + R * f.pitch), ...);
}

// All rows of a tile, one after the other.
template <int... I>
TESSERA_ARM_INLINE void spread(std::integer_sequence<int, I...>, const float32x4_t* sums,
                               float* to) {
  constexpr int quads = mmla_columns / 4;
  (vst1q_f32(to + 4 * I, mmla_row(sums, I / quads, I % quads)), ...);
}
// A tile of fewer columns.
inline void put_low_part(const float* part, const TileOut& out, const Finish& f) {
  float row[mmla_columns];
  for (std::int64_t i = 0; i < out.rows; ++i, part += mmla_columns) {
    for (std::int64_t j = 0; j < out.cols; ++j) {
      float v = out.beta == 0 ? part[j] : part[j] + out.c[i * out.rs + j];
      v = std::fma(v, f.scale ? f.scale[j] : 1, f.scale ? f.offset[j] : 0);
      if (f.low_addend) v += widen_bf16(f.low_addend[i * f.pitch + j]);
      row[j] = f.relu && v <= 0 ? 0.0f : v;
    }
    round_to_bf16(row, f.low + i * f.pitch, out.cols);
  }
}

TESSERA_BFMMLA inline void tile_low_bfmmla(std::int64_t k, const void* a, const void* b,
                                           const TileOut& out, const Finish& finish) {
  constexpr auto rows = std::make_integer_sequence<int, mmla_rows>();
  fetch_low(rows, finish);
  if (out.beta != 0) fetch_rows(rows, out);
  float32x4_t sums[mmla_sums];
  TESSERA_MMLA_SUMS("bfmmla", "8h", sums, k / 4, a, b);
  if (out.cols == mmla_columns) {
    if (out.beta != 0)
      return finish.low_addend ? put_low_rows<true, true>(rows, sums, out, finish)
                               : put_low_rows<true, false>(rows, sums, out, finish);
    return finish.low_addend ? put_low_rows<false, true>(rows, sums, out, finish)
                             : put_low_rows<false, false>(rows, sums, out, finish);
  }
  float part[mmla_rows * mmla_columns];
  spread(std::make_integer_sequence<int, mmla_sums>(), sums, part);
  put_low_part(part, out, finish);
}

}  // namespace tessera::exec::cpu
