// Requests to stop: SIGINT, SIGTERM and SIGUSR1 (what schedulers send before they kill).
// Convention: the first one asks the loop to save and end; a second one, whichever of them, ends the process at once,
// unless it follows within a quarter of a second: launchers signal a process and its group, which is one request. A rank's guard hands on
// what it gets with a number (sigqueue), so its first is never the second.
#pragma once

#include <csignal>

namespace tessera::run {

bool stop_requested();

// While it lives, the signals mean the above; afterwards what they meant before.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

 private:
};

}  // namespace tessera::run
