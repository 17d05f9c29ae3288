// The Swin Transformer's description: keys, presets, checks and sizes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/description/family.h"

namespace tessera::models {
namespace {

ModelConfig swin_config(std::string name, std::int64_t image, std::int64_t patch,
                        std::int64_t window, std::int64_t dim, std::vector<std::int64_t> depths,
                        std::vector<std::int64_t> heads, double drop_path, std::int64_t classes) {
  ModelConfig c;
  c.name = std::move(name);
  c.family = "swin";
  c.image_h = c.image_w = image;
  c.patch = patch;
  c.window_h = c.window_w = window;
  c.dim = dim;
  c.depths = std::move(depths);
  c.stage_heads = std::move(heads);
  c.drop_path = drop_path;
  c.classes = classes;
  return c;
}

std::vector<Preset> swin_presets() {
  return {
      {"swin_t", swin_config("swin_t", 224, 4, 7, 96, {2, 2, 6, 2}, {3, 6, 12, 24}, 0.2, 1000),
       "Swin-T as in torchvision"},
      {"swin_s", swin_config("swin_s", 224, 4, 7, 96, {2, 2, 18, 2}, {3, 6, 12, 24}, 0.3, 1000),
       "Swin-S as in torchvision"},
      {"swin_b", swin_config("swin_b", 224, 4, 7, 128, {2, 2, 18, 2}, {4, 8, 16, 32}, 0.5, 1000),
       "Swin-B as in torchvision"},
      {"swin_tiny_cifar",
       swin_config("swin_tiny_cifar", 32, 2, 4, 96, {2, 6, 2}, {3, 6, 12}, 0.1, 10),
       "three stages, patch 2 and window 4 for 32 px images"},
      {"swin_micro", swin_config("swin_micro", 32, 4, 4, 32, {2, 2}, {2, 4}, 0.0, 10),
       "two stages: the tests"},
  };
}

void check_swin(Checks& k) {
  const ModelConfig& c = k.c;
  const bool image = k.image_in_range();
  if (k.in_range("patch", c.patch, 1024) && image)
    k.need(c.image_h >= c.patch && c.image_w >= c.patch,
           "model.patch = " + text(c.patch) + " is larger than model.image = [" + text(c.image_h) +
               ", " + text(c.image_w) + "]");
  k.in_range("window (rows)", c.window_h, 256);
  k.in_range("window (columns)", c.window_w, 256);
  const bool dim = k.in_range("dim", c.dim, 1 << 16),
             depths = k.each_in_range("depths", c.depths, 1024);
  const bool ratio = k.need(c.mlp_ratio > 0 && c.mlp_ratio <= 64,
                            "model.mlp_ratio must be more than 0 and at most 64");
  if (dim && ratio)
    k.need(static_cast<double>(c.dim) * c.mlp_ratio >= 1,
           "model.mlp_ratio x model.dim must be at least 1");
  if (!k.each_in_range("heads", c.stage_heads, 1 << 12) || !dim || !depths) return;
  if (!k.need(c.stage_heads.size() == c.depths.size(), "model.heads = " + text(c.stage_heads) +
                                                           " and model.depths = " + text(c.depths) +
                                                           " must have one number for each stage"))
    return;
  if (!k.need(c.dim << (c.depths.size() - 1) <= 1 << 16,
              "model.dim = " + text(c.dim) +
                  " doubled from stage to stage must stay at most 65536: model.depths has " +
                  std::to_string(c.depths.size())))
    return;
  for (std::size_t s = 0; s < c.depths.size(); ++s)
    k.need((c.dim << s) % c.stage_heads[s] == 0,
           "model.heads = " + text(c.stage_heads) + ": " + text(c.stage_heads[s]) +
               " must divide " + text(c.dim << s) + ", the width of stage " +
               std::to_string(s + 1) + " (model.dim = " + text(c.dim) + ")");
}

double swin_parameter_count(const ModelConfig& m) {
  const double p = as_real(m.patch), patch = p * p * as_real(m.channels);
  const double offsets = (2 * as_real(m.window_h) - 1) * (2 * as_real(m.window_w) - 1);
  double n = as_real(m.dim) * (patch + 3), c = 0;
  for (std::size_t s = 0; s < m.depths.size(); ++s) {
    c = as_real(m.dim << s);
    const double block = encoder_parameters(c, std::floor(c * m.mlp_ratio));
    n += as_real(m.depths[s]) * (block + offsets * as_real(m.stage_heads[s]));
    if (s + 1 < m.depths.size()) n += 8 * c * c + 8 * c;  // the merging behind the stage
  }
  return n + 2 * c + as_real(m.classes) * (c + 1);
}

// Every stage has half the rows and columns, padded to whole windows, of which each token sees one.
double swin_widest(const ModelConfig& m, bool fused) {
  double rows = as_real(m.image_h / m.patch), columns = as_real(m.image_w / m.patch), widest = 0;
  const double window = as_real(m.window_h) * as_real(m.window_w);
  for (std::size_t s = 0; s < m.depths.size(); ++s) {
    const double c = as_real(m.dim << s);
    const double seen = (rows + as_real(m.window_h)) * (columns + as_real(m.window_w));
    const double scores = fused ? 0 : as_real(m.stage_heads[s]) * window;
    widest = std::max(widest, seen * std::max({3 * c, c * m.mlp_ratio, scores}));
    rows = std::ceil(rows / 2);
    columns = std::ceil(columns / 2);
  }
  return widest;
}

std::string swin_size(const ModelConfig& m) {
  return "model.dim = " + text(m.dim) + ", model.depths = " + text(m.depths);
}

std::vector<std::int64_t> swin_depths(const ModelConfig& m) { return m.depths; }

std::vector<Share> swin_shares(const ModelConfig& m) {
  std::vector<Share> out;
  for (std::size_t s = 0; s < m.stage_heads.size(); ++s) {
    const auto hidden = static_cast<std::int64_t>(static_cast<double>(m.dim << s) * m.mlp_ratio);
    const std::string stage = std::to_string(s + 1);
    out.push_back({{"model.heads"},
                   m.stage_heads[s],
                   "model.heads = " + text(m.stage_heads) + ": stage " + stage + " has " +
                       text(m.stage_heads[s]) + " heads"});
    out.push_back({{"model.mlp_ratio", "model.dim"},
                   hidden,
                   "the hidden width " + text(hidden) + " of the MLPs of stage " + stage +
                       " (model.dim x model.mlp_ratio)"});
  }
  return out;
}

}  // namespace

const Family swin_family = {
    .name = "swin",
    .preset = "swin_t",
    .keys = "image channels patch dim depths heads window mlp_ratio classes drop_path",
    .depth_key = "depths",
    .presets = swin_presets,
    .check = check_swin,
    .parameter_count = swin_parameter_count,
    .widest_tensor = swin_widest,
    .size = swin_size,
    .depths = swin_depths,
    .shares = swin_shares,
    .mergings = true,
    .tokens = true,
};

}  // namespace tessera::models
