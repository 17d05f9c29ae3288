#include <algorithm>
#include <cmath>
#include <numeric>

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

ModelConfig swin(std::string name, std::int64_t image, std::int64_t patch, std::int64_t window, std::int64_t dim,
                 std::vector<std::int64_t> depths, std::vector<std::int64_t> heads, double drop_path, std::int64_t classes) {
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

}  // namespace

bool FamilyKeys::has(std::string_view key) const {
  return key == "name" || key == "family" || key == "init" ||
         (" " + std::string(keys) + " ").find(" " + std::string(key) + " ") != keys.npos;
}

const std::vector<FamilyKeys>& families() {
  static const std::vector<FamilyKeys> all = {
      {"vit", "vit_b_16", "image channels patch dim depth heads mlp classes pool dropout drop_path head_init"},
      {"swin", "swin_t", "image channels patch dim depths heads window mlp_ratio classes drop_path"},
      {"resnet", "resnet50", "image channels block layers width stem classes batch_norm"},
  };
  return all;
}

const FamilyKeys* find_family(std::string_view name) {
  for (const FamilyKeys& row : families())
    if (row.family == name) return &row;
  return nullptr;
}

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
        {"swin_t", swin("swin_t", 224, 4, 7, 96, {2, 2, 6, 2}, {3, 6, 12, 24}, 0.2, 1000), "Swin-T as in torchvision"},
        {"swin_s", swin("swin_s", 224, 4, 7, 96, {2, 2, 18, 2}, {3, 6, 12, 24}, 0.3, 1000), "Swin-S as in torchvision"},
        {"swin_b", swin("swin_b", 224, 4, 7, 128, {2, 2, 18, 2}, {4, 8, 16, 32}, 0.5, 1000), "Swin-B as in torchvision"},
        {"swin_tiny_cifar", swin("swin_tiny_cifar", 32, 2, 4, 96, {2, 6, 2}, {3, 6, 12}, 0.1, 10),
         "three stages, patch 2 and window 4 for 32 px images"},
        {"swin_micro", swin("swin_micro", 32, 4, 4, 32, {2, 2}, {2, 4}, 0.0, 10), "two stages: the tests"},
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

namespace {

std::string text(std::int64_t v) { return std::to_string(v); }
std::string text(const std::vector<std::int64_t>& list) {
  std::vector<std::string> words;
  for (const std::int64_t v : list) words.push_back(text(v));
  return "[" + join(words, ", ") + "]";
}

double as_real(std::int64_t v) { return static_cast<double>(v); }
double token_count(const ModelConfig& m) { return as_real(m.image_h / m.patch) * as_real(m.image_w / m.patch); }

// The keys that a model's size follows from, with their values.
std::string size_words(const ModelConfig& m) {
  const std::string classes = " and model.classes = " + text(m.classes);
  if (m.family == "vit")
    return "model.dim = " + text(m.dim) + ", model.mlp = " + text(m.mlp) + ", model.depth = " + text(m.depth) + classes;
  if (m.family == "swin") return "model.dim = " + text(m.dim) + ", model.depths = " + text(m.depths) + classes;
  return "model.width = " + text(m.width) + ", model.layers = " + text(m.layers) + classes;
}

// The checks of one description; each family adds its own to those that all share.
struct Checks {
  const ModelConfig& c;
  std::vector<std::string> out;

  bool need(bool ok, std::string problem) {
    if (!ok) out.push_back(std::move(problem));
    return ok;
  }
  bool in_range(const char* key, std::int64_t v, std::int64_t most) {
    return need(v >= 1 && v <= most, std::string("model.") + key + " = " + text(v) + " must be between 1 and " + text(most));
  }
  bool each_in_range(const char* key, const std::vector<std::int64_t>& list, std::int64_t most) {
    bool ok = need(!list.empty() && list.size() <= 8, std::string("model.") + key + " = " + text(list) + " must have 1 to 8 stages");
    for (const std::int64_t v : list)
      ok = ok && need(v >= 1 && v <= most, std::string("model.") + key + " = " + text(list) + ": each must be between 1 and " + text(most));
    return ok;
  }

  void vit() {
    const bool height = in_range("image (height)", c.image_h, 16384), width = in_range("image (width)", c.image_w, 16384);
    in_range("depth", c.depth, 1024);
    in_range("mlp", c.mlp, 1 << 20);
    if (in_range("patch", c.patch, 1024) && height && width)
      need(c.image_h % c.patch == 0 && c.image_w % c.patch == 0,
           "model.patch = " + text(c.patch) + " does not divide model.image = [" + text(c.image_h) + ", " + text(c.image_w) + "]");
    const bool dim = in_range("dim", c.dim, 1 << 16), heads = in_range("heads", c.heads, 1 << 12);
    if (dim && heads) need(c.dim % c.heads == 0, "model.heads = " + text(c.heads) + " does not divide model.dim = " + text(c.dim));
    need(c.pool == "class" || c.pool == "mean", "model.pool = \"" + c.pool + "\" is not known; choose class or mean");
    need(c.head_init == "zero" || c.head_init == "normal", "model.head_init = \"" + c.head_init + "\" is not known; choose zero or normal");
    need(c.dropout >= 0 && c.dropout < 1, "model.dropout must be at least 0 and less than 1");
  }

  void swin() {
    const bool height = in_range("image (height)", c.image_h, 16384), width = in_range("image (width)", c.image_w, 16384);
    if (in_range("patch", c.patch, 1024) && height && width)
      need(c.image_h >= c.patch && c.image_w >= c.patch,
           "model.patch = " + text(c.patch) + " is larger than model.image = [" + text(c.image_h) + ", " + text(c.image_w) + "]");
    in_range("window (rows)", c.window_h, 256), in_range("window (columns)", c.window_w, 256);
    const bool dim = in_range("dim", c.dim, 1 << 16), depths = each_in_range("depths", c.depths, 1024);
    const bool ratio = need(c.mlp_ratio > 0 && c.mlp_ratio <= 64, "model.mlp_ratio must be more than 0 and at most 64");
    if (dim && ratio) need(static_cast<double>(c.dim) * c.mlp_ratio >= 1, "model.mlp_ratio x model.dim must be at least 1");
    if (!each_in_range("heads", c.stage_heads, 1 << 12) || !dim || !depths) return;
    if (!need(c.stage_heads.size() == c.depths.size(),
              "model.heads = " + text(c.stage_heads) + " and model.depths = " + text(c.depths) + " must have one number for each stage"))
      return;
    if (!need(c.dim << (c.depths.size() - 1) <= 1 << 16, "model.dim = " + text(c.dim) +
                                                             " doubled from stage to stage must stay at most 65536: model.depths has " +
                                                             std::to_string(c.depths.size())))
      return;
    for (std::size_t s = 0; s < c.depths.size(); ++s)
      need((c.dim << s) % c.stage_heads[s] == 0, "model.heads = " + text(c.stage_heads) + ": " + text(c.stage_heads[s]) + " must divide " +
                                                     text(c.dim << s) + ", the width of stage " + std::to_string(s + 1) +
                                                     " (model.dim = " + text(c.dim) + ")");
  }

  void resnet() {
    in_range("image (height)", c.image_h, 16384), in_range("image (width)", c.image_w, 16384);
    need(c.block == "basic" || c.block == "bottleneck", "model.block = \"" + c.block + "\" is not known; choose basic or bottleneck");
    need(c.stem == "imagenet" || c.stem == "cifar", "model.stem = \"" + c.stem + "\" is not known; choose imagenet or cifar");
    const bool width = in_range("width", c.width, 4096), layers = each_in_range("layers", c.layers, 1024);
    if (width && layers)
      need((c.width << (c.layers.size() - 1)) <= 1 << 16,
           "model.width = " + text(c.width) + " doubled from stage to stage must stay at most 65536");
  }
};

}  // namespace

std::vector<std::string> problems(const ModelConfig& c) {
  Checks checks{c, {}};
  checks.in_range("channels", c.channels, 1024);
  checks.in_range("classes", c.classes, 1 << 20);
  checks.need(c.drop_path >= 0 && c.drop_path < 1, "model.drop_path must be at least 0 and less than 1");
  for (const Preset& row : presets())
    if (row.name == c.name && row.config.family != c.family) {
      checks.need(false, "model.family = \"" + c.family + "\" but model.name = \"" + c.name + "\" is a " + row.config.family);
      return checks.out;
    }
  if (c.family == "vit")
    checks.vit();
  else if (c.family == "swin")
    checks.swin();
  else if (c.family == "resnet")
    checks.resnet();
  else
    checks.need(false, "model.family = \"" + c.family + "\" is not known; choose vit, swin or resnet");
  if (const double count = checks.out.empty() ? parameter_count(c) : 0; count > most_parameters)
    checks.need(false, size_words(c) + " make " + text(std::llround(count / 1e9)) + " billion parameters; at most " +
                           text(std::llround(most_parameters / 1e9)) + " billion are possible");
  return checks.out;
}

double parameter_count(const ModelConfig& m) {
  const double k = as_real(m.classes), channels = as_real(m.channels), p = as_real(m.patch), patch = p * p * channels;
  // Attention and MLP of width c with hidden width f, their norms and biases.
  const auto encoder = [](double c, double f) { return 4 * c * c + 2 * c * f + 9 * c + f; };
  double n = 0;
  if (m.family == "vit") {
    const double c = as_real(m.dim), first = m.pool == "class" ? 1 : 0;
    return c * (patch + 1 + first + token_count(m) + first + 2) + as_real(m.depth) * encoder(c, as_real(m.mlp)) + k * (c + 1);
  }
  if (m.family == "swin") {
    const double offsets = (2 * as_real(m.window_h) - 1) * (2 * as_real(m.window_w) - 1);
    n = as_real(m.dim) * (patch + 3);
    double c = 0;
    for (std::size_t s = 0; s < m.depths.size(); ++s) {
      c = as_real(m.dim << s);
      n += as_real(m.depths[s]) * (encoder(c, std::floor(c * m.mlp_ratio)) + offsets * as_real(m.stage_heads[s]));
      if (s + 1 < m.depths.size()) n += 8 * c * c + 8 * c;  // the merging behind it
    }
    return n + 2 * c + k * (c + 1);
  }
  const bool bottleneck = m.block == "bottleneck";
  double in = as_real(m.width), taps = m.stem == "cifar" ? 9 : 49;
  n = in * (taps * channels + 2);
  for (std::size_t s = 0; s < m.layers.size(); ++s)
    for (std::int64_t i = 0; i < m.layers[s]; ++i) {
      const double c = as_real(m.width << s), out = bottleneck ? 4 * c : c;
      n += bottleneck ? c * (in + 9 * c + out) + 4 * c + 2 * out : 9 * c * (in + c) + 4 * c;
      if ((s > 0 && i == 0) || in != out) n += out * (in + 2);
      in = out;
    }
  return n + k * (in + 1);
}

double widest_tensor(const ModelConfig& m, bool fused) {
  const double pixels = as_real(m.image_h) * as_real(m.image_w);
  double widest = std::max(pixels * as_real(m.channels), as_real(m.classes));
  if (m.family == "vit") {
    widest = std::max(widest, (token_count(m) + 1) * std::max(3 * as_real(m.dim), as_real(m.mlp)));
    return fused ? widest : std::max(widest, as_real(m.heads) * (token_count(m) + 1) * (token_count(m) + 1));
  }
  if (m.family == "resnet") {  // what a stage doubles in channels it loses twice in pixels
    const double area = m.stem == "cifar" ? pixels : pixels / 4 + 1;
    return std::max({widest, 4 * area * as_real(m.width), 4 * as_real(m.width << (m.layers.size() - 1))});
  }
  // Every stage has half the rows and columns, padded to whole windows, of which each token sees one.
  double rows = as_real(m.image_h / m.patch), columns = as_real(m.image_w / m.patch);
  const double window = as_real(m.window_h) * as_real(m.window_w);
  for (std::size_t s = 0; s < m.depths.size(); ++s, rows = std::ceil(rows / 2), columns = std::ceil(columns / 2)) {
    const double c = as_real(m.dim << s), seen = (rows + as_real(m.window_h)) * (columns + as_real(m.window_w));
    widest = std::max(widest, seen * std::max({3 * c, c * m.mlp_ratio, fused ? 0 : as_real(m.stage_heads[s]) * window}));
  }
  return widest;
}

std::int64_t block_count(const ModelConfig& c) {
  const auto sum = [](const std::vector<std::int64_t>& list) { return std::accumulate(list.begin(), list.end(), std::int64_t{0}); };
  if (c.family == "swin") return sum(c.depths) + static_cast<std::int64_t>(c.depths.size()) - 1;
  return c.family == "resnet" ? sum(c.layers) : c.depth;
}

}  // namespace tessera::models
