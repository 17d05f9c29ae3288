// Rows of a task of layer norm and of its gradient, which their vector code takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "exec/cpu/low.h"

namespace tessera::exec::cpu {

// Rows of a block: their sums are taken one after the other and their results follow, so that no
// row waits for its own square root.
inline constexpr std::int64_t norm_block = 4;

inline std::int64_t row_size(const ir::Shape& shape) { return shape.empty() ? 1 : shape.back(); }
inline std::int64_t rows_of(const Tensor& x) {
  return row_size(x.shape) == 0 ? 0 : x.elements() / row_size(x.shape);
}

// Rows of a norm; r, s, y, mean and rstd may be absent. `room` holds a block of sums x + r where s
// is not f32. Where `bytes` is given y becomes that instead, times `inverse`.
struct NormRows {
  Numbers x, r, s, y;
  std::int8_t* bytes;
  float inverse;
  const float *g, *b;
  float *mean, *rstd, *room;
  std::int64_t rows, c;
  float eps;
};

// Rows of a gradient; addend, dx, its copy and the sums may be absent. dg, db and `total`, the sum
// of dx, are increased.
struct NormGradRows {
  Numbers dy, x, addend, dx, copy;
  const float *mean, *rstd, *g;
  float *dg, *db, *total;
  std::int64_t rows, c;
};

}  // namespace tessera::exec::cpu
