#include "parallel/state.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/world.h"

namespace tessera::test {
namespace {

// Without messages under way, which hold one more bucket, and for stages 0 and 1 with all gradients
// in one bucket until the end, as the paper counts; `as_it_runs`: as a run has it unless told
// otherwise.
config::Config config_of(int stage, int ranks, bool as_it_runs = false) {
  config::Config c;  // vit_tiny_cifar, f32, AdamW
  c.batch = {8, 8, 1};
  c.run.threads = 1;
  c.parallel.dp = ranks;
  c.parallel.zero = stage;
  c.parallel.persist = 0;  // nothing stays whole
  if (!as_it_runs) {
    c.parallel.overlap = c.parallel.prefetch = false;
    c.parallel.bucket_mb = 1e4;
  }
  return c;
}

// The bytes of the arena that hold gradients while they wait, as the steps write them: distinct
// addresses, not sums of sizes.
std::int64_t gradient_bytes(const plan::Plan& plan, bool parts) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  const auto add = [&](const plan::Slot& s) {
    if (s.base == 0) ranges.emplace_back(s.offset, s.offset + s.type.bytes());
  };
  for (const plan::Step& step : plan.steps) {
    if (step.eqn < 0 ||
        plan.program.eqns[static_cast<std::size_t>(step.eqn)].phase != ir::Phase::update)
      continue;
    if (step.op == ir::Op::reduce_scatter && parts) add(step.out[0]);
    if (step.op == ir::Op::pack && !parts) add(step.out[0]);
  }
  std::sort(ranges.begin(), ranges.end());
  std::int64_t bytes = 0, reached = 0;
  for (const auto& [begin, end] : ranges) {
    bytes += std::max<std::int64_t>(0, end - std::max(begin, reached));
    reached = std::max(reached, end);
  }
  return bytes;
}

}  // namespace

StateBytes state_bytes(int stage, int ranks, int rank, bool as_it_runs) {
  const config::Config c = config_of(stage, ranks, as_it_runs);
  const auto executor = exec::make_executor("cpu", 1);
  const plan::Plan plan = run::compile(c, run::Goal::train, {c.batch.global}, executor->target(),
                                       {}, run::Weights::live, rank)
                              .plan;
  executor->load(plan);
  const bool parts = stage >= 2 && ranks > 1;
  StateBytes out{plan.memory.weights, plan.gradients.kept, plan.memory.optimizer,
                 plan.gradients.in_flight, 0};
  // Before stage 2 the whole bucket is what waits; a rank's part of the sum lies inside of it.
  if (!parts) out.gradients += std::exchange(out.in_flight, 0);
  out.allocated = executor->allocated_bytes() - plan.arena_bytes - plan.outside_bytes() +
                  gradient_bytes(plan, parts);
  return out;
}

double state_formula(int stage, int ranks) {
  const double n = ranks;
  return stage == 0 ? 16 : stage == 1 ? 8 + 8 / n : stage == 2 ? 4 + 12 / n : 16 / n;
}

std::int64_t state_parameters() {
  std::int64_t n = 0;
  for (const models::Param& p : models::parameters(config_of(0, 1).model))
    n += p.buffer ? 0 : ir::elements(p.shape);
  return n;
}

std::int64_t state_largest_bucket(int stage) {
  std::int64_t most = 0;
  for (const transforms::Bucket& b : run::model_buckets(config_of(stage, 2)))
    most = std::max(most, b.size * 4);
  return most;
}

}  // namespace tessera::test
