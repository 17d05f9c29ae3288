#include "base/check.h"
#include "models/config.h"

namespace tessera::models {
namespace {

ModelConfig vit(std::string name, std::int64_t image, std::int64_t patch, std::int64_t dim, std::int64_t depth, std::int64_t heads,
                std::int64_t mlp, std::int64_t classes) {
  ModelConfig c;
  c.name = std::move(name);
  c.image_h = c.image_w = image;
  c.patch = patch;
  c.dim = dim;
  c.depth = depth;
  c.heads = heads;
  c.mlp = mlp;
  c.classes = classes;
  return c;
}

ModelConfig resnet(std::string name, std::string block, std::vector<std::int64_t> layers) {
  ModelConfig c;
  c.family = "resnet";
  c.block = std::move(block);
  c.layers = std::move(layers);
  if (name.ends_with("_cifar")) c.stem = "cifar", c.image_h = c.image_w = 32, c.classes = 10;
  c.name = std::move(name);
  return c;
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = [] {
    std::vector<Preset> rows = {
        {"vit_b_16", vit("vit_b_16", 224, 16, 768, 12, 12, 3072, 1000), "ViT-B/16 as in torchvision"},
        {"vit_b_32", vit("vit_b_32", 224, 32, 768, 12, 12, 3072, 1000), "ViT-B/32 as in torchvision"},
        {"vit_l_16", vit("vit_l_16", 224, 16, 1024, 24, 16, 4096, 1000), "ViT-L/16 as in torchvision"},
        {"vit_l_32", vit("vit_l_32", 224, 32, 1024, 24, 16, 4096, 1000), "ViT-L/32 as in torchvision"},
        {"vit_h_14", vit("vit_h_14", 224, 14, 1280, 32, 16, 5120, 1000), "ViT-H/14 as in torchvision"},
        {"vit_tiny_cifar", vit("vit_tiny_cifar", 32, 4, 192, 12, 3, 768, 10), "ViT-Ti with patch 4 for 32 px images"},
        {"vit_small_cifar", vit("vit_small_cifar", 32, 4, 384, 7, 6, 768, 10), "8 M parameters, mean pooling, for 32 px images"},
        {"vit_micro", vit("vit_micro", 32, 8, 64, 4, 2, 128, 10), "0.1 M parameters: the demo and the tests"},
        {"resnet18", resnet("resnet18", "basic", {2, 2, 2, 2}), "ResNet-18 as in torchvision"},
        {"resnet34", resnet("resnet34", "basic", {3, 4, 6, 3}), "ResNet-34 as in torchvision"},
        {"resnet50", resnet("resnet50", "bottleneck", {3, 4, 6, 3}), "ResNet-50 as in torchvision"},
        {"resnet101", resnet("resnet101", "bottleneck", {3, 4, 23, 3}), "ResNet-101 as in torchvision"},
        {"resnet152", resnet("resnet152", "bottleneck", {3, 8, 36, 3}), "ResNet-152 as in torchvision"},
        {"resnet18_cifar", resnet("resnet18_cifar", "basic", {2, 2, 2, 2}), "ResNet-18 with a 3x3 stem and no max-pool, for 32 px images"},
        {"resnet50_cifar", resnet("resnet50_cifar", "bottleneck", {3, 4, 6, 3}),
         "ResNet-50 with a 3x3 stem and no max-pool, for 32 px images"},
        {"resnet_micro_cifar", resnet("resnet_micro_cifar", "basic", {1, 1, 1}), "0.1 M parameters: the tests"},
    };
    for (Preset& row : rows)
      if (row.name == "vit_small_cifar" || row.name == "vit_micro")
        row.config.pool = "mean";
      else if (row.name == "resnet_micro_cifar")
        row.config.width = 16;
    return rows;
  }();
  return all;
}

const ModelConfig& preset(std::string_view name) {
  std::vector<std::string> names;
  for (const Preset& row : presets()) {
    if (row.name == name) return row.config;
    names.push_back(row.name);
  }
  const std::string near = nearest(name, names);
  throw Error(ErrorKind::usage, "there is no model '" + std::string(name) + "'", "model.name",
              near.empty() ? "choose one of " + join(names, ", ") : "did you mean " + near + "? `tessera models` lists all");
}

std::vector<std::string> problems(const ModelConfig& c) {
  std::vector<std::string> out;
  auto need = [&](bool ok, std::string problem) {
    if (!ok) out.push_back(std::move(problem));
  };
  auto text = [](std::int64_t v) { return std::to_string(v); };
  auto in_range = [&](const char* key, std::int64_t v, std::int64_t most) {
    need(v >= 1 && v <= most, std::string("model.") + key + " = " + text(v) + " must be between 1 and " + text(most));
    return v >= 1 && v <= most;
  };
  need(c.family == "vit" || c.family == "resnet", "model.family = \"" + c.family + "\" is not known; choose vit or resnet");
  const bool image = in_range("image (height)", c.image_h, 16384) & in_range("image (width)", c.image_w, 16384);
  in_range("channels", c.channels, 1024);
  if (c.family == "resnet") {
    in_range("classes", c.classes, 1 << 20);
    in_range("width", c.width, 4096);
    need(c.block == "basic" || c.block == "bottleneck", "model.block = \"" + c.block + "\" is not known; choose basic or bottleneck");
    need(c.stem == "imagenet" || c.stem == "cifar", "model.stem = \"" + c.stem + "\" is not known; choose imagenet or cifar");
    need(!c.layers.empty() && c.layers.size() <= 8,
         "model.layers names " + text(static_cast<std::int64_t>(c.layers.size())) + " stages; 1 to 8 are possible");
    for (const std::int64_t n : c.layers) in_range("layers (blocks of a stage)", n, 1024);
    return out;
  }
  in_range("depth", c.depth, 1024);
  in_range("mlp", c.mlp, 1 << 20);
  in_range("classes", c.classes, 1 << 20);
  if (in_range("patch", c.patch, 1024) && image)
    need(c.image_h % c.patch == 0 && c.image_w % c.patch == 0,
         "model.patch = " + text(c.patch) + " does not divide model.image = [" + text(c.image_h) + ", " + text(c.image_w) + "]");
  if (in_range("dim", c.dim, 1 << 16) & in_range("heads", c.heads, 1 << 12))
    need(c.dim % c.heads == 0, "model.heads = " + text(c.heads) + " does not divide model.dim = " + text(c.dim));
  need(c.pool == "class" || c.pool == "mean", "model.pool = \"" + c.pool + "\" is not known; choose class or mean");
  need(c.head_init == "zero" || c.head_init == "normal", "model.head_init = \"" + c.head_init + "\" is not known; choose zero or normal");
  need(c.dropout >= 0 && c.dropout < 1, "model.dropout must be at least 0 and less than 1");
  need(c.drop_path >= 0 && c.drop_path < 1, "model.drop_path must be at least 0 and less than 1");
  return out;
}

}  // namespace tessera::models
