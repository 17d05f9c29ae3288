// The description of a model: the [model] section with every key resolved, and the named presets it can start from.
// Convention: plain values only, so that config/ can read it without the rest of the compiler.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::models {

// The model section of a config, every key resolved. Keys that a family does not use keep their defaults and are not printed.
struct ModelConfig {
  std::string name = "vit_tiny_cifar";  // the preset it started from; "" when only a family was given
  std::string family = "vit";
  std::int64_t image_h = 224, image_w = 224, channels = 3, patch = 16;
  std::int64_t dim = 768, depth = 12, heads = 12, mlp = 3072, classes = 1000;
  std::string pool = "class";  // class | mean
  double dropout = 0.0, drop_path = 0.0;
  std::string head_init = "zero";  // zero | normal
  // resnet
  std::string block = "bottleneck", stem = "imagenet";  // basic | bottleneck; imagenet (7x7 stride 2, max-pool) | cifar (3x3)
  std::vector<std::int64_t> layers = {3, 4, 6, 3};      // blocks per stage
  std::int64_t width = 64;                              // channels of the stem and of the first stage
  std::string batch_norm = "local";                     // local | sync | deferred
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
// What a family starts from when no preset is named (torchvision's), and the keys of [model] that it reads beside name, family and init.
struct FamilyKeys {
  std::string_view family, preset, keys;
  bool has(std::string_view key) const;
};
const std::vector<FamilyKeys>& families();
const FamilyKeys* find_family(std::string_view name);  // null: there is none
// All problems of a model description, each "model.heads = 5 does not divide model.dim = 192" (empty: sound).
std::vector<std::string> problems(const ModelConfig& config);

// Sizes in double, which no product overflows; of sound descriptions only. Beyond these limits no plan can be made.
inline constexpr double most_parameters = 64e9, most_elements = 0x1p49;
double parameter_count(const ModelConfig& config);  // of what is trained
// Elements of the largest tensor that one image makes on its way, from above; not `fused`: with all the weights of an attention.
double widest_tensor(const ModelConfig& config, bool fused);

// The blocks that a pipeline can cut between: encoder or residual blocks; a merging of Swin's counts as one. The embedding (stem) belongs
// to the first, the head to the last.
std::int64_t block_count(const ModelConfig& config);

}  // namespace tessera::models
