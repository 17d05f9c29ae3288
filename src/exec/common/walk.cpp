#include "exec/common/walk.h"

namespace tessera::exec {

Walk::Walk(const ir::Shape& extents, const std::vector<std::int64_t>& strides) {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 1) continue;
    if (!extent.empty() && stride.back() == strides[i] * extents[i]) {
      extent.back() *= extents[i];
      stride.back() = strides[i];
    } else {
      extent.push_back(extents[i]);
      stride.push_back(strides[i]);
    }
  }
}

std::int64_t Walk::rows() const {
  std::int64_t n = 1;
  for (std::size_t i = 0; i + 1 < extent.size(); ++i) n *= extent[i];
  return n;
}

std::int64_t Walk::offset_of_row(std::int64_t row) const {
  std::int64_t offset = 0;
  for (std::size_t i = extent.size(); i-- > 1;) {
    offset += row % extent[i - 1] * stride[i - 1];
    row /= extent[i - 1];
  }
  return offset;
}

}  // namespace tessera::exec
