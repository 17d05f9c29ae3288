// Weight files that are quantised (session/scales.h). Convention: metadata `tessera.quantised` is
// "int8" or "fp8"; a quantised parameter P is a tensor I8 or F8_E4M3, beside it lie `P.scale` (F32,
// [output channels] for int8, [] for fp8) and `P.input_scale` (F32, []). P = bytes * P.scale. All
// other parameters are as in any weight file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/safetensors.h"
#include "models/config.h"
#include "models/model.h"
#include "session/scales.h"

namespace tessera::run {

inline constexpr std::string_view quantised_key = "tessera.quantised";
inline constexpr std::string_view scale_ending = ".scale", input_ending = ".input_scale";

// "" | "int8" | "fp8"; Error(weights) when the file says anything else.
std::string quantised_as(const files::Safetensors& file);
// Whether weights may be stored as this tensor is, in this file.
bool is_weight_type(const files::Safetensors& file, const std::string& tensor);
// Whether the tensor is a scale of another one in a file that is quantised.
bool is_scale(const files::Safetensors& file, std::string_view tensor);
// The numbers of a tensor, whether it is quantised or not.
std::vector<double> weights_in(const files::Safetensors& file, const std::string& tensor);
// Everything that the file says about scales, checked: Error(weights) when a parameter lacks one or
// one is not above 0.
Quantised quantised_of(const files::Safetensors& file, const models::ModelConfig& model);

// "I8" or "F8_E4M3", and the bytes of weights by their scales.
std::string stored_as(std::string_view as);
std::vector<std::byte> quantised_bytes(std::string_view as, std::span<const double> values,
                                       std::span<const double> scales);

}  // namespace tessera::run
