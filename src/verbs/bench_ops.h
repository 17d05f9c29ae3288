// bench ops: every distinct equation of a plan beside its floor, from runs that were timed step by
// step.
#pragma once

#include <vector>

#include "config/config.h"
#include "ops/table.h"
#include "plan/plan.h"
#include "verbs/verbs.h"

namespace tessera::run {

// Whole runs and single steps are timed in different runs: a mark before every step holds a card up
// by some microseconds, which is most of a small model's time.
struct TimedRuns {
  std::vector<double> wall_ms;               // of each run without marks
  std::vector<double> call_ms;               // the same by this thread's clock, copies included
  std::vector<std::vector<double>> step_ms;  // of each run with them: of every step of the plan
};

double median_step(const TimedRuns& found, std::size_t step);

ir::Cost step_cost(const plan::Step& step);

void bench_ops(const plan::Plan& plan, const TimedRuns& found, const config::Config& config,
               const BenchOptions& options);

}  // namespace tessera::run
