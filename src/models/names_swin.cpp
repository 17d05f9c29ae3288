// Swin: torchvision's features are the embedding (0), then stages (odd) and mergings (even); timm's
// layers are stages, each with the merging that comes before it as "downsample". timm before 0.9
// gave that merging to the layer before: settle() tells the two apart.
#include "models/names.h"

namespace tessera::models {
namespace {

struct Row {
  std::string_view torchvision, timm;
};

constexpr Row outer_rows[] = {
    {"features.0.0.weight", "patch_embed.proj.weight"},
    {"features.0.0.bias", "patch_embed.proj.bias"},
    {"features.0.2.weight", "patch_embed.norm.weight"},
    {"features.0.2.bias", "patch_embed.norm.bias"},
    {"norm.weight", "norm.weight"},
    {"norm.bias", "norm.bias"},
    {"head.weight", "head.fc.weight"},  // before timm 0.9: head.weight, which is torchvision's
    {"head.bias", "head.fc.bias"},
};
// After "features.(2 S + 1).N." and "layers.S.blocks.N.".
constexpr Row block_rows[] = {
    {"norm1.weight", "norm1.weight"},
    {"norm1.bias", "norm1.bias"},
    {"attn.relative_position_bias_table", "attn.relative_position_bias_table"},
    {"attn.qkv.weight", "attn.qkv.weight"},
    {"attn.qkv.bias", "attn.qkv.bias"},
    {"attn.proj.weight", "attn.proj.weight"},
    {"attn.proj.bias", "attn.proj.bias"},
    {"norm2.weight", "norm2.weight"},
    {"norm2.bias", "norm2.bias"},
    {"mlp.0.weight", "mlp.fc1.weight"},
    {"mlp.0.bias", "mlp.fc1.bias"},
    {"mlp.3.weight", "mlp.fc2.weight"},
    {"mlp.3.bias", "mlp.fc2.bias"},
};
// After "features.(2 S)." and "layers.S.downsample.", where S is the stage after the merging.
constexpr std::string_view merging_rows[] = {"norm.weight", "norm.bias", "reduction.weight"};
constexpr std::string_view features = "features.", layers = "layers.", blocks = "blocks.",
                           downsample = "downsample.";

bool is_merging(std::string_view rest) {
  for (const std::string_view row : merging_rows)
    if (rest == row) return true;
  return false;
}
std::string feature(std::int64_t number, std::string_view rest) {
  return std::string(features) + std::to_string(number) + "." + std::string(rest);
}

std::optional<std::string> canonical(std::string_view name) {
  for (const Row& row : outer_rows)
    if (name == row.torchvision || name == row.timm) return std::string(row.torchvision);
  if (const auto part = split_number(name, features)) {
    if (part->number % 2 == 0 && part->number > 0 && is_merging(part->rest))
      return std::string(name);
    if (const auto block = split_number(part->rest, ""); block && part->number % 2 == 1)
      for (const Row& row : block_rows)
        if (block->rest == row.torchvision) return std::string(name);
  } else if (const auto stage = split_number(name, layers)) {
    if (stage->rest.starts_with(downsample) && is_merging(stage->rest.substr(downsample.size())))
      return feature(2 * stage->number, stage->rest.substr(downsample.size()));
    if (const auto block = split_number(stage->rest, blocks))
      for (const Row& row : block_rows)
        if (block->rest == row.timm)
          return feature(2 * stage->number + 1,
                         std::to_string(block->number) + "." + std::string(row.torchvision));
  }
  return std::nullopt;
}

std::optional<std::string> timm(std::string_view name) {
  for (const Row& row : outer_rows)
    if (name == row.torchvision) return std::string(row.timm);
  const auto part = split_number(name, features);
  if (!part) return std::nullopt;
  const std::string stage = std::string(layers) + std::to_string(part->number / 2) + ".";
  if (part->number % 2 == 0 && is_merging(part->rest))
    return stage + std::string(downsample) + std::string(part->rest);
  if (const auto block = split_number(part->rest, ""); block && part->number % 2 == 1)
    for (const Row& row : block_rows)
      if (block->rest == row.torchvision)
        return stage + std::string(blocks) + std::to_string(block->number) + "." +
               std::string(row.timm);
  return std::nullopt;
}

std::optional<Layer> layer(std::string_view name) {
  const auto part = split_number(name, features);
  if (!part || part->number % 2 == 0) return std::nullopt;
  const auto block = split_number(part->rest, "");
  return block ? std::optional(Layer{part->number / 2, block->number}) : std::nullopt;
}

std::optional<std::int64_t> entrance(std::string_view name) {
  const auto part = split_number(name, features);
  return part && part->number > 0 && part->number % 2 == 0 ? std::optional(part->number / 2)
                                                           : std::nullopt;
}

// Follow from the window: torchvision's index, and old timm's masks.
bool ignored(std::string_view name) {
  return name.ends_with(".attn.relative_position_index") || name.ends_with(".attn_mask");
}

// A merging before the first stage, features.0, exists nowhere: then all of them belong to the
// stage that follows their number.
void settle(NameMap& names) {
  bool old = false;
  for (const std::string_view row : merging_rows) old = old || names.contains(feature(0, row));
  if (!old) return;
  NameMap moved;
  for (auto& [canonical, name] : names) {
    const auto part = split_number(canonical, features);
    const bool merging = part && part->number % 2 == 0 && is_merging(part->rest);
    moved.emplace(merging ? feature(part->number + 2, part->rest) : canonical, std::move(name));
  }
  names = std::move(moved);
}

}  // namespace

const Names swin_names = {.family = "swin",
                          .canonical = canonical,
                          .timm = timm,
                          .layer = layer,
                          .ignored = ignored,
                          .settle = settle,
                          .head_weight = "head.weight",
                          .head_bias = "head.bias",
                          .final_norm = "norm.",
                          .entrance = entrance};

}  // namespace tessera::models
