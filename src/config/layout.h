// The mesh of ranks pp x dp x sp x tp: what follows for axes that were not given, and what the
// model lets be shared out. Convention: a problem is returned as a Finding, never thrown; every
// axis is already within its range (1 to 65536).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/problem.h"

namespace tessera::config {

struct LayoutOutcome {
  std::vector<Finding> problems;
  std::vector<std::string> notes;  // what was decided for the user
};

// `world`: ranks that run; 0: not known yet, then run.np counts where it was given. Sets
// parallel.dp, run.np (the whole mesh) and, with sp > 1, parallel.sequence.
LayoutOutcome resolve_layout(Config& config, const std::function<bool(std::string_view)>& given,
                             int world);

// "pp2 x dp4": the axes that have more than one rank, outermost first; "": one rank.
std::string mesh_words(const Parallel& parallel);

// "1, 2, 3, 4, 6 or 12": the divisors of n, those nearest to `wish` when there are many.
std::string divisors(std::int64_t n, std::int64_t wish);

}  // namespace tessera::config
