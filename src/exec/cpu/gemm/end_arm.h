// The end of sums on aarch64 (TileEnd). Convention: an element sees the same instructions wherever
// it lies, and in gelu those of the op of that name.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/mmla_arm.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

// Rows of a result, from sums plus a bias; store(first, second, to) writes eight numbers.
template <int columns, class T, class Store>
TESSERA_ARM_INLINE void put_result(const ColumnSums& x, const float* bias, void* result,
                                   std::int64_t pitch, const Store& store) {
  float32x4_t b[columns / 4];
  for (int q = 0; q < columns / 4; ++q) b[q] = bias ? vld1q_f32(bias + 4 * q) : vdupq_n_f32(0);
  T* to = static_cast<T*>(result);
  const float* from = x.sums;
  T row[columns];
  for (std::int64_t i = 0; i < x.rows; ++i, from += columns, to += pitch) {
    T* const at = x.cols == columns ? to : row;
    for (int q = 0; q < columns / 4; q += 2)
      store(bias ? vaddq_f32(vld1q_f32(from + 4 * q), b[q]) : vld1q_f32(from + 4 * q),
            bias ? vaddq_f32(vld1q_f32(from + 4 * q + 4), b[q + 1]) : vld1q_f32(from + 4 * q + 4),
            at + 4 * q);
    if (x.cols != columns) std::memcpy(to, row, sizeof(T) * static_cast<std::size_t>(x.cols));
  }
}

template <int columns>
TESSERA_ARM_INLINE void act_on(const ColumnSums& x, const TileEnd& end) {
  const bool tanh = end.act == Act::gelu_tanh;
  float* row = x.sums;
  for (std::int64_t i = 0; end.bias && i < x.rows; ++i, row += columns)
    for (int q = 0; q < columns; q += 4)
      vst1q_f32(row + q, vaddq_f32(vld1q_f32(row + q), vld1q_f32(end.bias + q)));
  vector_gelu(x.sums, x.sums, x.rows * columns, tanh);
}

template <int columns, class T, class Store>
TESSERA_ARM_INLINE void end_sums(const ColumnSums& x, const TileEnd& end, const Store& store) {
  if (end.before) put_result<columns, T>(x, end.bias, end.before, end.pitch, store);
  if (!end.after) return;
  act_on<columns>(x, end);
  put_result<columns, T>(x, nullptr, end.after, end.pitch, store);
}

}  // namespace tessera::exec::cpu
