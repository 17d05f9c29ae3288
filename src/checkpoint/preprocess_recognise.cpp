// Preprocessing and labels in the words of timm (config.json) and Hugging Face
// (preprocessor_config.json, config.json).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "checkpoint/weights_recognise.h"
#include "files/json.h"
#include "files/look.h"
#include "files/text.h"

namespace tessera::run {
namespace {

using nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{16} << 20;

json object_in(const std::filesystem::path& path) {
  if (!files::is_there(path)) return json::object();
  json read = files::parse_json(files::read_text(path, most_bytes, ErrorKind::weights));
  return read.is_object() ? read : json::object();
}

bool are_numbers(const json& list) {
  return list.is_array() && !list.empty() &&
         std::all_of(list.begin(), list.end(), [](const json& v) { return v.is_number(); });
}

void take_statistics(const json& from, const char* mean, const char* deviation, json& out) {
  if (from.contains(mean) && are_numbers(from[mean])) out["mean"] = from[mean];
  if (from.contains(deviation) && are_numbers(from[deviation])) out["std"] = from[deviation];
}

// Sides from the model's up: what a margin is cut off.
void take_resize(double pixels, std::int64_t side, json& out) {
  if (pixels >= static_cast<double>(side) && pixels <= 16384)
    out["resize"] = static_cast<std::int64_t>(pixels);
}

json of_timm(const json& said, std::int64_t side, std::vector<std::string>& notes) {
  json out = json::object();
  take_statistics(said, "mean", "std", out);
  const std::string filter = said.value("interpolation", json("bicubic")).dump();
  out["interpolation"] = filter == "\"bilinear\"" ? "bilinear" : "bicubic";
  if (filter != "\"bilinear\"" && filter != "\"bicubic\"")
    notes.push_back("images were resized with timm's interpolation " + filter +
                    "; bicubic is used here");
  const json crop = said.value("crop_pct", json(0.875)),
             mode = said.value("crop_mode", json("center"));
  const double part = crop.is_number() ? crop.get<double>() : 0.875;
  if (part > 0.05 && part <= 1.0)
    take_resize(std::floor(static_cast<double>(side) / part), side, out);
  if (mode == "squash") {
    out["crop"] = "squash";
    if (part < 1.0)
      notes.push_back("timm squashes images and then cuts a margin off; here none is cut off");
  }
  return out;
}

json of_hf(const json& said, std::int64_t side, std::vector<std::string>& notes) {
  json out = json::object();
  if (said.value("do_normalize", json(true)) == false)
    out = {{"mean", {0.0}}, {"std", {1.0}}};
  else
    take_statistics(said, "image_mean", "image_std", out);
  const json filter = said.value("resample", json(2));
  out["interpolation"] = filter == 3 ? "bicubic" : "bilinear";
  if (filter != 2 && filter != 3)
    notes.push_back("images were resized with Pillow's filter " + filter.dump() +
                    "; bilinear is used here");
  const json size = said.value("size", json());
  const json shortest = size.is_object() ? size.value("shortest_edge", json()) : size;
  const json fraction = said.value("crop_pct", json());
  if (fraction.is_number() && fraction > 0.05 && fraction <= 1.0 && side < 384)  // ConvNeXt's
    take_resize(std::floor(static_cast<double>(side) / fraction.get<double>()), side, out);
  else if (said.value("do_center_crop", json(false)) == true && shortest.is_number())
    take_resize(shortest.get<double>(), side, out);
  else
    out["crop"] = "squash";
  return out;
}

}  // namespace

Beside beside(const std::filesystem::path& weights) {
  // Other names may stand beside files of other models.
  if (weights.filename() != "model.safetensors") return {};
  const std::filesystem::path folder = weights.parent_path();
  return {object_in(folder / "config.json"), object_in(folder / "preprocessor_config.json")};
}

json recognise_preprocess(const Beside& said, const models::ModelConfig& model,
                          std::vector<std::string>& notes) {
  const std::int64_t side = std::min(model.image_h, model.image_w);
  if (said.config.contains("pretrained_cfg") && said.config["pretrained_cfg"].is_object())
    return of_timm(said.config["pretrained_cfg"], side, notes);
  if (said.processor.contains("image_mean") || said.processor.contains("image_processor_type"))
    return of_hf(said.processor, side, notes);
  return json::object();
}

std::vector<std::string> recognise_classes(const Beside& said, const models::ModelConfig& model) {
  std::vector<std::string> out;
  const auto classes = static_cast<std::size_t>(model.classes);
  const json labels = said.config.value("id2label", json());
  json names = said.config.value("label_names", json());
  if (names.is_null() && said.config.contains("pretrained_cfg") &&
      said.config["pretrained_cfg"].is_object())
    names = said.config["pretrained_cfg"].value("label_names", json());
  for (std::size_t i = 0; i < classes; ++i) {
    const std::string key = std::to_string(i);
    if (labels.is_object() && labels.contains(key) && labels[key].is_string())
      out.push_back(labels[key].get<std::string>());
    else if (names.is_array() && i < names.size() && names[i].is_string())
      out.push_back(names[i].get<std::string>());
    else
      return {};
  }
  return out;
}

}  // namespace tessera::run
