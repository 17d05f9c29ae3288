// How long the launcher waits before it ends a job that does not end by itself.
#pragma once

#include <chrono>

#include "ranks/memory_limit.h"

namespace tessera::run {

// From a verdict until the ranks that are left are killed, and until mpirun is.
inline constexpr auto grace = std::chrono::seconds(8), more_grace = std::chrono::seconds(12);
// From a rank's own exit code until that counts as a verdict: MPI ends the job by then, or never.
inline constexpr auto word_grace = std::chrono::seconds(20);

// How long mpirun may be without any rank here, before the first and after the last. Without memory
// for its threads it waits for itself for ever; on a busy machine it may take long to end.
inline std::chrono::seconds longest_alone(bool before_the_first) {
  if (memory_is_short()) return std::chrono::seconds(20);
  return std::chrono::seconds(before_the_first ? 300 : 120);
}

}  // namespace tessera::run
