#include "checkpoint/weights_recognise.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "base/check.h"
#include "checkpoint/weights.h"
#include "models/weights.h"

namespace tessera::run {
namespace {

using models::ModelConfig;
using nlohmann::json;

// The tensors of one family: by canonical name, parts together.
class Shapes {
 public:
  Shapes(const files::Safetensors& file, const std::string& family) : family_(family) {
    for (const auto& [name, tensor] : file.tensors()) {
      if (models::is_ignored(family, name)) continue;
      const auto found = models::name_part(family, name);
      if (!found) {
        ++unknown_;
        continue;
      }
      names_[found->canonical] = name;
      std::vector<std::int64_t> shape = tensor.shape;
      if (found->parts > 1 && !shape.empty()) shape[0] *= found->parts;
      shapes_[found->canonical] = std::move(shape);
      ++known_;
    }
    models::NameMap settled = names_;
    models::settle_names(family, settled);
    for (const auto& [canonical, name] : settled)
      if (const auto layer = models::layer_of(family, canonical))
        depths_[layer->stage].insert(layer->number);
  }
  std::size_t known() const { return known_; }
  std::size_t unknown() const { return unknown_; }
  bool has(const std::string& name) const { return shapes_.contains(name); }
  // One dim of a tensor; 0 where there is none.
  std::int64_t dim(const std::string& name, std::size_t at) const {
    const auto found = shapes_.find(name);
    return found != shapes_.end() && at < found->second.size() ? found->second[at] : 0;
  }
  std::vector<std::int64_t> depths() const {
    std::vector<std::int64_t> out;
    for (const auto& [stage, layers] : depths_)
      out.push_back(static_cast<std::int64_t>(layers.size()));
    return out;
  }

 private:
  std::string family_;
  std::size_t known_ = 0, unknown_ = 0;
  models::NameMap names_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;
  std::map<std::int64_t, std::set<std::int64_t>> depths_;
};

std::int64_t whole_number(const json& from, const char* key) {
  if (!from.is_object() || !from.contains(key)) return 0;
  const json& value = from[key];
  if (value.is_number_integer() && value > 0 && value < (1 << 20)) return value.get<std::int64_t>();
  return 0;
}

const json& member(const json& from, const char* key) {
  static const json nothing = json::object();
  return from.is_object() && from.contains(key) ? from[key] : nothing;
}

std::int64_t root(std::int64_t square) {
  return std::llround(std::sqrt(static_cast<double>(square)));
}

// Height and width as config.json says them: a number, [h, w], or timm's [c, h, w].
std::pair<std::int64_t, std::int64_t> said_image(const Beside& said) {
  for (const json& value :
       {member(said.config, "image_size"), member(member(said.config, "model_args"), "img_size"),
        member(member(said.config, "pretrained_cfg"), "input_size")}) {
    if (value.is_number_integer() && value > 0 && value <= 16384)
      return {value.get<std::int64_t>(), value.get<std::int64_t>()};
    if (!value.is_array() || value.size() < 2) continue;
    const json &h = value[value.size() - 2], &w = value[value.size() - 1];
    if (h.is_number_integer() && w.is_number_integer() && h > 0 && w > 0 && h <= 16384 &&
        w <= 16384)
      return {h.get<std::int64_t>(), w.get<std::int64_t>()};
  }
  return {0, 0};
}

void take_image(const Beside& said, std::int64_t assumed, ModelConfig& m,
                std::vector<std::string>& notes) {
  const auto [h, w] = said_image(said);
  m.image_h = h;
  m.image_w = w;
  if (h > 0) return;
  m.image_h = m.image_w = assumed;
  notes.push_back(
      fmt::format("the file does not say the size of its images: assumed {} x {} "
                  "(--set model.image=N with --model says another)",
                  assumed, assumed));
}

void note_epsilon(const Beside& said, double ours, std::vector<std::string>& notes) {
  const json& eps = member(said.config, "layer_norm_eps");
  if (eps.is_number() && eps.get<double>() != ours)
    notes.push_back(fmt::format(
        "the norms of these weights add {} to a variance, ours {}: logits differ a little",
        eps.dump(), ours));
}

void recognise_vit(const Shapes& shapes, const Beside& said, ModelConfig& m,
                   std::vector<std::string>& notes) {
  m.dim = shapes.dim("conv_proj.weight", 0);
  m.channels = shapes.dim("conv_proj.weight", 1);
  m.patch = shapes.dim("conv_proj.weight", 2);
  m.depth = shapes.depths().empty() ? 0 : shapes.depths()[0];
  m.mlp = shapes.dim("encoder.layers.encoder_layer_0.mlp.0.weight", 0);
  m.classes = shapes.dim("heads.head.weight", 0);
  m.pool = shapes.has("class_token") ? "class" : "mean";
  const std::int64_t patches = shapes.dim("encoder.pos_embedding", 1) - (m.pool == "class" ? 1 : 0);
  const auto [h, w] = said_image(said);
  m.image_h = h;
  m.image_w = w;
  if (m.patch > 0 && (h / m.patch) * (w / m.patch) != patches)
    m.image_h = m.image_w = root(patches) * m.patch;
  m.heads = whole_number(said.config, "num_attention_heads");
  if (m.heads == 0) m.heads = whole_number(member(said.config, "model_args"), "num_heads");
  for (const models::Preset& preset : models::presets())
    if (m.heads == 0 && preset.config.family == "vit" && preset.config.dim == m.dim &&
        preset.config.depth == m.depth)
      m.heads = preset.config.heads;
  if (m.heads == 0 && m.dim > 0) {
    m.heads = std::max<std::int64_t>(1, m.dim / 64);
    notes.push_back(
        fmt::format("the file does not say its number of heads: assumed {} of 64 "
                    "channels each",
                    m.heads));
  }
  note_epsilon(said, 1e-6, notes);
}

void recognise_swin(const Shapes& shapes, const Beside& said, ModelConfig& m,
                    std::vector<std::string>& notes) {
  m.dim = shapes.dim("features.0.0.weight", 0);
  m.channels = shapes.dim("features.0.0.weight", 1);
  m.patch = shapes.dim("features.0.0.weight", 2);
  m.depths = shapes.depths();
  m.classes = shapes.dim("head.weight", 0);
  m.stage_heads.clear();
  const std::string table = "attn.relative_position_bias_table";
  for (std::size_t s = 0; s < m.depths.size(); ++s)
    m.stage_heads.push_back(shapes.dim(fmt::format("features.{}.0.{}", 2 * s + 1, table), 1));
  m.window_h = m.window_w = (root(shapes.dim("features.1.0." + table, 0)) + 1) / 2;
  const std::int64_t mlp = shapes.dim("features.1.0.mlp.0.weight", 0);
  m.mlp_ratio = m.dim > 0 ? static_cast<double>(mlp) / static_cast<double>(m.dim) : 4.0;
  take_image(said, m.window_h == 12 ? 384 : 224, m, notes);
  note_epsilon(said, 1e-5, notes);
}

void recognise_resnet(const Shapes& shapes, const Beside& said, ModelConfig& m,
                      std::vector<std::string>& notes) {
  m.width = shapes.dim("conv1.weight", 0);
  m.channels = shapes.dim("conv1.weight", 1);
  m.stem = shapes.dim("conv1.weight", 2) == 3 ? "cifar" : "imagenet";
  m.block = shapes.has("layer1.0.conv3.weight") ? "bottleneck" : "basic";
  m.layers = shapes.depths();
  m.classes = shapes.dim("fc.weight", 0);
  take_image(said, m.stem == "cifar" ? 32 : 224, m, notes);
}

// The preset's name where the description is that of one but for its classes and its images.
std::string preset_name(const ModelConfig& m) {
  for (const models::Preset& preset : models::presets()) {
    ModelConfig as = m;
    const ModelConfig& like = preset.config;
    as.name = like.name;
    as.classes = like.classes;
    as.image_h = like.image_h;
    as.image_w = like.image_w;
    as.dropout = like.dropout;
    as.drop_path = like.drop_path;
    as.head_init = like.head_init;
    as.batch_norm = like.batch_norm;
    if (as == like) return preset.name;
  }
  return "";
}

}  // namespace

std::string other_function(const Beside& said, const std::string& family) {
  const std::string ours = family == "resnet" ? "relu" : "gelu";
  const json& act = member(said.config, "hidden_act");  // Hugging Face's
  if (act.is_string() && act != ours && act != ours + "_python")
    return fmt::format("\"hidden_act\" is {}, where a {} here has {}", act.dump(), family, ours);
  for (const char* key : {"downsample_in_bottleneck", "downsample_in_first_stage"})
    if (family == "resnet" && member(said.config, key) == true)
      return fmt::format("\"{}\" is true: its strides are elsewhere than here", key);
  const json& layer = member(member(said.config, "model_args"), "act_layer");  // timm's
  if (layer.is_string() && layer != ours)
    return fmt::format("\"act_layer\" is {}, where a {} here has {}", layer.dump(), family, ours);
  const json& name = member(said.config, "architecture");
  const std::string architecture = name.is_string() ? name.get<std::string>() : "";
  for (const char* other : {"quickgelu", "resnetblur", "resnetaa"})
    if (architecture.find(other) != architecture.npos)
      return fmt::format("\"architecture\" is {}, which has other functions between its layers",
                         name.dump());
  return "";
}

ModelConfig recognise_model(const files::Safetensors& file, const Beside& said,
                            std::vector<std::string>& notes) {
  std::string best;
  std::size_t known = 0, unknown = 0;
  for (const models::Family* family : models::families()) {
    const Shapes shapes(file, std::string(family->name));
    if (shapes.known() <= known) continue;
    best = family->name;
    known = shapes.known();
    unknown = shapes.unknown();
  }
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::weights, what, file.path().string(),
                "say which model the file holds with --model NAME and --set model.KEY=VALUE, or "
                "start a training from it with --init");
  };
  if (known == 0 || unknown > known)
    refuse(
        fmt::format("the file does not say which model it holds, and {} of its {} tensors have "
                    "names of torchvision's, timm's or Hugging Face's ViT, Swin or ResNet",
                    known, file.tensors().size()));
  const Shapes shapes(file, best);
  ModelConfig m = models::preset(models::find_family(best)->preset);
  m.name.clear();
  if (best == "vit")
    recognise_vit(shapes, said, m, notes);
  else if (best == "swin")
    recognise_swin(shapes, said, m, notes);
  else if (best == "resnet")
    recognise_resnet(shapes, said, m, notes);
  else
    refuse("the tensors are named like a " + best + "'s, whose sizes are not read off its tensors");
  if (const std::vector<std::string> problems = models::problems(m); !problems.empty())
    refuse("the tensors are named like a " + best + "'s, but make up none: " + problems[0]);
  m.name = preset_name(m);
  return m;
}

}  // namespace tessera::run
