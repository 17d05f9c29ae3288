// Memory for the plans of a run, taken at once and before anything runs. Convention: ranks of one
// machine are counted together, and all of them hear of the one that has no room.
#pragma once

#include <cstdint>
#include <vector>

#include "compile/plans.h"
#include "plan/footprint.h"
#include "ranks/ranks.h"
#include "session/session.h"

namespace tessera::run {

// Error(memory) on all ranks when those of some machine together need more than it has; each tells
// what it needs itself, and `available` says what the machine has.
// Ranks of another device are not counted in.
void check_room(const Ranks& ranks, std::int64_t bytes, std::int64_t available,
                const std::string& device = "cpu");

// Makes room for all of these plans at once, on every rank; all ranks make the call. Answers what
// they need on this one. Error(memory), before anything is allocated, when the ranks of a machine
// together need more than it has.
plan::Footprint reserve(Session& session, const std::vector<PlanKey>& plans, const Ranks& ranks);

}  // namespace tessera::run
