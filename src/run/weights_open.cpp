#include "run/weights_open.h"

#include <fmt/format.h>

#include "base/check.h"
#include "config/reader.h"
#include "files/json.h"
#include "files/safetensors.h"
#include "run/bytes.h"
#include "run/checkpoint.h"
#include "run/weights.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

OpenedWeights from_file(const fs::path& path, const std::optional<models::ModelConfig>& model) {
  const auto file = std::make_shared<const files::Safetensors>(path);
  OpenedWeights out;
  out.model = model && !file->metadata().contains("tessera.model") ? *model : model_of(*file);
  out.classes = class_names_of(*file, out.model);
  out.source = weights_from(file, out.model, Adapt{}, out.notes);
  out.preprocess = preprocess_of(out.model);
  if (const auto said = file->metadata().find("tessera.preprocess"); said != file->metadata().end()) {
    const json object = files::parse_json(said->second);
    if (!object.is_object()) throw Error(ErrorKind::weights, "metadata 'tessera.preprocess' is not a JSON object", path.string());
    out.preprocess.update(object);
  }
  out.from = path;
  return out;
}

// The averaged weights where the run keeps an average (ema.), else the weights themselves (param.).
OpenedWeights from_checkpoint(std::shared_ptr<const files::Sharded> checkpoint) {
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
  std::string prefix = "param.";
  for (const auto& [name, tensor] : checkpoint->manifest().tensors)
    if (name.starts_with("ema.")) prefix = "ema.";
  // Buffers and frozen parameters are in no bucket; an average has buffers of its own and shares what is frozen.
  const auto name_of = [prefix, tensors = &checkpoint->manifest().tensors](const models::Param& p) {
    for (const std::string& name : {prefix + p.name, (prefix == "ema." ? "buffer.ema." : "buffer.") + p.name})
      if (tensors->contains(name)) return name;
    return "buffer." + p.name;
  };
  for (const models::Param& p : models::parameters(out.model)) {
    const files::GlobalTensor& stored = checkpoint->at(name_of(p));
    if (stored.shape != p.shape || (stored.dtype != "F32" && stored.dtype != "F64"))
      throw Error(
          ErrorKind::weights,
          fmt::format("{} is {} {}; the model has {}", name_of(p), stored.dtype, ir::to_string(stored.shape), ir::to_string(p.shape)),
          where);
  }
  for (std::int64_t i = 0; i < out.model.classes; ++i) out.classes.push_back(std::to_string(i));
  if (const json names = state.value("classes", json()); names.is_array() && names.size() == out.classes.size())
    for (std::size_t i = 0; i < names.size(); ++i)
      if (names[i].is_string()) out.classes[i] = names[i].get<std::string>();
  out.preprocess = preprocess_of(out.model);
  if (const json said = state.value("preprocess", json()); said.is_object()) out.preprocess.update(said);
  out.source = [checkpoint, name_of](const models::Param& p) {
    const ir::DType dtype = checkpoint->at(name_of(p)).dtype == "F64" ? ir::DType::f64 : ir::DType::f32;
    return decode(checkpoint->read(name_of(p)), dtype);
  };
  return out;
}

OpenedWeights from_run(const fs::path& run, bool best) {
  std::vector<std::string> notes;
  const bool has_file = is_there(run / "weights.safetensors");
  try {
    auto checkpoint = newest_checkpoint(run, notes);
    if (!checkpoint && !has_file)
      throw Error(ErrorKind::weights, "the folder holds no checkpoint and no weight file", run.string(),
                  "expected a run folder, a checkpoint (step-N), an exported folder or a .safetensors file");
    if (checkpoint && best) checkpoint = open_checkpoint(run / "ckpt" / fmt::format("step-{}", progress_of(*checkpoint).best_step));
    if (checkpoint) {
      OpenedWeights out = from_checkpoint(std::move(checkpoint));
      out.notes.insert(out.notes.begin(), notes.begin(), notes.end());
      return out;
    }
  } catch (const Error& error) {
    if (error.kind != ErrorKind::weights || !has_file || best) throw;
    notes.push_back(std::string("no checkpoint can be used: ") + error.message);
  }
  OpenedWeights out = from_file(run / "weights.safetensors", std::nullopt);
  out.notes.insert(out.notes.begin(), notes.begin(), notes.end());
  return out;
}

}  // namespace

json preprocess_of(const models::ModelConfig& model, const data::Normalisation& statistics) {
  const auto channels = static_cast<std::size_t>(model.channels);
  const auto per_channel = [&](const std::vector<float>& values) {
    // The shortest text of the float, not of the double that is nearest to it: 0.485, not 0.48500001430511475.
    std::vector<double> out;
    for (std::size_t i = 0; i < channels; ++i) out.push_back(std::stod(fmt::format("{}", values[values.size() == channels ? i : 0])));
    return out;
  };
  return {{"mean", per_channel(statistics.mean)}, {"std", per_channel(statistics.deviation)}};
}

fs::path weight_file(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return path;
  return is_there(path / "model.safetensors") ? path / "model.safetensors" : path / "weights.safetensors";
}

OpenedWeights open_weights(const fs::path& path, const std::optional<models::ModelConfig>& model, bool best) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return from_file(path, model);
  if (is_there(path / files::manifest_name)) return from_checkpoint(open_checkpoint(path));
  if (is_there(path / "model.safetensors")) return from_file(path / "model.safetensors", model);
  return from_run(path, best);
}

}  // namespace tessera::run
