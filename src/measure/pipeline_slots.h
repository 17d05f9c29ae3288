// Slots of a pipelined plan: the slot of each equation, what a slot costs, and when it was.
// Convention: work is F forward, B backward, W weight gradients and U update (which is no stage's
// slot: 0.0); what is recomputed belongs to the slot that reads it. A span of a slot ends where the
// rank has to wait for another stage, so a slot that waits in between has several; they never
// overlap.
#pragma once

#include <compare>
#include <map>
#include <vector>

#include "exec/executor.h"
#include "plan/plan.h"
#include "transforms/schedules.h"

namespace tessera::run {

struct PipelineSlot {
  int stage = 0, micro = 0;
  char work = 'U';
  auto operator<=>(const PipelineSlot&) const = default;
};
PipelineSlot pipeline_slot(const transforms::Turn& turn);

std::vector<PipelineSlot> slots_of(const ir::Program& program);  // of each equation of one rank
std::map<PipelineSlot, double> slot_flops(const ir::Program& program);  // recomputation included

struct SlotSpan {
  PipelineSlot slot;
  double start = 0, end = 0;  // ms of the timeline
};
// In order of time. What the update does in the middle of a slot (buckets that leave early) counts
// with that slot.
std::vector<SlotSpan> slot_spans(const plan::Plan& plan, const exec::Timeline& timeline);

}  // namespace tessera::run
