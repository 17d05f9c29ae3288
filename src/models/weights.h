// Names and layouts of a model's parameters in other people's files: torchvision's (canonical),
// torchvision's old ones, timm's and Hugging Face's. Convention: pure text and shape maths; nothing
// here opens a file. `Param` (model.h) says how torch's layout becomes ours.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"

namespace tessera::models {

// Parameters that depend on the image size, the pooling or the window, so that loading may have to
// adapt them.
inline constexpr std::string_view class_token_name = "class_token";
inline constexpr std::string_view positions_name = "encoder.pos_embedding";
inline constexpr std::string_view bias_table_ending = ".attn.relative_position_bias_table";

using NameMap = std::map<std::string, std::string>;  // canonical name -> name in a file

// A name in a file: all of a parameter, or one of the parts that lie one below the other in it
// (Hugging Face's query, key and value).
struct NamePart {
  std::string canonical;
  int part = 0, parts = 1;
  bool operator==(const NamePart&) const = default;
};
// Written as torchvision, old torchvision, timm or Hugging Face write it, with any of the wrappers'
// prefixes module., model. and _orig_mod. before it; nothing when it is none of these. Numbers may
// exceed a model's depth.
std::optional<NamePart> name_part(std::string_view family, std::string_view name);
// The canonical name where the tensor is all of the parameter.
std::optional<std::string> canonical_name(std::string_view family, std::string_view name);
// After all names of a file are mapped: what only they together tell (timm before 0.9 counted
// Swin's mergings differently).
void settle_names(std::string_view family, NameMap& names);
// A tensor that may stand in a file beside the parameters and is not read (indices, masks).
bool is_ignored(std::string_view family, std::string_view name);
// timm's name of a canonical one, and Hugging Face's: one name, or one for each part.
std::string timm_name(std::string_view family, std::string_view canonical);
std::vector<std::string> hf_names(std::string_view family, std::string_view canonical);
// Whether it is the weight or bias of the classifier: what another number of classes replaces.
bool is_head(std::string_view family, std::string_view canonical);

// The layer that a canonical name belongs to, if any: its stage (0 where a family has none) and its
// number there.
struct Layer {
  std::int64_t stage = 0, number = 0;
  bool operator==(const Layer&) const = default;
};
std::optional<Layer> layer_of(std::string_view family, std::string_view canonical);
// Where a parameter stands in the order of layers: 0 below are the embeddings (stem) and 0 above is
// the head; what follows the last layer (a final norm) counts with that layer.
struct Depth {
  std::int64_t below = 0, above = 0;
};
Depth depth_of(const ModelConfig& config, std::string_view canonical);

// The weight of a linear layer inside a numbered layer, one row of torch's layout per output
// channel and in our order too. Embeddings, mergings and the head are none.
bool is_inner_linear(const ModelConfig& config, const Param& param);
// The parameters that quantisation as "int8" or "fp8" takes: those weights, and for int8 also the
// filters of convolutions inside a numbered layer, one row of torch's layout per output channel.
bool is_quantisable(const ModelConfig& config, const Param& param, std::string_view as);

// The elements of one parameter between torch's order and ours (row-major both).
std::vector<double> from_torch(const Param& param, std::span<const double> torch_values);
std::vector<double> to_torch(const Param& param, std::span<const double> values);

}  // namespace tessera::models
