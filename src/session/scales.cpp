#include "session/scales.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tessera::run {

double largest_of(std::string_view as) {
  CHECK(as == "int8" || as == "fp8", "weights are quantised as int8 or fp8");
  return as == "int8" ? 127.0 : 448.0;
}

ir::DType element_of(std::string_view as) {
  return largest_of(as) == 127.0 ? ir::DType::i8 : ir::DType::f8e4m3;
}

std::vector<double> weight_scales(std::string_view as, const models::Param& param,
                                  std::span<const double> values) {
  const auto rows = as == "int8" ? static_cast<std::size_t>(param.torch_shape[0]) : 1;
  const std::size_t columns = values.size() / rows;
  std::vector<double> out;
  for (std::size_t row = 0; row < rows; ++row) {
    double most = 0;
    for (const double v : values.subspan(row * columns, columns))
      most = std::max(most, std::abs(v));
    // A row of zeros has any scale.
    out.push_back(most > 0 ? static_cast<double>(static_cast<float>(most / largest_of(as))) : 1.0);
  }
  return out;
}

}  // namespace tessera::run
