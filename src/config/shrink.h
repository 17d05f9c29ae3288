// A run on fewer ranks than were asked for: copies of the model (dp) go, and each of those that are
// left does more micro-batches, so that an update has the same samples and the same learning rate.
// Convention: pure functions; what was asked for stays in Config::whole, and is what a run folder
// says of the run.
#pragma once

#include <cstdint>
#include <string>

#include "config/config.h"

namespace tessera::config {

// Ranks of one copy of the model.
std::int64_t ranks_of_a_copy(const Config& config);

// The most ranks that `slots` have room for and that make whole copies; at most those asked for. 0:
// not one copy, or fewer than run.np_min.
std::int64_t fitting_ranks(const Config& config, std::int64_t slots);

// `ranks`: as fitting_ranks() answers. A rank's micro-batches stay as large as they were, as nearly
// as whole numbers allow. Error(usage) where run.device names a device for each rank.
Config shrink(const Config& config, std::int64_t ranks);

// The same run as it was asked for.
Config as_asked(const Config& config);

// "dp 2 instead of 4, 2 micro-batches instead of 1, 32 samples an update as before"; "" of a run
// that has all its ranks.
std::string shrink_text(const Config& config);

}  // namespace tessera::config
