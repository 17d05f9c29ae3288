// The residual networks' description: keys, presets, checks and sizes.
#include <algorithm>
#include <cmath>

#include "models/description/family.h"

namespace tessera::models {
namespace {

ModelConfig resnet_config(std::string name, std::string block, std::vector<std::int64_t> layers) {
  ModelConfig c;
  c.family = "resnet";
  c.block = std::move(block);
  c.layers = std::move(layers);
  if (name.ends_with("_cifar")) {
    c.stem = "cifar";
    c.image_h = c.image_w = 32;
    c.classes = 10;
  }
  c.name = std::move(name);
  return c;
}

std::vector<Preset> resnet_presets() {
  std::vector<Preset> rows = {
      {"resnet18", resnet_config("resnet18", "basic", {2, 2, 2, 2}), "ResNet-18 as in torchvision"},
      {"resnet34", resnet_config("resnet34", "basic", {3, 4, 6, 3}), "ResNet-34 as in torchvision"},
      {"resnet50", resnet_config("resnet50", "bottleneck", {3, 4, 6, 3}),
       "ResNet-50 as in torchvision"},
      {"resnet101", resnet_config("resnet101", "bottleneck", {3, 4, 23, 3}),
       "ResNet-101 as in torchvision"},
      {"resnet152", resnet_config("resnet152", "bottleneck", {3, 8, 36, 3}),
       "ResNet-152 as in torchvision"},
      {"resnet18_cifar", resnet_config("resnet18_cifar", "basic", {2, 2, 2, 2}),
       "ResNet-18 with a 3x3 stem and no max-pool, for 32 px images"},
      {"resnet50_cifar", resnet_config("resnet50_cifar", "bottleneck", {3, 4, 6, 3}),
       "ResNet-50 with a 3x3 stem and no max-pool, for 32 px images"},
      {"resnet_micro_cifar", resnet_config("resnet_micro_cifar", "basic", {1, 1, 1}),
       "0.1 M parameters: the tests"},
  };
  for (Preset& row : rows)
    if (row.name == "resnet_micro_cifar") row.config.width = 16;
  return rows;
}

void check_resnet(Checks& k) {
  const ModelConfig& c = k.c;
  k.image_in_range();
  k.need(c.block == "basic" || c.block == "bottleneck",
         "model.block = \"" + c.block + "\" is not known; choose basic or bottleneck");
  k.need(c.stem == "imagenet" || c.stem == "cifar",
         "model.stem = \"" + c.stem + "\" is not known; choose imagenet or cifar");
  const bool width = k.in_range("width", c.width, 4096),
             layers = k.each_in_range("layers", c.layers, 1024);
  if (width && layers)
    k.need(
        (c.width << (c.layers.size() - 1)) <= 1 << 16,
        "model.width = " + text(c.width) + " doubled from stage to stage must stay at most 65536");
}

double resnet_parameter_count(const ModelConfig& m) {
  const bool bottleneck = m.block == "bottleneck";
  double in = as_real(m.width);
  const double taps = m.stem == "cifar" ? 9 : 49;
  double n = in * (taps * as_real(m.channels) + 2);
  for (std::size_t s = 0; s < m.layers.size(); ++s)
    for (std::int64_t i = 0; i < m.layers[s]; ++i) {
      const double c = as_real(m.width << s), out = bottleneck ? 4 * c : c;
      n += bottleneck ? c * (in + 9 * c + out) + 4 * c + 2 * out : 9 * c * (in + c) + 4 * c;
      if ((s > 0 && i == 0) || in != out) n += out * (in + 2);
      in = out;
    }
  return n + as_real(m.classes) * (in + 1);
}

// A stage doubles the channels and quarters the pixels, so the first stage has the widest images.
double resnet_widest(const ModelConfig& m, bool) {
  const double pixels = as_real(m.image_h) * as_real(m.image_w);
  const double area = m.stem == "cifar" ? pixels : pixels / 4 + 1;
  return std::max(4 * area * as_real(m.width), 4 * as_real(m.width << (m.layers.size() - 1)));
}

std::string resnet_size(const ModelConfig& m) {
  return "model.width = " + text(m.width) + ", model.layers = " + text(m.layers);
}

std::vector<std::int64_t> resnet_depths(const ModelConfig& m) { return m.layers; }

// The channels between the convolutions of a block; the first stage has the fewest, the others are
// multiples.
std::vector<Share> resnet_shares(const ModelConfig& m) {
  return {{{"model.width"},
           m.width,
           "model.width = " + text(m.width) + ": layer1.0.conv1 has " + text(m.width) +
               " output channels, and the tp ranks share out the channels inside a block"}};
}

}  // namespace

const Family resnet_family = {
    .name = "resnet",
    .preset = "resnet50",
    .keys = "image channels block layers width stem classes batch_norm",
    .depth_key = "layers",
    .presets = resnet_presets,
    .check = check_resnet,
    .parameter_count = resnet_parameter_count,
    .widest_tensor = resnet_widest,
    .size = resnet_size,
    .depths = resnet_depths,
    .shares = resnet_shares,
    .relu = true,
};

}  // namespace tessera::models
