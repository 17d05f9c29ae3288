// Reading a weight file. (Comparing it with a model: weights_compare.cpp; writing:
// weights_save.cpp.)
#include "checkpoint/weights.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "base/check.h"
#include "checkpoint/quantised.h"
#include "checkpoint/weights_compare.h"
#include "config/reader.h"
#include "files/json.h"
#include "models/interpolate.h"
#include "models/weights.h"
#include "session/init.h"

namespace tessera::run {
namespace {

constexpr std::string_view model_key = "tessera.model";

}  // namespace

std::vector<std::string> class_names_of(const files::Safetensors& file,
                                        const models::ModelConfig& model) {
  std::vector<std::string> names;
  if (const auto it = file.metadata().find("tessera.classes"); it != file.metadata().end()) {
    const nlohmann::json parsed = files::parse_json(it->second);
    if (!parsed.is_array() || parsed.size() != static_cast<std::size_t>(model.classes) ||
        !std::all_of(parsed.begin(), parsed.end(), [](const auto& v) { return v.is_string(); }))
      throw Error(
          ErrorKind::weights,
          "metadata 'tessera.classes' is not a list of " + std::to_string(model.classes) + " names",
          file.path().string());
    return parsed.get<std::vector<std::string>>();
  }
  for (std::int64_t i = 0; i < model.classes; ++i) names.push_back(std::to_string(i));
  return names;
}

models::ModelConfig model_of(const files::Safetensors& file) {
  const auto found = file.metadata().find(std::string(model_key));
  if (found == file.metadata().end())
    throw Error(ErrorKind::weights,
                "the file does not say which model it holds: metadata 'tessera.model' is absent",
                file.path().string(),
                "say it with --model NAME, or start a training from the file with --init");
  try {
    return config::model_from_json(found->second);
  } catch (Error& error) {
    throw error.in(file.path().string());
  }
}

ParamSource weights_from(std::shared_ptr<const files::Safetensors> file,
                         const models::ModelConfig& model, const Adapt& adapt,
                         std::vector<std::string>& notes, const std::string& prefix) {
  FittedFile comparison = compare_weights(*file, model, adapt, prefix);
  notes.insert(notes.end(), comparison.notes.begin(), comparison.notes.end());
  return [file = std::move(file), tensors = std::move(comparison.tensors),
          parts = std::move(comparison.parts), resized = std::move(comparison.resized),
          new_head = comparison.new_head, model, seed = adapt.seed](const models::Param& param) {
    if (new_head && models::is_head(model.family, param.name)) return initial_weights(seed)(param);
    const auto found = tensors.find(param.name);
    CHECK(found != tensors.end(),
          param.name + " is a parameter of the model that was compared with the file");
    std::vector<double> values;
    if (const auto all = parts.find(param.name); all != parts.end())
      for (const std::string& name : all->second) {
        const std::vector<double> part = weights_in(*file, name);
        values.insert(values.end(), part.begin(), part.end());
      }
    else
      values = weights_in(*file, found->second);
    if (const auto from = resized.find(param.name); from != resized.end())
      values =
          param.name == models::positions_name
              ? models::interpolate_positions(
                    values, model.pool == "class", from->second,
                    {model.image_h / model.patch, model.image_w / model.patch}, model.dim)
              : models::interpolate_table(values, from->second, {model.window_h, model.window_w},
                                          param.torch_shape[1]);
    return models::from_torch(param, values);
  };
}

}  // namespace tessera::run
