// Turns of a pipelined plan: the turn of each equation, what a turn costs, and when it was.
// Convention: work is F forward, B backward, W weight gradients and U update (which is no stage's
// turn: 0.0); what is recomputed belongs to the turn that reads it. A span of a turn ends where the
// rank has to wait for another stage, so a turn that waits in between has several; they never
// overlap.
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "exec/executor.h"
#include "plan/plan.h"
#include "transforms/schedules.h"

namespace tessera::run {

struct PipelineTurn {
  int stage = 0, micro = 0;
  char work = 'U';
  auto operator<=>(const PipelineTurn&) const = default;
};
PipelineTurn pipeline_turn(const transforms::Turn& turn);

std::vector<PipelineTurn> turns_of(const ir::Program& program);  // of each equation of one rank
std::map<PipelineTurn, double> turn_flops(const ir::Program& program);  // recomputation included

struct TurnSpan {
  PipelineTurn turn;
  double start = 0, end = 0;  // ms of the timeline
};
// In order of time. What the update does in the middle of a turn (buckets that leave early) counts
// with that turn.
std::vector<TurnSpan> turn_spans(const plan::Plan& plan, const exec::Timeline& timeline);

}  // namespace tessera::run
