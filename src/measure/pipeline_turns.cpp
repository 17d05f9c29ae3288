#include "measure/pipeline_turns.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tessera::run {
namespace {

constexpr double shortest_wait_ms = 0.05;  // below: handing over, not idling

}  // namespace

PipelineTurn pipeline_turn(const transforms::Turn& turn) {
  return {turn.stage, turn.micro, transforms::name(turn)[0]};
}

std::vector<PipelineTurn> turns_of(const ir::Program& program) {
  std::vector<PipelineTurn> out(program.eqns.size());
  std::map<std::pair<int, int>, char> reads;  // backwards: what the next equation of a stage and
                                              // micro-batch is that recomputes nothing
  for (std::size_t i = program.eqns.size(); i-- > 0;) {
    const ir::Eqn& e = program.eqns[i];
    if (e.phase == ir::Phase::update) continue;
    char& next = reads.try_emplace({e.stage, e.micro}, 'B').first->second;
    if (e.phase == ir::Phase::backward) next = 'B';
    if (e.phase == ir::Phase::weight) next = 'W';
    out[i] = {e.stage, e.micro, e.phase == ir::Phase::forward ? 'F' : next};
  }
  return out;
}

std::map<PipelineTurn, double> turn_flops(const ir::Program& program) {
  const std::vector<PipelineTurn> turns = turns_of(program);
  std::map<PipelineTurn, double> out;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const ir::Eqn& e = program.eqns[i];
    out[turns[i]] += ir::cost(e.op, e.attrs, program.types(e.in), program.types(e.out)).flops;
  }
  return out;
}

std::vector<TurnSpan> turn_spans(const plan::Plan& plan, const exec::Timeline& timeline) {
  const std::vector<PipelineTurn> turns = turns_of(plan.program);
  std::vector<TurnSpan> out, updates;         // updates: since the last span of a turn
  bool waited = true, update_waited = false;  // since then, and since the last of the update
  for (const exec::Timeline::Span& span : timeline.spans) {
    const plan::Step& step = plan.steps[static_cast<std::size_t>(span.step)];
    if (span.kind == exec::Timeline::wait && plan::is_point_to_point(step.op) &&
        span.end - span.start > shortest_wait_ms)
      waited = update_waited = true;
    if (span.kind != exec::Timeline::compute) continue;
    const PipelineTurn turn =
        step.eqn < 0 ? PipelineTurn{} : turns[static_cast<std::size_t>(step.eqn)];
    const bool update = turn.work == 'U';
    std::vector<TurnSpan>& last = update ? updates : out;
    if (!last.empty() && last.back().turn == turn && !(update ? update_waited : waited)) {
      last.back().end = span.end;
      if (!update) updates.clear();
    } else {
      if (!update) {
        out.insert(out.end(), updates.begin(), updates.end());
        updates.clear();
      }
      last.push_back({turn, span.start, span.end});
    }
    update_waited = false;
    if (!update) waited = false;
  }
  out.insert(out.end(), updates.begin(), updates.end());
  return out;
}

}  // namespace tessera::run
