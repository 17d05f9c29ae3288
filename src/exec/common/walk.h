// The dims of a dense tensor, row-major, beside the strides that its index has in another one.
// Neighbours that move as one are merged and dims of extent 1 dropped, so "btc,c->btc" is a walk of
// two dims whatever b and t are. Convention: strides count elements; a dim that an operand lacks
// has stride 0 in it.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/type.h"

namespace tessera::exec {

struct Walk {
  std::vector<std::int64_t> extent, stride;

  Walk(const ir::Shape& extents, const std::vector<std::int64_t>& strides);
  std::size_t rank() const { return extent.size(); }
  std::int64_t inner() const { return extent.empty() ? 1 : extent.back(); }
  std::int64_t inner_stride() const { return extent.empty() ? 1 : stride.back(); }
  std::int64_t rows() const;  // the product of all extents but the last
  std::int64_t offset_of_row(
      std::int64_t row) const;  // of the other tensor's element at the start of this row
};

}  // namespace tessera::exec
