// A thread beside each rank that shows the rank's heartbeat to the others and, when nothing moves
// for `parallel.hang_s` seconds, finds out who hangs, says so and ends the job with exit code 6.
// Convention: it makes no call of MPI and takes no lock of the rank's; it ends its own process, and
// every other rank's thread, guard (guard.h) and launcher sees the verdict and does the same.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/heartbeat.h"
#include "ranks/heartbeat_folder.h"

namespace tessera::run {

inline constexpr const char* heartbeats =
    ".pulse";  // of a run folder: where ranks meet when no launcher of ours made a place

class Watchdog {
 public:
  struct Options {
    int rank = 0, ranks = 1;
    double hang_s = 300;  // 0: nobody is called hanging, but verdicts of others still count
    double disk_s = 600;  // that a rank may be in one call to a disk without hanging; 0: for ever
    std::filesystem::path log;  // where the verdict is written as well
    std::function<void(const HeartbeatFolder&)>
        tell;  // called with the folder, once it is known; may be empty
  };
  // With a folder it watches at once, patiently while the job starts; without one it begins with
  // meet_in(). The thread that makes it is the rank's. The heartbeat must outlive it.
  Watchdog(comm::Heartbeat& heartbeat, Options options, HeartbeatFolder folder = {});
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  static Watchdog* here();  // of the rank that this thread works for; null: none
  // All ranks are there and the job runs: hang_s counts. `folder` exists and is empty; one that was
  // given before stays. The result says why the others cannot see this rank's heartbeat; "": they
  // can.
  std::string meet_in(const std::filesystem::path& folder);
  void done();  // the job is: its first rank removes the folder, unless a launcher will

 private:
  void start();
  void watch();
  void look_around();
  static void leave_parts();  // of all ranks of this process, for a hang (hang_dump.h)
  double patience() const;

  comm::Heartbeat& heartbeat_;
  const Options options_;
  Watchdog* before_;
  const pthread_t rank_thread_;
  HeartbeatFolder folder_;
  std::string problem_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false, running_ = false;
  // Used only by the watchdog thread.
  Seen me_;
  struct Watched {
    Seen seen;
    double since = -1;  // when it was first seen so; < 0: not watched
  };
  std::vector<Watched> others_;
  std::thread thread_;
};

// Stops for ever at the step and on the rank of TESSERA_HANG=RANK:STEP, for tests.
void hang_if_asked(int rank, std::int64_t step);

}  // namespace tessera::run
