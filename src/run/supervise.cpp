#include "run/supervise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
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
#include "run/pulse_folder.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

// From a verdict until the ranks that are left are killed, and until mpirun is.
constexpr auto grace = std::chrono::seconds(8), more_grace = std::chrono::seconds(12);

// The ranks that mpirun started here and that are not among `asked` yet. They are asked one by one: not every mpirun hands signals on, and
// all end the job at once on SIGTERM. Only what mpirun itself started: a guard hands it on to its rank, for whom one more might be a second
// request.
void ask_ranks(pid_t mpirun, std::set<pid_t>& asked) {
  std::error_code ignored;
  const auto exe_of = [&](pid_t process) { return fs::read_symlink(fmt::format("/proc/{}/exe", process), ignored); };
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

void kill_ranks(const PulseFolder& folder) {
  for (const Seen& rank : folder.read_all())
    if (is_alive(rank) && is_own(rank.pid)) ::kill(rank.pid, SIGKILL);
}

// Beside the run folder, which must not be made before its configuration was found sound; all machines of the job see that place.
PulseFolder new_folder(const fs::path& out) {
  std::error_code ignored;
  fs::path place = fs::absolute(out, ignored);
  for (const fs::path& where : {place, place.parent_path()}) sweep_pulse_folders(where);  // later runs have theirs inside
  while (!fs::is_directory(place, ignored) && place.has_relative_path()) place = place.parent_path();
  return new_pulse_folder(place);
}

// Both end with this function, however it ends.
struct Job {
  PulseFolder folder;
  ~Job() {
    kill_ranks(folder);
    folder.remove();
  }
};

}  // namespace

int run_under_mpirun(const std::string& mpirun, int ranks, char** argv, const fs::path& out, bool crowded) {
  prepare_for_mpirun(crowded);
  ::setenv(terminal_variable, ::isatty(STDOUT_FILENO) ? "1" : "0", 1);
  const Job job{new_folder(out)};
  if (job.folder)
    ::setenv(pulse_variable, job.folder.path().c_str(), 1);
  else
    ::unsetenv(pulse_variable);
  std::string np = std::to_string(ranks), self = fs::read_symlink("/proc/self/exe").string();
  std::vector<char*> command = {const_cast<char*>(mpirun.c_str()), const_cast<char*>("-np"), np.data(), self.data()};
  for (char** argument = argv + 1; *argument; ++argument) command.push_back(*argument);
  command.push_back(nullptr);
  sigset_t handled, before;
  sigemptyset(&handled);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGUSR1}) sigaddset(&handled, signal);
  ::sigprocmask(SIG_BLOCK, &handled, &before);
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorKind::memory, std::string("cannot start mpirun: ") + std::strerror(errno), mpirun);
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // a launcher that is killed takes the job along
    ::setpgid(0, 0);                     // a terminal's Ctrl-C is for us alone
    if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0) ::dup2(nothing, STDIN_FILENO);
    ::execv(mpirun.c_str(), command.data());
    std::_Exit(127);
  }
  int status = 0, asked = 0;
  std::set<pid_t> told;
  std::chrono::steady_clock::time_point decided = std::chrono::steady_clock::time_point::max();
  while (::waitpid(child, &status, WNOHANG) != child) {
    const struct timespec pause = {0, 200'000'000};
    if (const int signal = ::sigtimedwait(&handled, nullptr, &pause); signal > 0 && signal != SIGCHLD) {
      if (asked++ > 0) ::kill(child, SIGTERM);  // asked again: mpirun ends them
    }
    if (asked == 1) ask_ranks(child, told);  // also those that were yet to start
    if (decided == std::chrono::steady_clock::time_point::max() && job.folder.verdict()) decided = std::chrono::steady_clock::now();
    if (decided == std::chrono::steady_clock::time_point::max()) continue;
    if (std::chrono::steady_clock::now() - decided > grace) kill_ranks(job.folder);
    if (std::chrono::steady_clock::now() - decided > more_grace) ::kill(child, SIGKILL);
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  if (const auto verdict = job.folder.verdict()) {
    say_lines(stderr, "error: " + verdict->text + "\n");
    return verdict->code;
  }
  if (WIFSIGNALED(status))
    throw Error(ErrorKind::rank_lost, fmt::format("mpirun ended by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status))),
                mpirun);
  const int code = WEXITSTATUS(status), signal = code - 128;
  if (asked == 1 && signal == SIGUSR1) {  // what we sent came before a rank listened to it
    say(stderr,
        "stopped on request before there was anything to save; the same command starts it, or goes on from the newest checkpoint\n");
    return static_cast<int>(ErrorKind::stopped);
  }
  if (signal > 0 && signal < 32 && asked == 0 && signal != SIGTERM && signal != SIGINT && signal != SIGUSR1)
    throw Error(ErrorKind::rank_lost,
                fmt::format("mpirun says that a rank was ended by signal {} ({}), but nobody saw which", signal, ::strsignal(signal)),
                mpirun, "the same command goes on from the newest checkpoint");
  return code;
}

}  // namespace tessera::run
