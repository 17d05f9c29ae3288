// Shares of a batch: with parallel.weights = "measured" they follow what the ranks have shown they
// can do, as far as their memory goes.
#pragma once

#include <functional>
#include <string>

#include "measure/meter.h"

namespace tessera::run {

// Every rank calls it after a step. "": the shares stay. Otherwise `before` was called, then the
// shares changed, and the text says how. `plans`: all that the run needs, that of a training batch
// first; the caller reserves them anew.
std::string rebalance(Session& session, Meter& meter, const Ranks& ranks,
                      const std::vector<PlanKey>& plans, const std::function<void()>& before);
// A note where parallel.weights are given and small micro-batches miss them; "": there is none.
std::string missed_shares(const config::Config& config);

}  // namespace tessera::run
