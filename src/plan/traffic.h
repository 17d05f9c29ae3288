// The traffic of one step of a plan to the other ranks, known before anything runs: a row per
// phase, op, axis and purpose. Convention: bytes are those of the buffer that a rank hands over, as
// comm::Traffic counts them; predicted and measured are equal.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace tessera::plan {

struct CommRow {
  ir::Phase phase = ir::Phase::forward;
  ir::Op op = ir::Op::all_reduce;
  std::string axis;
  std::string
      what;  // weights | gradients | activations | statistics (of batch norm and LAMB) | scalars
  std::int64_t count = 0, bytes = 0;
  bool operator==(const CommRow&) const = default;
};

// In the order of a step: by phase, and inside of it by what comes first.
std::vector<CommRow> communication(const Plan& plan);

std::string_view name(ir::Phase phase);  // forward, backward, recompute, update

// Bytes that come from where buffers rest and go back there, in one run; with `home` those of one
// such place.
struct AwayTraffic {
  std::int64_t fetched = 0, stowed = 0;
};
AwayTraffic away_traffic(const Plan& plan, std::optional<ir::Home> home = {});

}  // namespace tessera::plan
