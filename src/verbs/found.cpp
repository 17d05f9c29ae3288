#include "verbs/found.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/say.h"
#include "comm/heartbeat.h"
#include "compile/stages.h"
#include "config/reader.h"
#include "input/augment.h"
#include "input/eval_data.h"
#include "models/weights.h"
#include "ranks/launch.h"
#include "report/console.h"

namespace tessera::run {
namespace {

// Images are prepared as the weights say, but for what a key says.
void prepare_images(Found& found) {
  found.config.data.source = "folder:.";  // photographs, where nobody knows better
  nlohmann::json said = found.weights.preprocess;
  const auto given = [&](const char* key) { return found.given.contains(key); };
  if (given("data.normalize") || given("data.mean")) said.erase("mean");
  if (given("data.normalize") || given("data.deviation")) said.erase("std");
  if (given("data.eval_resize")) said.erase("resize");
  if (given("data.interpolation")) said.erase("interpolation");
  if (given("data.eval_crop")) said.erase("crop");
  follow_preprocess(said, found.weights.from.string(), found.config);
  if (!found.weights.assumed.empty() && (said.contains("mean") || said.contains("std")))
    found.notes.push_back(found.weights.assumed);
}

}  // namespace

void check_runs_quantised(const Found& found, const std::string& as) {
  const config::Config& c = found.config;
  const auto params = models::parameters(c.model);
  const bool convolves = std::any_of(params.begin(), params.end(), [&](const models::Param& p) {
    return models::is_quantisable(c.model, p, as) && !models::is_inner_linear(c.model, p);
  });
  const std::string& dtype = c.precision.dtype;
  if (dtype == "f64" || (convolves && dtype == "f16"))
    throw Error(ErrorKind::usage,
                fmt::format("quantised {} have f32 scales, and precision.dtype is {}",
                            convolves ? "convolutions" : "layers", dtype),
                found.weights.from.string(), "choose f32 or bf16");
  if (convolves && c.run.device != "cpu")
    throw Error(ErrorKind::usage,
                "quantised convolutions run on the CPU, and run.device is " + c.run.device,
                found.weights.from.string(),
                "--device cpu, or give the weights that they were made of");
}

namespace {

// Weights say whether they are quantised; a key may say that others are to be.
void settle_quantisation(Found& found) {
  const std::string &said = found.weights.quantised.as, &key = found.config.precision.quantise;
  if (said.empty() && key == "none") return;
  if (!said.empty() && found.given.contains("precision.quantise") && key != said)
    throw Error(
        ErrorKind::usage,
        fmt::format("precision.quantise = {}, but the weights are quantised as {}", key, said),
        found.weights.from.string(), "leave the key out");
  if (said.empty())
    throw Error(ErrorKind::weights,
                fmt::format("precision.quantise = {}, but the weights are not quantised: nobody "
                            "knows how large the numbers are that their layers read",
                            key),
                found.weights.from.string(),
                "`tessera quantize --weights W --data DIR --out FILE` finds out");
  found.config.precision.quantise = said;
  check_runs_quantised(found, said);
  const config::Parallel& p = found.config.parallel;
  if (launched_ranks() > 1 || p.dp * p.tp * p.pp * p.sp > 1)
    throw Error(ErrorKind::usage, "quantised weights run on one rank", found.weights.from.string(),
                "leave --np, --dp, --tp, --pp and --sp out");
}

}  // namespace

Found find_weights(const WeightsOptions& options) {
  Found out;
  config::Inputs inputs;
  std::vector<config::Override> described;
  for (const config::Override& one : options.overrides) {
    if (one.key == "data.source")
      throw Error(
          ErrorKind::usage,
          "the data is not a key here: eval has --data, predict the images that it is given",
          one.origin, "leave it out");
    (one.key.starts_with("model.") ? described : inputs.overrides).push_back(one);
  }
  out.weights = open_weights(options.weights, described);
  inputs.purpose = config::Purpose::inference;
  inputs.world = launched_ranks() > 1 ? launched_ranks() : 0;
  inputs.model = out.weights.model;
  config::Loaded loaded = config::load_inputs(inputs);
  out.config = std::move(loaded.config);
  out.given = std::move(loaded.given);
  out.notes = out.weights.notes;
  out.notes.insert(out.notes.end(), loaded.notes.begin(), loaded.notes.end());
  prepare_images(out);
  settle_quantisation(out);
  return out;
}

void use_data(Found& found, const std::string& data, const std::string& weights) {
  config::Config& config = found.config;
  config.data.source = data;
  const config::Source source = config::parse_source(data);
  auto agree = [&](const char* what, std::int64_t theirs, std::int64_t mine) {
    if (theirs != 0 && theirs != mine)
      throw Error(
          ErrorKind::usage,
          fmt::format("the data has {} {}, the model in {} takes {}", what, theirs, weights, mine),
          "--data", "give data of the model's size");
  };
  agree("height", source.h, config.model.image_h);
  agree("width", source.w, config.model.image_w);
  agree("channels", source.channels, config.model.channels);
  agree("classes", source.classes, config.model.classes);
  follow_run(found.weights.from, found.given, config, found.notes);
}

std::unique_ptr<Session> load_found(const Found& found, const Ranks& ranks, std::int64_t batch) {
  if (ranks.first())
    for (const std::string& note : found.notes) report::say_note(note);
  config::Config config = found.config;
  settle_stages(config, ranks.world());
  config.batch.global = std::max(config.batch.global, batch);  // no plan has more samples
  auto session =
      std::make_unique<Session>(config, transforms::RunOptions{}, ranks.world(), Use::inference);
  session->set_histories(found.weights.histories);
  ranks.together([&] {
    comm::Heartbeat::doing("loading the weights");
    session->load(found.weights.source, found.weights.quantised);
  });
  return session;
}

}  // namespace tessera::run
