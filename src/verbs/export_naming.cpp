#include "verbs/export_naming.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/build_info.h"
#include "base/check.h"
#include "config/reader.h"
#include "input/augment.h"

namespace tessera::run {
namespace {

using models::ModelConfig;
using nlohmann::json;
using nlohmann::ordered_json;

// How an image is prepared, as predict does it.
struct Preparation {
  std::vector<double> mean, deviation;
  int resize = 0;  // of the shorter side, before the crop
  bool bicubic = false, squash = false;
};
Preparation preparation_of(const OpenedWeights& w) {
  config::Config config = photographs_for(w.model);
  follow_preprocess(w.preprocess, w.from.string(), config);
  const data::AugmentOptions options = augment_options(config);
  const auto channels = static_cast<std::size_t>(w.model.channels);
  const auto per_channel = [&](std::vector<double> list) {
    if (list.size() == 1) list.resize(channels, list[0]);
    return list;
  };
  const data::Normalisation statistics = normalisation(config);
  const int side = static_cast<int>(std::min(w.model.image_h, w.model.image_w));
  return {.mean = per_channel(statistics.mean),
          .deviation = per_channel(statistics.deviation),
          .resize = options.eval_resize > 0 ? options.eval_resize : side,
          .bicubic = options.filter == data::Filter::bicubic,
          .squash = options.eval_squash};
}

// timm's crop_pct of which it makes this size again: floor(side / crop_pct).
double crop_fraction(int side, int resize) {
  double fraction = static_cast<double>(side) / resize;
  while (static_cast<int>(std::floor(side / fraction)) < resize)
    fraction = std::nextafter(fraction, 0);
  return fraction;
}

// timm and torchvision make the width of an MLP of this ratio; true where that is ours.
bool ratio_is_exact(std::int64_t dim, double ratio, std::int64_t width) {
  return static_cast<std::int64_t>(static_cast<double>(dim) * ratio) == width;
}

ordered_json image_size(const ModelConfig& m) {
  return m.image_h == m.image_w ? ordered_json(m.image_h) : ordered_json({m.image_h, m.image_w});
}

std::vector<std::string> swin_problems(const ModelConfig& m, const std::string& naming) {
  std::vector<std::string> out;
  if (naming == "torchvision") return out;  // which our Swin is written after
  if (m.image_h % m.patch != 0 || m.image_w % m.patch != 0)
    out.push_back("the image is no multiple of the patch, and is cut off here but padded there");
  if (naming == "hf" && m.window_h != m.window_w) out.push_back("its windows are square");
  std::int64_t h = m.image_h / m.patch, w = m.image_w / m.patch;
  for (std::size_t s = 0; s < m.depths.size(); ++s, h = (h + 1) / 2, w = (w + 1) / 2) {
    if (h < m.window_h || w < m.window_w)
      out.push_back(fmt::format(
          "stage {} has {} x {} tokens, fewer than a window, which it shrinks", s, h, w));
    else if (naming == "timm" && (h % m.window_h != 0 || w % m.window_w != 0))
      out.push_back(
          fmt::format("the {} x {} tokens of stage {} are no multiple of a window, and it shifts "
                      "before it pads",
                      h, w, s));
    else if (naming == "hf" && (h == m.window_h) != (w == m.window_w))
      out.push_back(
          fmt::format("stage {} of {} x {} tokens is shifted in one direction only", s, h, w));
  }
  return out;
}

std::vector<std::string> resnet_problems(const ModelConfig& m, const std::string& naming) {
  std::vector<std::string> out;
  if (m.stem != "imagenet")
    out.push_back("model.stem = \"cifar\": its stem is the 7x7 convolution with a pooling");
  if (naming != "hf" && m.width != 64)
    out.push_back(fmt::format("model.width = {}: its first stage has 64 channels", m.width));
  if (naming != "hf" && m.layers.size() != 4)
    out.push_back(fmt::format("{} stages: it has 4", m.layers.size()));
  return out;
}

std::vector<std::string> vit_problems(const ModelConfig& m, const std::string& naming) {
  std::vector<std::string> out;
  if (naming != "timm" && m.pool != "class")
    out.push_back("model.pool = \"mean\": its classifier reads the class token");
  if (naming == "torchvision" && m.image_h != m.image_w) out.push_back("its images are square");
  if (naming == "timm" &&
      !ratio_is_exact(m.dim, static_cast<double>(m.mlp) / static_cast<double>(m.dim), m.mlp))
    out.push_back(fmt::format("model.mlp = {} is no ratio of model.dim = {} that it can compute",
                              m.mlp, m.dim));
  return out;
}

ordered_json labels_of(const OpenedWeights& w) {
  ordered_json labels = ordered_json::object(), ids = ordered_json::object();
  for (std::size_t i = 0; i < w.classes.size(); ++i) {
    labels[std::to_string(i)] = w.classes[i];
    ids[w.classes[i]] = i;
  }
  return {{"num_labels", w.model.classes}, {"id2label", labels}, {"label2id", ids}};
}

ordered_json torchvision_vit(const ModelConfig& m) {
  return {{"class", "VisionTransformer"},
          {"args",
           {{"image_size", m.image_h},
            {"patch_size", m.patch},
            {"num_layers", m.depth},
            {"num_heads", m.heads},
            {"hidden_dim", m.dim},
            {"mlp_dim", m.mlp},
            {"num_classes", m.classes}}}};
}
ordered_json torchvision_swin(const ModelConfig& m) {
  return {{"class", "SwinTransformer"},
          {"args",
           {{"patch_size", {m.patch, m.patch}},
            {"embed_dim", m.dim},
            {"depths", m.depths},
            {"num_heads", m.stage_heads},
            {"window_size", {m.window_h, m.window_w}},
            {"mlp_ratio", m.mlp_ratio},
            {"num_classes", m.classes}}}};
}
ordered_json torchvision_resnet(const ModelConfig& m) {
  return {{"class", "ResNet"},
          {"block", m.block == "basic" ? "BasicBlock" : "Bottleneck"},
          {"args", {{"layers", m.layers}, {"num_classes", m.classes}}}};
}

// timm: the architecture that its arguments then change.
ordered_json timm_vit(const ModelConfig& m) {
  return {{"architecture", "vit_base_patch16_224"},
          {"model_args",
           {{"img_size", {m.image_h, m.image_w}},
            {"patch_size", m.patch},
            {"in_chans", m.channels},
            {"embed_dim", m.dim},
            {"depth", m.depth},
            {"num_heads", m.heads},
            {"mlp_ratio", static_cast<double>(m.mlp) / static_cast<double>(m.dim)},
            {"class_token", m.pool == "class"},
            {"global_pool", m.pool == "class" ? "token" : "avg"},
            {"fc_norm", false}}}};
}
ordered_json timm_swin(const ModelConfig& m) {
  return {{"architecture", "swin_tiny_patch4_window7_224"},
          {"model_args",
           {{"img_size", {m.image_h, m.image_w}},
            {"patch_size", m.patch},
            {"in_chans", m.channels},
            {"embed_dim", m.dim},
            {"depths", m.depths},
            {"num_heads", m.stage_heads},
            {"window_size", {m.window_h, m.window_w}},
            {"mlp_ratio", m.mlp_ratio}}}};
}
ordered_json timm_resnet(const ModelConfig& m) {
  return {{"architecture", m.block == "basic" ? "resnet18" : "resnet50"},
          {"model_args", {{"layers", m.layers}, {"in_chans", m.channels}}}};
}

ordered_json hf_vit(const ModelConfig& m) {
  return {{"architectures", {"ViTForImageClassification"}},
          {"model_type", "vit"},
          {"image_size", image_size(m)},
          {"patch_size", m.patch},
          {"hidden_size", m.dim},
          {"num_hidden_layers", m.depth},
          {"num_attention_heads", m.heads},
          {"intermediate_size", m.mlp},
          {"hidden_act", "gelu"},
          {"qkv_bias", true},
          {"layer_norm_eps", 1e-6}};
}
ordered_json hf_swin(const ModelConfig& m) {
  return {{"architectures", {"SwinForImageClassification"}},
          {"model_type", "swin"},
          {"image_size", image_size(m)},
          {"patch_size", m.patch},
          {"embed_dim", m.dim},
          {"depths", m.depths},
          {"num_heads", m.stage_heads},
          {"window_size", m.window_h},
          {"mlp_ratio", m.mlp_ratio},
          {"hidden_act", "gelu"},
          {"qkv_bias", true},
          {"layer_norm_eps", 1e-5}};
}
ordered_json hf_resnet(const ModelConfig& m) {
  std::vector<std::int64_t> widths;
  for (std::size_t s = 0; s < m.layers.size(); ++s)
    widths.push_back((m.width << s) * (m.block == "basic" ? 1 : 4));
  return {{"architectures", {"ResNetForImageClassification"}},
          {"model_type", "resnet"},
          {"embedding_size", m.width},
          {"hidden_sizes", widths},
          {"depths", m.layers},
          {"layer_type", m.block},
          {"hidden_act", "relu"},
          {"downsample_in_first_stage", false},
          {"downsample_in_bottleneck", false}};
}

// A family in the words of other libraries. A family without a row is exported with
// --naming tessera or --onnx only.
struct Words {
  std::string_view family;
  // Why the library of this naming cannot load the model; empty: it can.
  std::vector<std::string> (*problems)(const ModelConfig& m, const std::string& naming);
  ordered_json (*torchvision)(const ModelConfig& m);
  ordered_json (*timm)(const ModelConfig& m);
  ordered_json (*hf)(const ModelConfig& m);
  const char *first_layer, *classifier;  // timm's names
  bool one_image_size;                   // the weights fit images of their own size only
};
constexpr std::array all_words{Words{.family = "vit",
                                     .problems = vit_problems,
                                     .torchvision = torchvision_vit,
                                     .timm = timm_vit,
                                     .hf = hf_vit,
                                     .first_layer = "patch_embed.proj",
                                     .classifier = "head",
                                     .one_image_size = true},
                               Words{.family = "swin",
                                     .problems = swin_problems,
                                     .torchvision = torchvision_swin,
                                     .timm = timm_swin,
                                     .hf = hf_swin,
                                     .first_layer = "patch_embed.proj",
                                     .classifier = "head.fc",
                                     .one_image_size = true},
                               Words{.family = "resnet",
                                     .problems = resnet_problems,
                                     .torchvision = torchvision_resnet,
                                     .timm = timm_resnet,
                                     .hf = hf_resnet,
                                     .first_layer = "conv1",
                                     .classifier = "fc",
                                     .one_image_size = false}};

const Words* find_words(const ModelConfig& m) {
  for (const Words& words : all_words)
    if (words.family == m.family) return &words;
  return nullptr;
}
// The row of a model that refuse_unsayable() let pass.
const Words& words_of(const ModelConfig& m) {
  const Words* words = find_words(m);
  CHECK(words, "no words of other libraries for the family " + m.family);
  return *words;
}

ordered_json for_timm(const OpenedWeights& w) {
  const ModelConfig& m = w.model;
  const Words& words = words_of(m);
  const Preparation prepared = preparation_of(w);
  const int side = static_cast<int>(std::min(m.image_h, m.image_w));
  ordered_json out = words.timm(m);
  out["num_classes"] = m.classes;
  out["label_names"] = w.classes;
  out["pretrained_cfg"] = {
      {"num_classes", m.classes},
      {"input_size", {m.channels, m.image_h, m.image_w}},
      {"fixed_input_size", words.one_image_size},
      {"interpolation", prepared.bicubic ? "bicubic" : "bilinear"},
      {"crop_pct", prepared.squash ? 1.0 : crop_fraction(side, prepared.resize)},
      {"crop_mode", prepared.squash ? "squash" : "center"},
      {"mean", prepared.mean},
      {"std", prepared.deviation},
      {"first_conv", words.first_layer},
      {"classifier", words.classifier}};
  return out;
}

ordered_json for_hf(const OpenedWeights& w) {
  ordered_json out = words_of(w.model).hf(w.model);
  out["num_channels"] = w.model.channels;
  out.update(labels_of(w));
  out.erase("num_labels");  // it follows from the labels there
  return out;
}

}  // namespace

Naming naming_of(const std::string& name) {
  return name == "timm" ? Naming::timm : name == "hf" ? Naming::hf : Naming::torchvision;
}

void refuse_unsayable(const OpenedWeights& w, const std::string& naming) {
  if (naming == "tessera") return;
  const ModelConfig& m = w.model;
  const Words* words = find_words(m);
  std::vector<std::string> problems =
      words ? words->problems(m, naming)
            : std::vector<std::string>{"model.family = \"" + m.family +
                                       "\": it is not among the families of this naming"};
  if (naming == "torchvision" && m.channels != 3)
    problems.push_back(fmt::format("model.channels = {}: its images have 3", m.channels));
  if (naming == "hf") {
    std::vector<std::string> names = w.classes;
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end())
      problems.push_back("two classes have one name, and label2id has it once");
  }
  if (problems.empty()) return;
  const std::string library = naming == "hf" ? "Hugging Face's transformers" : naming;
  Error error(
      ErrorKind::usage, fmt::format("{} cannot load this {}: {}", library, m.family, problems[0]),
      "--naming " + naming, "export it with --naming tessera or --onnx, or with another naming");
  for (std::size_t i = 1; i < problems.size(); ++i) error.and_also(problems[i]);
  throw error;
}

ordered_json export_config(const OpenedWeights& w, const std::string& naming,
                           const std::string& dtype) {
  const ModelConfig& m = w.model;
  ordered_json out;
  if (naming == "timm") {
    out = for_timm(w);
  } else if (naming == "hf") {
    out = for_hf(w);
  } else {
    out = {{"model_type", m.family}, {"num_channels", m.channels}, {"image_size", image_size(m)}};
    out.update(labels_of(w));
    if (naming == "torchvision") out["torchvision"] = words_of(m).torchvision(m);
  }
  out["naming"] = naming;
  out["torch_dtype"] = dtype == "f64" ? "float64" : "float32";
  out["tessera"] = {{"model", ordered_json::parse(config::model_to_json(m))},
                    {"version", version()}};
  return out;
}

ordered_json export_preprocessor(const OpenedWeights& w) {
  const Preparation prepared = preparation_of(w);
  const ordered_json size = {{"height", w.model.image_h}, {"width", w.model.image_w}};
  ordered_json out;
  if (prepared.squash)
    out = {{"image_processor_type", "ViTImageProcessor"}, {"do_resize", true}, {"size", size}};
  else
    out = {{"image_processor_type", "CLIPImageProcessor"},
           {"do_resize", true},
           {"size", {{"shortest_edge", prepared.resize}}},
           {"do_center_crop", true},
           {"crop_size", size}};
  out.update({{"resample", prepared.bicubic ? 3 : 2},
              {"do_rescale", true},
              {"rescale_factor", 1.0 / 255.0},
              {"do_normalize", true},
              {"do_convert_rgb", w.model.channels == 3},
              {"image_mean", prepared.mean},
              {"image_std", prepared.deviation}});
  return out;
}

}  // namespace tessera::run
