// `tessera quantize`: weights whose linear layers and convolutions run in one byte. Activations are
// calibrated on training images that are not augmented, in f32; what is written says that it is
// quantised (checkpoint/quantised.h), and where test images are given both are scored on them.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/say.h"
#include "checkpoint/weights.h"
#include "input/dataset.h"
#include "input/eval_data.h"
#include "models/weights.h"
#include "report/console.h"
#include "report/document.h"
#include "train/calibrate.h"
#include "train/score.h"
#include "verbs/found.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

void check_quantize(const Found& found, const std::string& as) {
  if (!found.weights.quantised.as.empty())
    throw Error(ErrorKind::usage,
                "these weights are quantised already, as " + found.weights.quantised.as,
                found.weights.from.string(), "give the weights that they were made of");
  if (found.config.precision.dtype != "f32")
    throw Error(ErrorKind::usage,
                "calibration computes in f32, not in " + found.config.precision.dtype,
                "precision.dtype", "leave it out; --dtype says what weights become");
  const auto params = models::parameters(found.weights.model);
  if (std::none_of(params.begin(), params.end(), [&](const models::Param& p) {
        return models::is_quantisable(found.weights.model, p, as);
      }))
    throw Error(ErrorKind::usage,
                fmt::format("a {} has no linear layers in its blocks, and {} is for those alone",
                            found.weights.model.family, as),
                found.weights.from.string(),
                "--dtype int8 quantises convolutions; ViT and Swin have linear layers");
}

Score score_on(const Found& found, std::int64_t batch) {
  report::Console console;
  const std::unique_ptr<Session> session = load_found(found, Ranks(nullptr), batch);
  const auto dataset = labelled_by(
      found.weights.classes, open_data(found.config, data::Split::test), found.config.data.source);
  Score s = score(*session, found.config, *dataset, batch,
                  static_cast<int>(found.config.data.workers), &console);
  console.finish();
  return s;
}

ordered_json score_json(const Score& s) {
  return {{"images", s.images}, {"loss", s.loss}, {"top1", s.top1}, {"top5", s.top5}};
}

}  // namespace

int quantize(const QuantizeOptions& options) {
  Found found = find_weights(options);
  check_quantize(found, options.as);
  if (!options.eval.empty()) check_runs_quantised(found, options.as);
  if (!options.out.ends_with(".safetensors"))
    throw Error(ErrorKind::usage, "the file to write is called " + options.out, "--out",
                "its name ends with .safetensors");
  use_data(found, options.data, options.weights);
  Quantised scales{options.as, {}};
  {
    const std::unique_ptr<Session> session = load_found(found, Ranks(nullptr), options.batch);
    const auto images = open_data(found.config, data::Split::train);
    scales.inputs =
        calibrate(*session, found.config, *images, options.as, options.samples, options.batch);
  }
  std::map<std::string, models::Param> params;
  for (models::Param& p : models::parameters(found.weights.model)) params.emplace(p.name, p);
  save_weights(
      options.out, found.weights.model,
      [&](const std::string& name) { return found.weights.source(params.at(name)); },
      Naming::torchvision, "F32", found.weights.classes, found.weights.preprocess.dump(),
      Extras::usual, scales);

  ordered_json document = {{"from", found.weights.from.string()},
                           {"out", options.out},
                           {"dtype", options.as},
                           {"samples", options.samples},
                           {"layers", scales.inputs.size()},
                           {"bytes", std::filesystem::file_size(options.out)}};
  std::string scored;
  if (!options.eval.empty()) {
    found.notes.clear();  // they were told
    use_data(found, options.eval, options.weights);
    Found quantised = found;  // scored on the same images, whatever is known of them
    quantised.weights = open_weights(options.out);
    quantised.config.precision.quantise = options.as;
    quantised.notes.clear();
    const Score before = score_on(found, options.batch), after = score_on(quantised, options.batch);
    document["before"] = score_json(before);
    document["after"] = score_json(after);
    scored =
        fmt::format("top1 {:.2f}% -> {:.2f}%, loss {:.4f} -> {:.4f} on {} images",
                    before.top1 * 100, after.top1 * 100, before.loss, after.loss, before.images);
  }
  if (options.json) {
    report::print_document(document);
    return 0;
  }
  report::say_sentence("{} -> {}: {} layers in {}, {:.1f} MB\n", found.weights.from.string(),
                       options.out, scales.inputs.size(), options.as,
                       static_cast<double>(std::filesystem::file_size(options.out)) * 1e-6);
  if (!scored.empty()) report::say_sentence("{}\n", scored);
  return 0;
}

}  // namespace tessera::run
