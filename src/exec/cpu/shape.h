// Fast kernels that only move elements, for every dtype: copies of long runs, a tiled transpose, and the walk that both share with
// pointwise. Convention: strides count elements; a dim that an operand lacks has stride 0 in it.
#pragma once

#include <vector>

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

// The dims of a dense tensor, row-major, beside the strides that its index has in another one. Neighbours that move as one are merged and
// dims of extent 1 dropped, so "btc,c->btc" is a walk of two dims whatever b and t are.
struct Walk {
  std::vector<std::int64_t> extent, stride;

  Walk(const ir::Shape& extents, const std::vector<std::int64_t>& strides);
  std::size_t rank() const { return extent.size(); }
  std::int64_t inner() const { return extent.empty() ? 1 : extent.back(); }
  std::int64_t inner_stride() const { return extent.empty() ? 1 : stride.back(); }
  std::int64_t rows() const;                           // the product of all extents but the last
  std::int64_t offset_of_row(std::int64_t row) const;  // of the other tensor's element at the start of this row
};

// A copy over the threads of the pool; nothing when both are the same storage.
void copy_bytes(ThreadPool& pool, const std::byte* src, std::byte* dst, std::int64_t bytes);

}  // namespace tessera::exec::cpu
