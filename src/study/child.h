// One command as a process of its own: in a session of its own, so that everything it starts can be
// found and ended (mpirun and the ranks under it have groups of their own, but stay in the
// session), with a limit on its time, its output in files, and a rank that is slowed down where
// that is asked for. Convention: when run_child() returns, nothing of the session is left; the
// child gets SIGTERM when this process ends, however that happens.
#pragma once

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "study/grid.h"

namespace tessera::study {

// Requests to stop (SIGINT, SIGTERM, SIGHUP, SIGUSR1) are kept until somebody asks for them, from
// here to the end of the scope, and those that nobody asked for are dropped there; but those that
// whoever started us wanted ignored (nohup) are.
class StopRequests {
 public:
  StopRequests();
  ~StopRequests();
  StopRequests(const StopRequests&) = delete;
  StopRequests& operator=(const StopRequests&) = delete;
  // The number of a signal that came, or 0 after so many milliseconds, or when a child changed its
  // state.
  int wait(int ms) const;
  const sigset_t& before() const { return before_; }

 private:
  sigset_t kept_, before_;
  struct sigaction child_before_ = {};
};

struct ChildOptions {
  std::vector<std::string> command;   // the first is a path, or found in PATH
  std::filesystem::path folder;       // gets stdout.txt and stderr.txt
  double time_limit = 0, grace = 10;  // seconds; grace: from SIGTERM to SIGKILL
  Throttle throttle;
  std::string study = {};  // its folder: marks all processes of the command
  bool launcher = false;   // mpirun or srun: its environment says what containers need
  bool crowded = false;    // more ranks on a host than cores
  std::function<void(int pid, std::uint64_t started)> on_start =
      {};                                            // before the command itself begins
  std::function<void(double seconds)> on_tick = {};  // about ten times a second
};

struct ChildResult {
  int code = -1;  // 128 + n: ended by signal n; -1: not known
  bool timed_out = false, stopped = false, throttled = false;  // stopped: on request
  double wall = 0;
};
ChildResult run_child(const ChildOptions& options, const StopRequests& requests);

// Every process of a run has this variable in its environment: the study's folder, as mark_of()
// writes it.
inline constexpr const char* study_variable = "TESSERA_STUDY";
std::string mark_of(const std::filesystem::path& study);

// SIGTERM to what a study in that folder left running in the session that `leader` leads, after
// `grace` seconds SIGKILL. The number and its start come from a file that others may have written,
// so nothing happens to a process that only has the same number, that is another user's, or that
// carries no mark of this study.
void end_session(int leader, std::uint64_t started, const std::filesystem::path& study,
                 double grace);

// Why a run failed: its exit code in words, and the first `error:` line of its stderr, else the
// last line, else what a launcher put into a box of dashes.
std::string failure_reason(const ChildResult& result, double time_limit,
                           const std::filesystem::path& folder);
// The name of this machine since it was started, for pids that were written down.
std::string machine_name();

}  // namespace tessera::study
