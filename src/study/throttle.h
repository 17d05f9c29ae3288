// Makes one rank of a run slow: its process is stopped and continued in a duty cycle of 30 ms.
// Ranks are found by the environment that launchers give them. Convention: it begins with the first
// line of metrics.jsonl, so that only steps are slowed; a process is never left stopped.
#pragma once

#include <atomic>
#include <filesystem>
#include <thread>

#include "study/grid.h"

namespace tessera::study {

class Throttler {
 public:
  // `session`: where the rank's process is looked for.
  Throttler(const Throttle& throttle, int session, std::filesystem::path folder);
  ~Throttler() { end(); }
  Throttler(const Throttler&) = delete;
  Throttler& operator=(const Throttler&) = delete;
  bool end();  // whether the rank was found and slowed

 private:
  void work();
  Throttle throttle_;
  int session_;
  std::filesystem::path folder_;
  std::atomic<bool> stop_ = false, found_ = false;
  std::thread thread_;
};

// The process that does the work of a rank in a session; 0: not found. A rank of ours has a guard
// above it with the same environment.
int process_of_rank(int session, int rank);

}  // namespace tessera::study
