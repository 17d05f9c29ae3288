#include "compile/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "models/model.h"

namespace tessera::run {
namespace {

bool has_running_statistics(const models::ModelConfig& model) {
  const auto params = models::parameters(model);
  return std::any_of(params.begin(), params.end(), [](const models::Param& p) { return p.buffer; });
}

}  // namespace

std::string name_of(const PlanKey& key) {
  static constexpr const char* goals[] = {"train", "gradients", "evaluate", "predict",
                                          "recalibrate"};
  return fmt::format("{} {}{}", goals[static_cast<int>(key.goal)], key.samples,
                     key.weights == Weights::average ? " (average)" : "");
}

RunExtent extent_of(const config::Config& config, std::int64_t samples, std::int64_t test) {
  RunExtent out{.samples = samples, .test = test, .batch = std::min(config.batch.global, samples)};
  const bool drop = config.data.drop_last;
  out.epoch_batches = (samples + (drop ? 0 : out.batch - 1)) / out.batch;
  out.epoch_samples = drop ? out.epoch_batches * out.batch : samples;
  const std::int64_t steps = config.run.steps, all = config.run.epochs * out.epoch_batches;
  out.steps = steps > 0 && config.run.epochs > 0 ? std::min(steps, all) : steps > 0 ? steps : all;
  return out;
}

std::int64_t evaluation_batch(const config::Config& config) {
  const std::int64_t micros = config.parallel.pp > 1 ? 4 * config.parallel.pp : 1;
  return std::clamp<std::int64_t>(config.batch.micro * micros, 1,
                                  std::min<std::int64_t>(256, config.batch.global));
}

std::vector<PlanKey> plans_of_training(const config::Config& config, const RunExtent& extent) {
  std::vector<PlanKey> out;
  std::set<PlanKey> there;
  const auto add = [&](Goal goal, std::int64_t samples, Weights weights) {
    const PlanKey key{.goal = goal, .samples = samples, .weights = weights};
    if (samples > 0 && there.insert(key).second) out.push_back(key);
  };
  const bool averages = config.ema.decay > 0;
  const std::int64_t last =
      extent.epoch_samples % extent.batch;  // of an epoch; 0: its batches are all whole
  add(Goal::train, extent.batch, Weights::live);
  if (extent.steps >= extent.epoch_batches) add(Goal::train, last, Weights::live);
  // Loading weights makes the buffers by the smallest plan that reads them.
  add(Goal::predict, 1, Weights::live);
  if (averages) add(Goal::predict, 1, Weights::average);
  if (extent.test == 0) return out;
  if (averages && has_running_statistics(config.model)) {
    add(Goal::recalibrate, extent.batch, Weights::average);
    if (extent.epoch_batches <= recalibration_batches)
      add(Goal::recalibrate, last, Weights::average);
  }
  const Weights scored = averages ? Weights::average : Weights::live;
  const std::int64_t batch = std::min(evaluation_batch(config), extent.test);
  add(Goal::evaluate, batch, scored);
  add(Goal::evaluate, extent.test % batch, scored);
  return out;
}

}  // namespace tessera::run
