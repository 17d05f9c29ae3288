#include "ranks/guard.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "base/check.h"
#include "base/control_group.h"
#include "base/process.h"
#include "ranks/hang_dump.h"
#include "ranks/memory_limit.h"
#include "ranks/memory_place.h"
#include "ranks/stack_trace.h"
#include "ranks/stop.h"

namespace tessera::run {
namespace {

constexpr double round_s = 0.2, look_s = 1;
constexpr double grace_s = 3;         // from a verdict until a rank that has not ended is killed
constexpr double others_first_s = 5;  // the other ranks' watchdogs have more to say

int rounds(double seconds) { return static_cast<int>(std::min(seconds / round_s, 1e9)); }

const std::string help = "the same command goes on from the newest checkpoint";
const std::string less_memory =
    "; less memory: a larger batch.accumulate, parallel.recompute = \"full\", parallel.zero; "
    "`tessera explain` shows the peak";

// Leaves a note of what a rank that cannot speak for itself was doing, for the dump of a hang.
void leave_stopped_part(const HeartbeatFolder& folder, int rank, pid_t child,
                        const comm::Heartbeat& heartbeat) {
  Seen seen;
  seen.rank = rank;
  seen.host = host_name();
  seen.pid = child;
  leave_part(folder, rank, dump_part(seen, heartbeat, kernel_stack_of(child, "    ")));
}

// The record that the rank's own thread would have written next: the launcher learns its last step.
void show_last(const HeartbeatFolder& folder, int rank, pid_t child,
               const comm::Heartbeat& heartbeat) {
  Seen seen = folder.read(rank).value_or(Seen());
  if (seen.pid != child) return;  // it has none yet
  ++seen.tick;
  seen.look = heartbeat.look();
  folder.write(seen);
}

// Requests to stop that came to the guard.
struct Requests {
  int count = 0, last = 0;  // how many, and the signal of the last one
  void add(int signal) {
    const auto now = std::chrono::steady_clock::now();
    if (count == 0) first = now;
    // A terminal that is gone is no second request, nor is what follows at once.
    const bool again =
        signal != SIGHUP && (now - first) / std::chrono::nanoseconds(1) > same_request_ns(signal);
    if (count == 0 || again) {
      last = signal;
      ++count;
    }
  }
  std::chrono::steady_clock::time_point first;
};

// The error of a rank that ended by a signal. `starved`: the kernel killed it for lack of memory;
// `was`: what it was doing.
Error loss_of(const std::string& name, int signal, bool starved, bool joined,
              const std::string& was) {
  if (!joined && follows_from_no_memory(signal) && memory_is_short())
    return {ErrorKind::memory,
            fmt::format("{} ended by signal {} ({}) while it was {}; {}", name, signal,
                        ::strsignal(signal), was, memory_limit_text()),
            "", memory_limit_help};
  return {ErrorKind::rank_lost,
          fmt::format("{} is lost: {}; it was {}", name, how_it_ended(signal, starved), was), "",
          starved ? help + less_memory : help};
}

bool asked_for(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGUSR1 || signal == SIGHUP;
}

}  // namespace

struct Guard::Shared {
  comm::Heartbeat heartbeat;
  std::atomic<bool> told = false, joined = false;
  char folder[4096] = "";
};

std::string how_it_ended(int signal, bool out_of_memory) {
  switch (signal) {
    case SIGKILL:
      return out_of_memory ? "killed by the kernel for lack of memory (SIGKILL)"
                           : "killed from outside (SIGKILL)";
    case SIGSEGV:
      return "ended by a segmentation fault (SIGSEGV), a defect of ours or of a library";
    case SIGBUS:
      return "ended by a bus error (SIGBUS): a mapped file became shorter, or the disk of one is "
             "full or broken";
    case SIGABRT:
      return "aborted by itself or by a library (SIGABRT)";
    case SIGILL:
      return "ended by an instruction that this processor does not have (SIGILL)";
    case SIGFPE:
      return "ended by an integer division by zero (SIGFPE)";
    default:
      return fmt::format("ended by signal {} ({})", signal, ::strsignal(signal));
  }
}

Guard::Guard(int rank, double hang_s, const std::filesystem::path& log) {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorKind::memory, std::string("a rank's shared page: ") + std::strerror(errno));
  shared_ = new (memory) Shared;
  sigset_t handled, before;
  sigemptyset(&handled);
  sigaddset(&handled, SIGCHLD);
  for (const int signal : stop_signals()) sigaddset(&handled, signal);
  ::sigprocmask(SIG_BLOCK, &handled, &before);
  const long long killed_before = killed_for_memory();
  const pid_t launcher = ::getppid(), self = ::getpid();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0)
    throw Error(ErrorKind::memory,
                std::string("cannot start a rank's process: ") + std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody outlives its guard
    if (::getppid() != self) ::_exit(7);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    return;
  }
  ::prctl(PR_SET_NAME, "tessera-guard");
  const auto folder = [&] {
    return shared_->told.load(std::memory_order_acquire) ? HeartbeatFolder(shared_->folder)
                                                         : HeartbeatFolder();
  };
  const auto name = [&] { return fmt::format("rank {} ({}, pid {})", rank, host_name(), child); };
  // Times are counted in rounds: a guard that was stopped itself, with the whole job, has not
  // waited meanwhile.
  Requests requests;
  int status = 0, handed = 0, stopped = -1, decided = -1, round = 0;
  for (pid_t changed = 0;; changed = ::waitpid(child, &status, WNOHANG | WUNTRACED | WCONTINUED)) {
    if (changed == child && (WIFEXITED(status) || WIFSIGNALED(status))) break;
    if (changed == child) stopped = WIFSTOPPED(status) ? 0 : -1;
    const struct timespec pause = {0, static_cast<long>(round_s * 1e9)};
    if (const int signal = ::sigtimedwait(&handled, nullptr, &pause);
        signal > 0 && signal != SIGCHLD)
      requests.add(signal);
    // The first is kept until the rank has joined the others: of one that ends in the middle of
    // that, mpirun may wait to hear for ever.
    if (requests.count > handed &&
        (requests.count > 1 || shared_->joined.load(std::memory_order_acquire))) {
      union sigval value = {};
      value.sival_int = handed = requests.count;
      ::sigqueue(child, requests.last, value);
    }
    if (decided < 0 && ++round % rounds(look_s) == 0 && folder().verdict()) {
      decided = 0;
      if (stopped >= 0) leave_stopped_part(folder(), rank, child, shared_->heartbeat);
    }
    const bool late = decided >= 0 && ++decided > rounds(grace_s);
    if (late || ::getppid() != launcher)
      ::kill(child, SIGKILL);  // a launcher that is gone ends nobody
    if (hang_s > 0 && stopped >= 0 && ++stopped > rounds(hang_s + others_first_s)) {
      const Error error(ErrorKind::hang,
                        fmt::format("{} is stopped (SIGSTOP or a debugger); it was {}", name(),
                                    what_it_does(shared_->heartbeat.look())),
                        "", help);
      leave_stopped_part(folder(), rank, child, shared_->heartbeat);
      ::kill(child, SIGKILL);
      end_job(folder(), {error.exit_code(), error.what()}, log,
              [] { return ""; });  // there is no more of it
    }
  }
  if (WIFEXITED(status)) std::_Exit(WEXITSTATUS(status));
  const int signal = WTERMSIG(status);
  if (const auto verdict = folder().verdict()) std::_Exit(verdict->code);
  if (::getppid() != launcher)
    remove_memory_folder(memory_folder(host_name()));  // nobody will start the job again
  if (asked_for(signal) || ::getppid() != launcher) std::_Exit(128 + signal);
  const bool starved = signal == SIGKILL && killed_for_memory() > killed_before;
  show_last(folder(), rank, child, shared_->heartbeat);
  const Error error =
      loss_of(name(), signal, starved, shared_->joined.load(std::memory_order_acquire),
              what_it_does(shared_->heartbeat.look()));
  end_job(folder(), {error.exit_code(), error.what()}, log);
}

comm::Heartbeat& Guard::heartbeat() { return shared_->heartbeat; }

void Guard::joined() { shared_->joined.store(true, std::memory_order_release); }

void Guard::tell(const HeartbeatFolder& folder) {
  const std::string path = folder.path();
  if (path.empty() || path.size() >= sizeof(shared_->folder)) return;
  std::memcpy(shared_->folder, path.c_str(), path.size() + 1);
  shared_->told.store(true, std::memory_order_release);
}

}  // namespace tessera::run
