// The vision transformer's description: keys, presets, checks and sizes.
#include <algorithm>
#include <cmath>

#include "models/description/family.h"

namespace tessera::models {
namespace {

ModelConfig vit_config(std::string name, std::int64_t image, std::int64_t patch, std::int64_t dim,
                       std::int64_t depth, std::int64_t heads, std::int64_t mlp,
                       std::int64_t classes) {
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

std::vector<Preset> vit_presets() {
  std::vector<Preset> rows = {
      {"vit_b_16", vit_config("vit_b_16", 224, 16, 768, 12, 12, 3072, 1000),
       "ViT-B/16 as in torchvision"},
      {"vit_b_32", vit_config("vit_b_32", 224, 32, 768, 12, 12, 3072, 1000),
       "ViT-B/32 as in torchvision"},
      {"vit_l_16", vit_config("vit_l_16", 224, 16, 1024, 24, 16, 4096, 1000),
       "ViT-L/16 as in torchvision"},
      {"vit_l_32", vit_config("vit_l_32", 224, 32, 1024, 24, 16, 4096, 1000),
       "ViT-L/32 as in torchvision"},
      {"vit_h_14", vit_config("vit_h_14", 224, 14, 1280, 32, 16, 5120, 1000),
       "ViT-H/14 as in torchvision"},
      {"vit_tiny_cifar", vit_config("vit_tiny_cifar", 32, 4, 192, 12, 3, 768, 10),
       "ViT-Ti with patch 4 for 32 px images"},
      {"vit_small_cifar", vit_config("vit_small_cifar", 32, 4, 384, 7, 6, 768, 10),
       "8 M parameters, mean pooling, for 32 px images"},
      {"vit_micro", vit_config("vit_micro", 32, 8, 64, 4, 2, 128, 10),
       "0.1 M parameters: the demo and the tests"},
  };
  for (Preset& row : rows)
    if (row.name == "vit_small_cifar" || row.name == "vit_micro") row.config.pool = "mean";
  return rows;
}

void check_vit(Checks& k) {
  const ModelConfig& c = k.c;
  const bool image = k.image_in_range();
  k.in_range("depth", c.depth, 1024);
  k.in_range("mlp", c.mlp, 1 << 20);
  if (k.in_range("patch", c.patch, 1024) && image)
    k.need(c.image_h % c.patch == 0 && c.image_w % c.patch == 0,
           "model.patch = " + text(c.patch) + " does not divide model.image = [" + text(c.image_h) +
               ", " + text(c.image_w) + "]");
  const bool dim = k.in_range("dim", c.dim, 1 << 16), heads = k.in_range("heads", c.heads, 1 << 12);
  if (dim && heads)
    k.need(c.dim % c.heads == 0,
           "model.heads = " + text(c.heads) + " does not divide model.dim = " + text(c.dim));
  k.need(c.pool == "class" || c.pool == "mean",
         "model.pool = \"" + c.pool + "\" is not known; choose class or mean");
  k.need(c.head_init == "zero" || c.head_init == "normal",
         "model.head_init = \"" + c.head_init + "\" is not known; choose zero or normal");
  k.need(c.dropout >= 0 && c.dropout < 1, "model.dropout must be at least 0 and less than 1");
}

double vit_tokens(const ModelConfig& m) {
  return as_real(m.image_h / m.patch) * as_real(m.image_w / m.patch);
}

double vit_parameter_count(const ModelConfig& m) {
  const double c = as_real(m.dim), p = as_real(m.patch), patch = p * p * as_real(m.channels);
  const double first = m.pool == "class" ? 1 : 0;
  return c * (patch + 1 + first + vit_tokens(m) + first + 2) +
         as_real(m.depth) * encoder_parameters(c, as_real(m.mlp)) + as_real(m.classes) * (c + 1);
}

double vit_widest(const ModelConfig& m, bool fused) {
  const double tokens = vit_tokens(m) + 1;
  const double widest = tokens * std::max(3 * as_real(m.dim), as_real(m.mlp));
  return fused ? widest : std::max(widest, as_real(m.heads) * tokens * tokens);
}

std::string vit_size(const ModelConfig& m) {
  return "model.dim = " + text(m.dim) + ", model.mlp = " + text(m.mlp) +
         ", model.depth = " + text(m.depth);
}

std::vector<std::int64_t> vit_depths(const ModelConfig& m) { return {m.depth}; }

std::vector<Share> vit_shares(const ModelConfig& m) {
  return {{{"model.heads"}, m.heads, "model.heads = " + text(m.heads)},
          {{"model.mlp"}, m.mlp, "model.mlp = " + text(m.mlp)}};
}

}  // namespace

const Family vit_family = {
    .name = "vit",
    .preset = "vit_b_16",
    .keys = "image channels patch dim depth heads mlp classes pool dropout drop_path head_init",
    .depth_key = "depth",
    .presets = vit_presets,
    .check = check_vit,
    .parameter_count = vit_parameter_count,
    .widest_tensor = vit_widest,
    .size = vit_size,
    .depths = vit_depths,
    .shares = vit_shares,
    .tokens = true,
    .attends_to_all = true,
    .heads_in_shapes = false,
};

}  // namespace tessera::models
