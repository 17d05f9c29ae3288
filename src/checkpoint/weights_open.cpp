#include "checkpoint/weights_open.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/quantised.h"
#include "checkpoint/weights.h"
#include "checkpoint/weights_recognise.h"
#include "config/fields.h"
#include "config/reader.h"
#include "files/json.h"
#include "files/look.h"
#include "files/safetensors.h"
#include "input/augment.h"
#include "session/bytes.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using files::is_there;

using Described = std::vector<config::Override>;

// A model's description must agree with what the weights say of it. Only the keys that were given
// count: a name says nothing of the others.
void expect_described(const Described& described, const models::ModelConfig& model,
                      const std::string& where) {
  config::Inputs inputs;
  for (const config::Override& one : described)  // a name that fits would bring its preset's values
    if (!(one.key == "model.name" && one.value == model.name) &&
        !(one.key == "model.family" && one.value == model.family))
      inputs.overrides.push_back(one);
  if (inputs.overrides.empty()) return;
  inputs.purpose = config::Purpose::inference;
  inputs.model = model;
  const config::Config asked = config::load_inputs(inputs).config;
  config::Config held;
  held.model = model;
  for (const config::Override& one : inputs.overrides) {
    const config::Field* field =
        config::find_field("model", std::string_view(one.key).substr(one.key.find('.') + 1));
    CHECK(field, one.key + " was read");
    if (const std::string said = config::toml_value(*field, held);
        said != config::toml_value(*field, asked))
      throw Error(ErrorKind::usage,
                  fmt::format("{} was given, but the weights hold a model with {} = {}", one.origin,
                              one.key, said),
                  where, "leave it out: these weights name their model");
  }
}

// torchvision's published weights were trained on ImageNet's statistics and do not say so; timm's
// ViTs of these shapes on 0.5, mostly.
bool is_imagenet(const models::ModelConfig& model, const files::Safetensors& file) {
  const auto& all = models::presets();
  const bool published = std::any_of(all.begin(), all.end(), [&](const models::Preset& row) {
    return row.name == model.name && row.config.classes == 1000 && model.classes == 1000 &&
           model.channels == 3;
  });
  return published && !file.has("pos_embed");
}

// torchvision tests its published Swins on bicubic images of these sides before the crop.
void follow_published(const models::ModelConfig& model, json& preprocess) {
  for (const auto& [name, side] :
       {std::pair{"swin_t", 232}, std::pair{"swin_s", 246}, std::pair{"swin_b", 238}})
    if (preprocess.empty() && model.name == name && model.image_h == 224 && model.image_w == 224)
      preprocess = {{"interpolation", "bicubic"}, {"resize", side}};
}

// `usual`: what is taken where the weights are silent.
void read_preprocess(const json& said, const char* usual, OpenedWeights& out) {
  out.preprocess = preprocess_of(out.model, data::normalisation(usual));
  if (!said.contains("mean") || !said.contains("std"))
    out.assumed = fmt::format(
        "{} does not say how its images were normalised: assumed mean {} and deviation {} "
        "(data.normalize = \"{}\"); change it with "
        "--set data.normalize=half|imagenet|cifar10|cifar100, or data.mean and data.deviation",
        out.from.string(), said.value("mean", out.preprocess["mean"]).dump(),
        said.value("std", out.preprocess["std"]).dump(), usual);
  out.preprocess.update(said);
}

// Its own words, or those of the files beside it.
json said_preprocess(const files::Safetensors& file, const Beside& beside,
                     const models::ModelConfig& model, std::vector<std::string>& notes) {
  const auto said = file.metadata().find("tessera.preprocess");
  if (said == file.metadata().end()) return recognise_preprocess(beside, model, notes);
  json preprocess = files::parse_json(said->second);
  if (!preprocess.is_object())
    throw Error(ErrorKind::weights, "metadata 'tessera.preprocess' is not a JSON object",
                file.path().string());
  return preprocess;
}

// One sentence where the weights say that they were trained on images of another mean and deviation
// than the run's; "" where they agree or do not say.
std::string other_statistics(const files::Safetensors& weights, const config::Config& config) {
  std::vector<std::string> ignored;
  const json said = said_preprocess(weights, beside(weights.path()), config.model, ignored);
  if (!said.contains("mean") || !said.contains("std")) return "";
  config::Config theirs = photographs_for(config.model);
  try {
    follow_preprocess(said, weights.path().string(), theirs);
  } catch (const Error&) {
    return "";  // statistics of other channels, or no numbers
  }
  const json a = preprocess_of(config.model, normalisation(config)),
             b = preprocess_of(config.model, normalisation(theirs));
  if (a == b) return "";
  return fmt::format(
      "the weights were trained on images with mean {} and deviation {}, this run has {} and {}: "
      "--set data.mean='{}' --set data.deviation='{}' takes theirs",
      b["mean"].dump(), b["std"].dump(), a["mean"].dump(), a["std"].dump(), b["mean"].dump(),
      b["std"].dump());
}

// For weights that are taken for a model that the user named.
void note_other_function(const files::Safetensors& weights, const Beside& said,
                         const models::ModelConfig& model, std::vector<std::string>& notes) {
  if (weights.metadata().contains("tessera.model")) return;
  if (const std::string other = other_function(said, model.family); !other.empty())
    notes.push_back("these weights were trained for another function: config.json says that " +
                    other);
}

OpenedWeights from_file(const fs::path& path, const Described& described) {
  const auto file = std::make_shared<const files::Safetensors>(path);
  OpenedWeights out;
  out.from = path;
  const bool ours = file->metadata().contains("tessera.model");
  const Beside said = ours ? Beside{} : beside(path);
  if (ours) {
    out.model = model_of(*file);
    expect_described(described, out.model, path.string());
  } else if (!described.empty()) {
    out.model = config::load(std::nullopt, described, config::Purpose::other).model;
    note_other_function(*file, said, out.model, out.notes);
  } else {
    out.model = recognise_model(*file, said, out.notes);
    if (const std::string other = other_function(said, out.model.family); !other.empty())
      throw Error(ErrorKind::weights,
                  "the tensors are those of a " + out.model.family +
                      ", but not what is computed with them: config.json says that " + other,
                  path.string(),
                  "a training can start from them (--init); --model NAME takes them as they are");
    out.notes.push_back(
        fmt::format("{} names no model of ours: recognised {}", path.string(),
                    out.model.name.empty() ? config::model_to_json(out.model) : out.model.name));
  }
  out.classes = class_names_of(*file, out.model);
  if (auto names = recognise_classes(said, out.model); !names.empty()) out.classes = names;
  out.source = weights_from(file, out.model, Adapt{}, out.notes);
  out.quantised = quantised_of(*file, out.model);
  json preprocess = said_preprocess(*file, said, out.model, out.notes);
  if (is_imagenet(out.model, *file)) follow_published(out.model, preprocess);
  read_preprocess(preprocess, is_imagenet(out.model, *file) ? "imagenet" : "half", out);
  return out;
}

// The averaged weights where the run keeps an average (ema.), else the weights themselves (param.).
OpenedWeights from_checkpoint(std::shared_ptr<const files::Sharded> checkpoint,
                              const Described& described) {
  OpenedWeights out;
  out.from = checkpoint->path();
  const std::string where = out.from.string();
  const json& state = checkpoint->manifest().state;
  const json identity = state.value("identity", json::object());
  if (!identity.is_object() || !identity.contains("model"))
    throw Error(ErrorKind::weights, "the checkpoint does not name its model", where);
  try {
    out.model = config::model_from_json(identity["model"].dump());
  } catch (Error& error) {
    throw error.in(where);
  }
  expect_described(described, out.model, where);
  std::string prefix = "param.";
  for (const auto& [name, tensor] : checkpoint->manifest().tensors)
    if (name.starts_with("ema.")) prefix = "ema.";
  // Buffers and frozen parameters are in no bucket; an average has buffers of its own and shares
  // what is frozen.
  const auto name_of = [prefix, tensors = &checkpoint->manifest().tensors](const models::Param& p) {
    for (const std::string& name :
         {prefix + p.name, (prefix == "ema." ? "buffer.ema." : "buffer.") + p.name})
      if (tensors->contains(name)) return name;
    return "buffer." + p.name;
  };
  for (const models::Param& p : models::parameters(out.model)) {
    const files::GlobalTensor& stored = checkpoint->at(name_of(p));
    if (stored.shape != p.shape || (stored.dtype != "F32" && stored.dtype != "F64"))
      throw Error(ErrorKind::weights,
                  fmt::format("{} is {} {}; the model has {}", name_of(p), stored.dtype,
                              ir::to_string(stored.shape), ir::to_string(p.shape)),
                  where);
  }
  for (std::int64_t i = 0; i < out.model.classes; ++i) out.classes.push_back(std::to_string(i));
  if (const json names = state.value("classes", json());
      names.is_array() && names.size() == out.classes.size())
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i].is_string()) out.classes[i] = names[i].get<std::string>();
  const json said = state.value("preprocess", json());
  read_preprocess(said.is_object() ? said : json::object(), "half", out);
  out.source = [checkpoint, name_of](const models::Param& p) {
    const ir::DType dtype =
        checkpoint->at(name_of(p)).dtype == "F64" ? ir::DType::f64 : ir::DType::f32;
    return decode(checkpoint->read(name_of(p)), dtype);
  };
  for (const auto& [name, tensor] : checkpoint->manifest().tensors)
    if (name.starts_with("buffer.amax.") && tensor.dtype == "F32")
      out.histories[name.substr(7)] = decode(checkpoint->read(name), ir::DType::f32);
  return out;
}

// The one that the newest says is the best. A run that goes on may find a better one meanwhile and
// remove this one.
std::shared_ptr<const files::Sharded> best_checkpoint(const fs::path& run,
                                                      std::vector<std::string>& notes) {
  for (int tries = 0;; ++tries) {
    std::vector<std::string> passed;
    const auto newest = newest_checkpoint(run, passed);
    const fs::path best =
        run / "ckpt" / fmt::format("step-{}", newest ? progress_of(*newest).best_step : 0);
    auto found = !newest ? nullptr : tries < 5 ? open_unless_replaced(best) : open_checkpoint(best);
    if (newest && !found) continue;
    notes.insert(notes.end(), passed.begin(), passed.end());
    return found;
  }
}

OpenedWeights from_run(const fs::path& run, const Described& described, bool best) {
  std::vector<std::string> notes;
  const bool has_file = is_there(run / "weights.safetensors");
  try {
    auto checkpoint = best ? best_checkpoint(run, notes) : newest_checkpoint(run, notes);
    if (!checkpoint && !has_file)
      throw Error(ErrorKind::weights, "the folder holds no checkpoint and no weight file",
                  run.string(),
                  "expected a run folder, a checkpoint (step-N), an exported folder or a "
                  ".safetensors file");
    if (checkpoint) {
      OpenedWeights out = from_checkpoint(std::move(checkpoint), described);
      out.notes.insert(out.notes.begin(), notes.begin(), notes.end());
      return out;
    }
  } catch (const Error& error) {
    if (error.kind != ErrorKind::weights || !has_file || best) throw;
    notes.push_back(std::string("no checkpoint can be used: ") + error.message);
  }
  OpenedWeights out = from_file(run / "weights.safetensors", described);
  out.notes.insert(out.notes.begin(), notes.begin(), notes.end());
  return out;
}

}  // namespace

json preprocess_of(const models::ModelConfig& model, const data::Normalisation& statistics) {
  const auto channels = static_cast<std::size_t>(model.channels);
  const auto per_channel = [&](const std::vector<double>& values) {
    // They count as rounded to f32: the shortest text of that float.
    std::vector<double> out;
    for (std::size_t i = 0; i < channels; ++i) {
      const auto value = static_cast<float>(values[values.size() == channels ? i : 0]);
      out.push_back(std::stod(fmt::format("{}", value)));
    }
    return out;
  };
  return {{"mean", per_channel(statistics.mean)}, {"std", per_channel(statistics.deviation)}};
}

ParamSource weights_to_start_from(const config::Config& config, std::vector<std::string>& notes) {
  const auto file = std::make_shared<const files::Safetensors>(weight_file(config.init));
  const Adapt adapt{true, true, static_cast<std::uint64_t>(config.run.seed)};
  ParamSource source = weights_from(file, config.model, adapt, notes);
  if (const std::string other = other_statistics(*file, config); !other.empty())
    notes.push_back(other);
  note_other_function(*file, beside(file->path()), config.model, notes);
  return source;
}

fs::path weight_file(const fs::path& path) {
  std::error_code error;
  if (!is_there(path) || !fs::is_directory(path, error)) return path;
  for (const char* name : {"model.safetensors", "weights.safetensors"})
    if (is_there(path / name)) return path / name;
  const bool saved = is_there(path / files::manifest_name) || is_there(path / "ckpt");
  throw Error(ErrorKind::weights,
              "the folder holds no weight file: neither model.safetensors nor weights.safetensors",
              path.string(),
              saved
                  ? fmt::format("`tessera ckpt export {} --out DIR` writes the weights of a "
                                "checkpoint as one; then give DIR",
                                path.string())
                  : "give a safetensors file, an exported folder or the folder of a finished run");
}

OpenedWeights open_weights(const fs::path& path, const std::vector<config::Override>& described,
                           bool best) {
  std::error_code error;
  if (!is_there(path) || !fs::is_directory(path, error)) return from_file(path, described);
  if (is_there(path / files::manifest_name))
    return from_checkpoint(open_checkpoint(path), described);
  if (is_there(path / "model.safetensors")) return from_file(path / "model.safetensors", described);
  return from_run(path, described, best);
}

json preprocess_of(const config::Config& config) {
  json out = preprocess_of(config.model, normalisation(config));
  if (config.data.eval_resize > 0 || augment_options(config).eval_resize == 0)
    out["resize"] = config.data.eval_resize;
  if (config.data.interpolation != "bilinear") out["interpolation"] = config.data.interpolation;
  if (config.data.eval_crop != "center") out["crop"] = config.data.eval_crop;
  return out;
}

}  // namespace tessera::run
