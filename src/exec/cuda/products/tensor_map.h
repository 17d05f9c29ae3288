// Maps of matrices, by which the copy engine of a Hopper card finds boxes of them. Convention: a
// row of a box is 128 bytes, or 64, and its 16-byte pieces are permuted by the swizzle of that
// width.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tessera::exec::cuda::wgmma {

struct Matrix {
  const void* data = nullptr;
  bool bytes = false;  // elements are of one byte, else bf16
  std::int64_t rows = 0, cols = 0;
  std::int64_t row_stride = 0;  // in elements
};

// Whether the driver makes maps at all, and those of rows in another order.
bool has_maps();
bool has_maps_apart();

CUtensorMap map_of(const Matrix& matrix, int box_rows, int box_bytes = 128);

// Bytes whose rows a box has in another order within each sixteen; both counts of rows are
// multiples of 16. By pairs: rows 2 g and 2 g + 1 lie at g and g + 8. By fours: rows 4 t .. 4 t + 3
// lie at 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
CUtensorMap map_of_pairs(const Matrix& matrix, int box_rows);
CUtensorMap map_of_fours(const Matrix& matrix, int box_rows);

}  // namespace tessera::exec::cuda::wgmma
