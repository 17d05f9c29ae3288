// Requests to stop: SIGINT, SIGTERM, SIGUSR1 (what schedulers send before they kill) and SIGHUP
// (the terminal is gone), unless that was ignored when the process started (nohup). Convention: the
// first one asks the loop to save and end; a second one, whichever of them, ends the process at
// once, unless it follows so soon that it is the same request (same_request_ns), or unless it is
// SIGHUP, which shells repeat and nobody sends out of impatience. A rank's guard hands on what it
// gets with a number (sigqueue), so its first is never the second.
#pragma once

#include <csignal>
#include <vector>

namespace tessera::run {

bool stop_requested();

// How long after the first one a signal is still the same request. Launchers signal a process and
// its group; Slurm sends SIGTERM to a step's processes when the job is preempted, and srun, which
// gets it too, has it sent once more. A person is impatient with SIGINT.
long same_request_ns(int signal);

// The signals that mean a request to stop in this process.
std::vector<int> stop_signals();

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
