// Quantised weights for inference. A parameter w that is_quantisable (models/weights.h) becomes one
// byte per element: w / scale, rounded; what it is multiplied with becomes bytes by a scale of
// its own, which calibration found. Convention: int8 has a scale per output channel, so that the
// largest weight of each is 127; fp8 (e4m3) has one per tensor, so that the largest is 448.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace tessera::run {

struct Quantised {
  std::string as;  // "int8" | "fp8"; "": weights are numbers
  // By parameter: the scale of what it is multiplied with.
  std::map<std::string, double> inputs;
};

// The largest number of a byte: 127 or 448.
double largest_of(std::string_view as);
// Bytes are this type of the IR; scales of weights, one per row of torch's layout, which the values
// have, or one.
ir::DType element_of(std::string_view as);
std::vector<double> weight_scales(std::string_view as, const models::Param& param,
                                  std::span<const double> values);

}  // namespace tessera::run
