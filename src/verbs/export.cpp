// `tessera ckpt export`: weights as a folder that others read: model.safetensors, config.json,
// preprocessor_config.json. Convention: tensors carry torchvision's or timm's names and torch's
// layouts; config.json says which, and holds our model section too.
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/build_info.h"
#include "base/check.h"
#include "base/say.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_open.h"
#include "config/reader.h"
#include "files/text.h"
#include "input/augment.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

ordered_json config_of(const OpenedWeights& w, const CkptOptions& options) {
  const models::ModelConfig& m = w.model;
  ordered_json labels = ordered_json::object(), ids = ordered_json::object();
  for (std::size_t i = 0; i < w.classes.size(); ++i)
    labels[std::to_string(i)] = w.classes[i], ids[w.classes[i]] = i;
  ordered_json out = {{"model_type", m.family},
                      {"naming", options.naming},
                      {"torch_dtype", options.dtype == "f64" ? "float64" : "float32"},
                      {"num_channels", m.channels},
                      {"num_labels", m.classes},
                      {"id2label", labels},
                      {"label2id", ids}};
  out["image_size"] =
      m.image_h == m.image_w ? ordered_json(m.image_h) : ordered_json({m.image_h, m.image_w});
  if (m.family == "vit")
    out.update({{"hidden_size", m.dim},
                {"num_hidden_layers", m.depth},
                {"num_attention_heads", m.heads},
                {"intermediate_size", m.mlp},
                {"patch_size", m.patch},
                {"hidden_act", "gelu"},
                {"pooling", m.pool}});
  out["tessera"] = {{"model", ordered_json::parse(config::model_to_json(m))},
                    {"version", version()}};
  return out;
}

// As predict does it: resized bilinearly so that it covers the model's size and a margin, its
// middle, normalised.
ordered_json preprocessor_of(const OpenedWeights& w) {
  config::Config config = photographs_for(w.model);
  follow_preprocess(w.preprocess, w.from.string(), config);
  const ordered_json size = {{"height", w.model.image_h}, {"width", w.model.image_w}};
  return {{"image_processor_type", "ViTImageProcessor"},
          {"do_center_crop", true},
          {"crop",
           "the middle of the image after its resizing, which keeps its proportions; an image of "
           "that size already stays as it is"},
          {"shortest_edge_before_crop", augment_options(config).eval_resize},
          {"do_resize", true},
          {"size", size},
          {"resample", 2},
          {"do_rescale", true},
          {"rescale_factor", 1.0 / 255.0},
          {"do_normalize", true},
          {"image_mean", w.preprocess.value("mean", json::array())},
          {"image_std", w.preprocess.value("std", json::array())}};
}

}  // namespace

int ckpt_export(const CkptOptions& options) {
  const OpenedWeights w = open_weights(options.path, {}, options.best);
  const fs::path out = options.out;
  std::error_code error;
  fs::create_directories(out, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the folder: " + error.message(), out.string(),
                "choose another folder with --out");
  std::map<std::string, models::Param> params;
  for (models::Param& p : models::parameters(w.model)) params.emplace(p.name, p);
  save_weights(
      out / "model.safetensors", w.model,
      [&](const std::string& name) { return w.source(params.at(name)); },
      options.naming == "timm" ? Naming::timm : Naming::torchvision,
      options.dtype == "f64" ? "F64" : "F32", w.classes, w.preprocess.dump());
  const auto text = [](const ordered_json& j) {
    return j.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  };
  files::write_atomically(out / "config.json", text(config_of(w, options)));
  files::write_atomically(out / "preprocessor_config.json", text(preprocessor_of(w)));
  for (const std::string& note : w.notes) say(stderr, "note: {}\n", note);
  if (!w.assumed.empty()) say(stderr, "note: {}\n", w.assumed);
  if (options.json)
    say_json(stdout, text({{"from", w.from.string()},
                           {"out", out.string()},
                           {"naming", options.naming},
                           {"dtype", options.dtype},
                           {"tensors", params.size()}}));
  else
    say(stdout, "{} -> {}: {} tensors, {} names, {}\n", w.from.string(), out.string(),
        params.size(), options.naming, options.dtype);
  return 0;
}

}  // namespace tessera::run
