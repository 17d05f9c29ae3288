// Where the time of a step went, on one rank: compute, communication that nothing hides, communication beside computing, and waiting for
// ranks that came later. Convention: a message has met when the last rank of its group handed it over; before that a rank that waits for it
// waits for others, after that for the bytes. Polling and handing over keep the rank from computing: exposed, too.
#pragma once

#include <map>

#include "exec/executor.h"
#include "report/metrics.h"
#include "run/clocks.h"
#include "run/ranks.h"

namespace tessera::run {

// By step of the plan: when the message met, in ms of this rank's timeline. Every rank of the run makes the call.
std::map<int, double> meetings(const plan::Plan& plan, const exec::Timeline& timeline, const ir::Mesh& mesh, const Ranks& ranks,
                               const Clock& clock);

// compute, comm_exposed, comm_hidden and wait; a message that `met` does not know met at once.
report::Breakdown breakdown_of(const exec::Timeline& timeline, const std::map<int, double>& met);

}  // namespace tessera::run
