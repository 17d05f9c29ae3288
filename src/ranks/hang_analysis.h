// Finds the rank that hangs: a pure function from what all ranks said of themselves to a finding.
// Convention: a rank that waits for others is a victim, so what counts is who does not wait. Ranks
// whose process does not run at all come first (stopped, or their machine is gone), then those that
// run but do not move, then a circle of ranks that wait for each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/heartbeat.h"

namespace tessera::run {

// One rank as others see it.
struct Seen {
  int rank = 0;
  std::string host;  // empty: it has not said anything yet
  int pid = 0;
  std::uint64_t started =
      0;  // of the process, in the kernel's ticks: a pid that was used again is another one
  std::uint64_t tick = 0;  // counts as long as its process runs
  bool ended = false;      // it has done its part: nobody waits for it
  double silent_s = 0;     // how long the reader has seen no tick
  char state = 0;  // of the process, as the kernel says it, where the reader can know: T stopped, D
                   // in a disk, X gone; 0: unknown
  comm::Look look;
};

struct Finding {
  std::vector<int> ranks;  // those that hang; empty: all wait in the same operation
  bool gone = false;       // not hanging: there is no such process any more
  std::string message;
};

// `table`: all ranks, in order. Nothing while nobody has stood still for `patience_s`, or while
// those that are waited for still move. An operation that all of them are in may take twice that.
std::optional<Finding> who_hangs(const std::vector<Seen>& table, double patience_s);

// "in step 12 (blocks.0.mlp)", "in all_reduce 57 of dp (optimizer)": what a rank does now, and the
// last thing it did with others.
std::string what_it_does(const comm::Look& look);
std::string call_text(const comm::Look& look, const comm::Look::Call& call);

// "rank 0 waits in all_reduce 57 of dp for rank 2", "rank 2 waits for nobody".
std::string waiting_line(const std::vector<Seen>& table, const Seen& rank);

}  // namespace tessera::run
