#include "measure/pipeline_slots.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tessera::run {
namespace {

constexpr double shortest_wait_ms = 0.05;  // below: handing over, not idling

}  // namespace

PipelineSlot pipeline_slot(const transforms::Turn& turn) {
  return {turn.stage, turn.micro, transforms::name(turn)[0]};
}

std::vector<PipelineSlot> slots_of(const ir::Program& program) {
  std::vector<PipelineSlot> out(program.eqns.size());
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

std::map<PipelineSlot, double> slot_flops(const ir::Program& program) {
  const std::vector<PipelineSlot> slots = slots_of(program);
  std::map<PipelineSlot, double> out;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const ir::Eqn& e = program.eqns[i];
    out[slots[i]] += ir::cost(e.op, e.attrs, program.types(e.in), program.types(e.out)).flops;
  }
  return out;
}

std::vector<SlotSpan> slot_spans(const plan::Plan& plan, const exec::Timeline& timeline) {
  const std::vector<PipelineSlot> slots = slots_of(plan.program);
  std::vector<SlotSpan> out, updates;         // updates: since the last span of a slot
  bool waited = true, update_waited = false;  // since then, and since the last of the update
  for (const exec::Timeline::Span& span : timeline.spans) {
    const plan::Step& step = plan.steps[static_cast<std::size_t>(span.step)];
    if (span.kind == exec::Timeline::wait && plan::is_point_to_point(step.op) &&
        span.end - span.start > shortest_wait_ms)
      waited = update_waited = true;
    if (span.kind != exec::Timeline::compute) continue;
    const PipelineSlot slot =
        step.eqn < 0 ? PipelineSlot{} : slots[static_cast<std::size_t>(step.eqn)];
    const bool update = slot.work == 'U';
    std::vector<SlotSpan>& last = update ? updates : out;
    if (!last.empty() && last.back().slot == slot && !(update ? update_waited : waited)) {
      last.back().end = span.end;
      if (!update) updates.clear();
    } else {
      if (!update) out.insert(out.end(), updates.begin(), updates.end()), updates.clear();
      last.push_back({slot, span.start, span.end});
    }
    update_waited = false;
    if (!update) waited = false;
  }
  out.insert(out.end(), updates.begin(), updates.end());
  return out;
}

}  // namespace tessera::run
