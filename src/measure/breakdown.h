// Where the time of a step went, on one rank: compute, communication that nothing hides,
// communication beside computing, and waiting for ranks that came later. Convention: a message has
// met when the last rank of its group handed it over; before that a rank that waits for it waits
// for others, after that for the bytes. Polling and handing over keep the rank from computing:
// exposed, too.
#pragma once

#include <map>
#include <vector>

#include "exec/executor.h"
#include "ranks/clocks.h"
#include "ranks/ranks.h"
#include "report/metrics.h"

namespace tessera::run {

struct Arrival {
  double at = 0;  // when the last rank handed its part over, in ms of this rank's timeline
  int last = -1;  // the rank that did
};
// By step of the plan: when its message met. Every rank of the run makes the call.
std::map<int, Arrival> arrivals(const plan::Plan& plan, const exec::Timeline& timeline,
                                const ir::Mesh& mesh, const Ranks& ranks, const Clock& clock);

// compute, comm_exposed, comm_hidden and wait; a message that `met` does not know met at once.
// `waited_for`, where given, has a number per rank: to that of the rank that came last is added
// what this one waited for it.
report::Breakdown breakdown_of(const exec::Timeline& timeline, const std::map<int, Arrival>& met,
                               std::vector<double>* waited_for = nullptr);

}  // namespace tessera::run
