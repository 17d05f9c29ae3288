// parallel.stages = "time": what each block of the model takes on this machine, forward and
// backward. Convention: one rank runs training steps of the whole model by itself; a gradient
// carries the scope of its equation, and so does what is recomputed or fused. The update is not
// counted: it follows the parameters, not the work of a block.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "comm/heartbeat.h"
#include "compile/stages.h"
#include "config/pipeline.h"
#include "input/augment.h"
#include "ranks/ranks.h"
#include "report/metrics.h"
#include "session/init.h"
#include "session/session.h"

namespace tessera::run {
namespace {

constexpr int timed_runs = 3;

// One rank and one micro-batch of the given run, without what costs memory and takes no time of a
// block.
config::Config alone(const config::Config& given) {
  config::Config config = given;
  config.parallel = {};
  config.parallel.recompute = given.parallel.recompute;
  config.run.np = 1;
  config.ema.decay = 0;
  const std::int64_t parts = given.batch.accumulate * given.parallel.dp;
  const std::int64_t samples = (given.batch.global + parts - 1) / parts;
  config.batch = {samples, samples, 1};
  return config;
}

// Blocks by scope: its own, or that of the scope around it. What the model does not know is the
// loss, which follows the head.
class BlockOfScope {
 public:
  explicit BlockOfScope(const models::ModelConfig& model)
      : last_(static_cast<std::size_t>(models::block_count(model)) - 1) {
    const ir::Program program = forward_of_one_image(model);
    const std::vector<std::size_t> at = equation_blocks(program);
    for (std::size_t i = 0; i < at.size(); ++i) blocks_.emplace(program.eqns[i].scope, at[i]);
  }
  std::size_t operator()(std::string scope) const {
    for (;;) {
      if (const auto it = blocks_.find(scope); it != blocks_.end()) return it->second;
      const auto dot = scope.rfind('.');
      if (dot == scope.npos) return last_;
      scope.resize(dot);
    }
  }

 private:
  std::map<std::string, std::size_t> blocks_;
  std::size_t last_;
};

std::vector<double> sum_by_block(const exec::Timeline& timeline, const plan::Plan& plan,
                                 const BlockOfScope& block_of, std::size_t blocks) {
  std::vector<double> ms(blocks);
  for (const exec::Timeline::Span& span : timeline.spans) {
    const int eqn = plan.steps[static_cast<std::size_t>(span.step)].eqn;
    if (span.kind != exec::Timeline::compute || eqn < 0) continue;
    const ir::Eqn& origin = plan.program.eqns[static_cast<std::size_t>(eqn)];
    if (origin.phase == ir::Phase::update || origin.scope.empty()) continue;
    ms[block_of(origin.scope)] += span.end - span.start;
  }
  return ms;
}

}  // namespace

std::vector<double> measure_blocks(const config::Config& given) {
  const config::Config config = alone(given);
  const models::ModelConfig& m = config.model;
  Session session(config);
  std::int64_t samples = config.batch.global;
  while (samples > 1 && !session.fits_with({}, {{Goal::train, samples}}))
    samples = (samples + 1) / 2;
  session.load(initial_weights(static_cast<std::uint64_t>(config.run.seed)));
  const auto n = static_cast<std::size_t>(samples), classes = static_cast<std::size_t>(m.classes);
  std::vector<float> images(n * static_cast<std::size_t>(m.image_h * m.image_w * m.channels)),
      weights(n, 1.0F), targets;
  for (std::size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<float>(i % 13) / 6.0F - 1.0F;
  const std::vector<std::int32_t> labels(n);
  if (mix_options(config).enabled())
    targets.assign(n * classes, 1.0F / static_cast<float>(classes));

  const auto blocks = static_cast<std::size_t>(models::block_count(m));
  const BlockOfScope block_of(m);
  std::vector<std::vector<double>> runs(blocks);
  for (int step = 0; step <= timed_runs; ++step) {
    const StepResult r = session.train_step({.images = images,
                                             .labels = labels,
                                             .lr = 0.0,
                                             .step = step + 1,
                                             .position = 0,
                                             .targets = targets,
                                             .weights = weights});
    if (step == 0) continue;  // warms caches up
    const std::vector<double> ms =
        sum_by_block(r.timeline, session.compiled(Goal::train, samples).plan, block_of, blocks);
    for (std::size_t b = 0; b < blocks; ++b) runs[b].push_back(ms[b]);
  }
  std::vector<double> medians;
  for (std::vector<double>& ms : runs) medians.push_back(report::quantiles(std::move(ms)).median);
  return medians;
}

void settle_stages(config::Config& config, comm::Comm* world) {
  if (config.parallel.stages.word != "time" || config::pipeline_stages(config.parallel) == 1)
    return;
  const Ranks ranks(world);
  std::vector<double> ms(static_cast<std::size_t>(models::block_count(config.model)));
  comm::Heartbeat::doing("measuring the blocks of the model");
  ranks.together([&] {
    if (ranks.first()) ms = measure_blocks(config);
  });
  if (world) world->broadcast(std::as_writable_bytes(std::span(ms)), 0);
  const std::vector<std::int64_t> cut = blocks_per_stage(config, ms);
  config.parallel.stages.list.assign(cut.begin(), cut.end());
}

}  // namespace tessera::run
