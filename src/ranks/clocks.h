// The clocks of several machines side by side: how far this rank's steady clock is behind the first
// rank's. Convention: ranks of one machine share its clock, and the answer is exactly 0; across
// machines it is the middle of the shortest of some round trips, so it is off by at most half of
// that one.
#pragma once

#include <cstdint>

#include "ranks/ranks.h"

namespace tessera::run {

struct Clock {
  std::int64_t behind_ns = 0;     // added to this rank's clock it is the first rank's
  std::int64_t uncertain_ns = 0;  // half of the round trip that it was taken from
};
Clock compare_clocks(const Ranks& ranks);
std::int64_t steady_ns();

}  // namespace tessera::run
