#include "ranks/supervise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/process.h"
#include "base/say.h"
#include "base/streams.h"
#include "ranks/heartbeat_folder.h"
#include "ranks/relay.h"
#include "ranks/stop.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

// From a verdict until the ranks that are left are killed, and until mpirun is.
constexpr auto grace = std::chrono::seconds(8), more_grace = std::chrono::seconds(12);

// How long mpirun may be without any rank here, before the first and after the last. Without memory
// for its threads it waits for itself for ever.
std::chrono::seconds longest_alone(bool before_the_first) {
  struct rlimit limit {};
  const bool limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return std::chrono::seconds(before_the_first && !limited ? 300 : 20);
}

bool comes_from(pid_t process, pid_t mpirun) {
  for (pid_t above = stat_of(process).parent; above > 1; above = stat_of(above).parent)
    if (above == mpirun) return true;
  return false;
}

bool has_ranks(pid_t mpirun) {
  for (const int process : all_processes())
    if (process != mpirun && stat_of(process).state != 'Z' && comes_from(process, mpirun))
      return true;  // one that ended may lie there
  return false;
}

// The ranks that mpirun started here and that are not among `asked` yet. They are asked one by one:
// not every mpirun hands signals on, and all end the job at once on SIGTERM. Only what mpirun
// itself started: a guard hands it on to its rank, for whom one more might be a second request.
void ask_ranks(pid_t mpirun, std::set<pid_t>& asked) {
  std::error_code ignored;
  const auto exe_of = [&](pid_t process) {
    return fs::read_symlink(fmt::format("/proc/{}/exe", process), ignored);
  };
  const fs::path self = exe_of(::getpid());
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process <= 1 || asked.contains(process) || exe_of(process) != self) continue;
    const pid_t parent = stat_of(process).parent;
    if (exe_of(parent) == self) continue;
    for (pid_t above = parent; above > 1; above = stat_of(above).parent)
      if (above == mpirun) {
        asked.insert(process);
        ::kill(process, SIGUSR1);
        break;
      }
  }
}

void kill_ranks(const HeartbeatFolder& folder) {
  for (const Seen& rank : folder.read_all())
    if (is_alive(rank) && is_own(rank.pid)) ::kill(rank.pid, SIGKILL);
}

// Beside the run folder, which must not be made before its configuration was found sound; all
// machines of the job see that place.
HeartbeatFolder new_folder(const fs::path& out) {
  std::error_code ignored;
  fs::path place = fs::absolute(out, ignored);
  for (const fs::path& where : {place, place.parent_path()})
    sweep_heartbeat_folders(where);  // later runs have theirs inside
  while (!fs::is_directory(place, ignored) && place.has_relative_path())
    place = place.parent_path();
  return new_heartbeat_folder(place);
}

// Both end with this function, however it ends.
struct Job {
  HeartbeatFolder folder;
  ~Job() {
    kill_ranks(folder);
    folder.remove();
  }
};

[[noreturn]] void give_up(pid_t child, const std::string& mpirun, std::chrono::seconds alone) {
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  throw Error(ErrorKind::memory,
              fmt::format("mpirun has had no rank for {} s and does not end", alone.count()),
              mpirun,
              "does it have the memory and the threads that it needs? `ulimit -a` shows the "
              "limits, -v that of memory; --comm local starts "
              "ranks as threads of one process");
}

struct Ended {
  int status = 0, asked = 0;  // of mpirun; how many times it was asked to stop
};

// Until mpirun has ended, by itself or by us: hands requests on, and ends what a verdict has not
// ended.
Ended wait_for(pid_t child, const sigset_t& handled, const std::string& mpirun,
               const HeartbeatFolder& folder) {
  int status = 0, asked = 0;
  std::set<pid_t> told;
  auto seen = std::chrono::steady_clock::now(), looked = seen;
  bool started = false;
  std::chrono::steady_clock::time_point decided = std::chrono::steady_clock::time_point::max();
  while (::waitpid(child, &status, WNOHANG) != child) {
    const struct timespec pause = {0, 200'000'000};
    if (const int signal = ::sigtimedwait(&handled, nullptr, &pause);
        signal > 0 && signal != SIGCHLD) {
      // Asked again, mpirun ends them; a terminal that is gone is no second request.
      if (asked == 0 || signal != SIGHUP) ++asked;
      if (asked > 1 && signal != SIGHUP) ::kill(child, SIGTERM);
    }
    if (asked == 1) ask_ranks(child, told);  // also those that were yet to start
    if (const auto now = std::chrono::steady_clock::now(); now - looked > std::chrono::seconds(2)) {
      looked = now;
      if (has_ranks(child)) seen = now, started = true;
      if (now - seen > longest_alone(!started)) give_up(child, mpirun, longest_alone(!started));
    }
    if (decided == std::chrono::steady_clock::time_point::max() && folder.verdict())
      decided = std::chrono::steady_clock::now();
    if (decided == std::chrono::steady_clock::time_point::max()) continue;
    if (std::chrono::steady_clock::now() - decided > grace) kill_ranks(folder);
    if (std::chrono::steady_clock::now() - decided > more_grace) ::kill(child, SIGKILL);
  }
  return {status, asked};
}

}  // namespace

int run_under_mpirun(const std::string& mpirun, int ranks, char** argv, const fs::path& out,
                     bool crowded) {
  prepare_for_mpirun(crowded);
  ::setenv(terminal_variable, ::isatty(STDOUT_FILENO) ? "1" : "0", 1);
  hand_terminal_on();
  const Job job{new_folder(out)};
  if (job.folder)
    ::setenv(heartbeat_variable, job.folder.path().c_str(), 1);
  else
    ::unsetenv(heartbeat_variable);
  std::string np = std::to_string(ranks), self = fs::read_symlink("/proc/self/exe").string();
  std::vector<char*> command = {const_cast<char*>(mpirun.c_str()), const_cast<char*>("-np"),
                                np.data(), self.data()};
  for (char** argument = argv + 1; *argument; ++argument) command.push_back(*argument);
  command.push_back(nullptr);
  sigset_t handled, before;
  sigemptyset(&handled);
  sigaddset(&handled, SIGCHLD);
  for (const int signal : stop_signals()) sigaddset(&handled, signal);
  ::sigprocmask(SIG_BLOCK, &handled, &before);
  Relay relay;  // its thread gets no signals
  const pid_t child = ::fork();
  if (child < 0)
    throw Error(ErrorKind::memory, std::string("cannot start mpirun: ") + std::strerror(errno),
                mpirun);
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // a launcher that is killed takes the job along
    ::setpgid(0, 0);                     // a terminal's Ctrl-C is for us alone
    if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0)
      ::dup2(nothing, STDIN_FILENO);
    relay.become_output();
    ::execv(mpirun.c_str(), command.data());
    std::_Exit(127);
  }
  const Ended ended = wait_for(child, handled, mpirun, job.folder);
  const int status = ended.status, asked = ended.asked;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  relay.finish();
  if (const auto verdict = job.folder.verdict()) {
    say_lines(stderr, "error: " + verdict->text + "\n");
    return verdict->code;
  }
  if (WIFSIGNALED(status))
    throw Error(ErrorKind::rank_lost,
                fmt::format("mpirun ended by signal {} ({})", WTERMSIG(status),
                            ::strsignal(WTERMSIG(status))),
                mpirun);
  const int code = WEXITSTATUS(status), signal = code - 128;
  if (asked == 1 && signal == SIGUSR1) {  // what we sent came before a rank listened to it
    say(stderr,
        "stopped on request before there was anything to save; the same command starts it, or goes "
        "on from the newest checkpoint\n");
    return static_cast<int>(ErrorKind::stopped);
  }
  if (signal > 0 && signal < 32 && asked == 0 && signal != SIGTERM && signal != SIGINT &&
      signal != SIGUSR1 && signal != SIGHUP)
    throw Error(
        ErrorKind::rank_lost,
        fmt::format("mpirun says that a rank was ended by signal {} ({}), but nobody saw which",
                    signal, ::strsignal(signal)),
        mpirun, "the same command goes on from the newest checkpoint");
  if (code == 0 && relay.lost())
    throw Error(ErrorKind::disk, "cannot write to stdout: is it closed, or its disk full?", "",
                "the work of the ranks is done");
  return code;
}

}  // namespace tessera::run
