// The description of a model: the [model] section with every key resolved, and the named presets it
// can start from. Convention: plain values only, so that config/ can read it without the rest of
// the compiler.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::models {

// The model section of a config, every key resolved. Keys that a family does not use keep their
// defaults and are not printed.
struct ModelConfig {
  std::string name =
      "vit_tiny_cifar";  // the preset it started from; "" when only a family was given
  std::string family = "vit";
  std::int64_t image_h = 224, image_w = 224, channels = 3, patch = 16;
  std::int64_t dim = 768, depth = 12, heads = 12, mlp = 3072, classes = 1000;
  std::string pool = "class";  // class | mean
  double dropout = 0.0, drop_path = 0.0;
  std::string head_init = "zero";  // zero | normal
  // resnet
  std::string
      block = "bottleneck",
      stem = "imagenet";  // basic | bottleneck; imagenet (7x7 stride 2, max-pool) | cifar (3x3)
  std::vector<std::int64_t> layers = {3, 4, 6, 3};  // blocks per stage
  std::int64_t width = 64;                          // channels of the stem and of the first stage
  std::string batch_norm = "local";                 // local | sync | deferred
  // swin: one number per stage, and a window of tokens
  std::vector<std::int64_t> depths, stage_heads;
  std::int64_t window_h = 7, window_w = 7;
  double mlp_ratio = 4.0;
  bool operator==(const ModelConfig&) const = default;
};

struct Preset {
  std::string name;
  ModelConfig config;
  std::string note;  // one line for `tessera models`
};

const std::vector<Preset>& presets();
// Throws Error(usage) with the nearest name when there is none.
const ModelConfig& preset(std::string_view name);
// A size that tensor-parallel ranks share out: the keys it follows from, its size, and the words
// for it in an error.
struct Share {
  std::vector<std::string> keys;
  std::int64_t size = 1;
  std::string text;
};

struct Checks;

// One row per family (models/description/): what differs between descriptions of different
// families.
struct Family {
  std::string_view name;
  std::string_view preset;  // what a description starts from when no preset is named
  std::string_view keys;    // the keys of [model] that it reads beside name, family and init
  std::string_view
      depth_key;  // the key that says how many layers it has; "depth": it has no stages
  std::vector<Preset> (*presets)();
  void (*check)(Checks&);
  double (*parameter_count)(const ModelConfig&);
  double (*widest_tensor)(const ModelConfig&, bool fused);
  std::string (*size)(
      const ModelConfig&);  // the keys that its size follows from, with their values
  std::vector<std::int64_t> (*depths)(const ModelConfig&);  // layers of each stage
  std::vector<Share> (*shares)(const ModelConfig&);
  bool mergings = false;  // between two stages lies a block of its own
  bool tokens = false;    // a residual stream of tokens, which sequence parallelism may cut
  bool attends_to_all =
      false;  // every head attends to all tokens, so heads can be exchanged for tokens
  bool heads_in_shapes = true;  // tensors of another number of heads have other shapes
  bool relu = false;  // rounding can switch an activation off and so change a whole gradient

  bool has(std::string_view key) const;
  bool staged() const { return depth_key != "depth"; }
};
const std::vector<const Family*>& families();
const Family* find_family(std::string_view name);    // null: there is none
const Family& family_of(const ModelConfig& config);  // throws Error(usage) when there is none
std::string family_names();                          // "vit, swin or resnet"

// All problems of a model description, each "model.heads = 5 does not divide model.dim = 192"
// (empty: sound).
std::vector<std::string> problems(const ModelConfig& config);

// Sizes in double, which no product overflows; of sound descriptions only. Beyond these limits no
// plan can be made.
inline constexpr double most_parameters = 64e9, most_elements = 0x1p49;
double parameter_count(const ModelConfig& config);  // of what is trained
// Elements of the largest tensor that one image makes on its way, from above; not `fused`: with all
// the weights of an attention.
double widest_tensor(const ModelConfig& config, bool fused);

// The blocks that a pipeline can cut between: encoder or residual blocks; a merging of Swin's
// counts as one. The embedding (stem) belongs to the first, the head to the last.
std::int64_t block_count(const ModelConfig& config);
std::vector<std::int64_t> depths_of(const ModelConfig& config);  // layers of each stage
std::int64_t layer_count(const ModelConfig& config);

}  // namespace tessera::models
