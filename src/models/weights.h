// Names and layouts of a model's parameters in other people's files: torchvision's (canonical), torchvision's old ones and timm's.
// Convention: pure text and shape maths; nothing here opens a file. `Param` (model.h) says how torch's layout becomes ours.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace tessera::models {

// Parameters that depend on the image size, the pooling or the number of classes, so that loading may have to adapt them.
inline constexpr std::string_view class_token_name = "class_token";
inline constexpr std::string_view positions_name = "encoder.pos_embedding";
inline constexpr std::string_view head_weight_name = "heads.head.weight";
inline constexpr std::string_view head_bias_name = "heads.head.bias";

// The canonical name of a ViT parameter written as torchvision, old torchvision (mlp.linear_1, mlp.linear_2) or timm write it, with any of
// the wrappers' prefixes module., model. and _orig_mod. before it; nothing when it is none of these. Layer numbers may exceed a model's
// depth.
std::optional<std::string> canonical_name(std::string_view name);
// timm's name of a canonical one.
std::string timm_name(std::string_view canonical);
// The encoder layer that a canonical name belongs to, if any.
std::optional<std::int64_t> layer_of(std::string_view canonical);

// The elements of one parameter between torch's order and ours (row-major both).
std::vector<double> from_torch(const Param& param, std::span<const double> torch_values);
std::vector<double> to_torch(const Param& param, std::span<const double> values);

}  // namespace tessera::models
