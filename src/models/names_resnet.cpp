// ResNet: timm kept torchvision's names, so there is nothing to translate; what a file holds
// besides is the count of batches seen.
#include "models/names.h"

namespace tessera::models {
namespace {

constexpr std::string_view norm_rows[] = {"weight", "bias", "running_mean", "running_var"};

bool is_conv(std::string_view rest, std::string_view prefix) {
  return rest == std::string(prefix) + ".weight";
}
bool is_norm(std::string_view rest, std::string_view prefix) {
  for (const std::string_view row : norm_rows)
    if (rest == std::string(prefix) + "." + std::string(row)) return true;
  return false;
}

// "layer3.12.conv2.weight" -> stage 2, block 12, "conv2.weight"
struct Place {
  Layer layer;
  std::string_view rest;
};
std::optional<Place> place(std::string_view name) {
  const auto stage = split_number(name, "layer");
  if (!stage || stage->number < 1) return std::nullopt;
  const auto block = split_number(stage->rest, "");
  return block ? std::optional(Place{{stage->number - 1, block->number}, block->rest})
               : std::nullopt;
}

std::optional<std::string> canonical(std::string_view name) {
  bool known =
      name == "fc.weight" || name == "fc.bias" || is_conv(name, "conv1") || is_norm(name, "bn1");
  if (const auto at = place(name)) {
    known = is_conv(at->rest, "downsample.0") || is_norm(at->rest, "downsample.1");
    for (const char* number : {"1", "2", "3"})
      known = known || is_conv(at->rest, std::string("conv") + number) ||
              is_norm(at->rest, std::string("bn") + number);
  }
  return known ? std::optional(std::string(name)) : std::nullopt;
}

std::optional<std::string> timm(std::string_view canonical_name) {
  return canonical(canonical_name);
}

std::optional<Layer> layer(std::string_view name) {
  const auto at = place(name);
  return at ? std::optional(at->layer) : std::nullopt;
}

bool ignored(std::string_view name) { return name.ends_with(".num_batches_tracked"); }

}  // namespace

const Names resnet_names = {.family = "resnet",
                            .canonical = canonical,
                            .timm = timm,
                            .layer = layer,
                            .ignored = ignored,
                            .settle = nullptr,
                            .head_weight = "fc.weight",
                            .head_bias = "fc.bias"};

}  // namespace tessera::models
