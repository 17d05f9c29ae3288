// Saving beside training: the loop copies, a thread hashes and writes. At most one save is under
// way. Convention: a writer's error is thrown by the next call, so it ends the run at a step
// boundary with its own exit code.
#pragma once

#include <chrono>
#include <future>

#include "checkpoint/checkpoint.h"
#include "checkpoint/save_interval.h"
#include "ranks/disk_calls.h"
#include "ranks/ranks.h"

namespace tessera::run {

class Saver {
 public:
  // `disk_s`: how long one call to a disk may take (parallel.disk_s).
  Saver(std::filesystem::path run, Retention retention, Ranks ranks = Ranks(nullptr),
        double disk_s = 600, SaveInterval interval = SaveInterval(0, 0));
  ~Saver();  // waits

  // Waits for the save under way, then copies the state of the session and starts to write it.
  void save(Session& session, const Progress& progress, const nlohmann::json& notes,
            const std::filesystem::path& flush);
  bool due(std::int64_t step) { return interval_.due(step); }  // by the number of steps
  // Sentences on saves that have ended; each is told once.
  std::vector<std::string> remarks();
  void poll();  // throws the error of a save that has ended
  void wait();  // until nothing is under way on any rank

 private:
  std::filesystem::path run_;
  Retention retention_;
  Ranks ranks_;
  void end();    // of the save under way; throws its error
  void watch();  // until the save under way has ended; shows meanwhile what its thread is in

  void learn(std::int64_t step, double cost_s);  // what a save cost, for the interval

  SaveInterval interval_;
  std::int64_t last_step_ = -1;  // of the last save, and when the loop went on after it
  std::chrono::steady_clock::time_point last_;
  SaveState state_;
  DiskCalls calls_;    // of the writer
  Snapshot snapshot_;  // belongs to the writer while `writing_` is valid
  std::future<void> writing_;
  std::vector<std::string> notes_;
};

}  // namespace tessera::run
