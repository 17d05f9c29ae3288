#include "ranks/supervise.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/process.h"
#include "base/say.h"
#include "base/streams.h"
#include "base/threads.h"
#include "ranks/heartbeat_folder.h"
#include "ranks/memory_limit.h"
#include "ranks/patience.h"
#include "ranks/relay.h"
#include "ranks/stop.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

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

// How long ranks may take to join each other where a limit leaves MPI little memory: one of them
// may have ended inside of it without a word, and the others would wait for parallel.hang_s. Ranks
// that share cores take turns.
std::chrono::seconds longest_joining(const JobStart& job) {
  const int turns = job.crowded ? (job.ranks - 1) / std::max(available_cores(), 1) + 1 : 1;
  return std::chrono::seconds(40 * turns);
}

bool none_has_joined(const HeartbeatFolder& folder) {
  const std::vector<Seen> ranks = folder.read_all();
  return folder && std::all_of(ranks.begin(), ranks.end(), [](const Seen& rank) {
           return rank.look.doing.empty() || rank.look.doing == joining_text;
         });
}

Error without_memory(const JobStart& job, const std::string& what) {
  return {ErrorKind::memory, what, job.mpirun,
          "it lacks memory or threads: `ulimit -a` shows the limits, -v that of memory; "
          "--comm local starts ranks as threads of one process"};
}
Error without_hosts(const JobStart& job, const std::string& what) {
  return {ErrorKind::rank_lost, what + ", and no rank has begun", job.mpirun,
          "`mpirun --host NAME true` must start a process on every host; `tessera doctor "
          "--hostfile FILE` names those that do not answer"};
}

struct Ended {
  int status = 0, asked = 0;      // of mpirun; how many times it was asked to stop
  std::optional<Error> given_up;  // why we ended it
};

// The step that a rank says it is in; -1: in none.
std::int64_t step_of(const std::optional<Seen>& rank) {
  if (!rank) return -1;
  const auto space = rank->look.doing.rfind(' ');
  const std::string last = space == std::string::npos ? "" : rank->look.doing.substr(space + 1);
  return last.empty() || last.find_first_not_of("0123456789") != last.npos
             ? -1
             : std::strtoll(last.c_str(), nullptr, 10);
}

// Until mpirun has ended, by itself or by us: hands requests on, and ends what a verdict has not
// ended.
Ended wait_for(pid_t child, const sigset_t& handled, const JobStart& job,
               const HeartbeatFolder& folder, const std::function<bool(std::int64_t)>& look) {
  using std::chrono::steady_clock;
  int status = 0, asked = 0;
  bool wanted = false, forwarded = false, started = false;
  std::set<pid_t> told;
  const auto began = steady_clock::now();
  auto seen = began, looked = began, first = began;
  constexpr auto never = steady_clock::time_point::max();
  auto said = never, decided = never;
  const auto give_up = [&](const Error& error) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
    return Ended{status, asked, error};
  };
  while (::waitpid(child, &status, WNOHANG) != child) {
    const struct timespec pause = {0, 200'000'000};
    if (const int signal = ::sigtimedwait(&handled, nullptr, &pause);
        signal > 0 && signal != SIGCHLD) {
      // Asked again, mpirun ends them; a terminal that is gone is no second request.
      // A signal that follows at once is no second request, either.
      const auto now = steady_clock::now();
      if (asked == 0) first = now;
      const bool again =
          signal != SIGHUP && (now - first) / std::chrono::nanoseconds(1) > same_request_ns(signal);
      if (asked == 0 || again) ++asked;
      if (asked > 1 && again) ::kill(child, SIGTERM);
    }
    wanted |= look(step_of(folder.read(0)));
    if (asked == 1 || (wanted && asked == 0)) {
      ask_ranks(child, told);  // also those that were yet to start
      // Where all of them are on other hosts, mpirun hands it on.
      if (told.empty() && !job.hosts.empty() && !folder.read_all().empty() &&
          !std::exchange(forwarded, true))
        ::kill(child, SIGUSR1);
    }
    if (const auto now = steady_clock::now(); now - looked > std::chrono::seconds(2)) {
      looked = now;
      // Ranks on other hosts are seen by their records, which stay there.
      if (job.hosts.empty() ? has_ranks(child) : !folder || !folder.read_all().empty()) {
        seen = now;
        started = true;
      }
      if (const auto longest = longest_alone(!started); now - seen > longest) {
        const std::string what =
            fmt::format("mpirun has had no rank for {} s and does not end", longest.count());
        return give_up(job.hosts.empty() ? without_memory(job, what) : without_hosts(job, what));
      }
      if (const auto longest = longest_joining(job);
          memory_is_short() && now - began > longest && none_has_joined(folder))
        return give_up(without_memory(job, fmt::format("the ranks have not joined each other for "
                                                       "{} s; {}",
                                                       longest.count(), memory_limit_text())));
    }
    if (const auto now = steady_clock::now(); decided == never) {
      const auto code = folder.code();
      if (code && said == never) said = now;
      const bool long_ago = code && now - said > word_grace;
      if (!long_ago && !folder.verdict()) continue;
      decided = now;  // also where no verdict can be written: the code does as well
      if (long_ago)
        folder.decide({*code, fmt::format("a rank ended with exit code {}, and MPI has not ended "
                                          "the job within {} s",
                                          *code, word_grace.count())});
    }
    if (steady_clock::now() - decided > grace) kill_ranks(folder);
    if (steady_clock::now() - decided > more_grace) ::kill(child, SIGKILL);
  }
  return {status, asked, std::nullopt};
}

// mpirun with all that it is told; the texts are in `words`, which outlive the call of exec.
std::vector<std::string> command_of(const JobStart& job, const fs::path& folder) {
  std::vector<std::string> words = {job.mpirun};
  if (!job.hosts.empty()) {
    const bool open_mpi = is_open_mpi(job.mpirun);
    for (std::string& word : write_hostfile(job.hosts, folder, open_mpi))
      words.push_back(std::move(word));
    // Open MPI brings only its own variables to other hosts; MPICH brings all.
    for (char** entry = environ; open_mpi && *entry; ++entry)
      if (const std::string_view variable = *entry; variable.starts_with("TESSERA_"))
        words.insert(words.end(), {"-x", std::string(variable.substr(0, variable.find('=')))});
  }
  words.insert(words.end(),
               {"-np", std::to_string(job.ranks), fs::read_symlink("/proc/self/exe").string()});
  words.insert(words.end(), job.arguments.begin(), job.arguments.end());
  return words;
}

// Starts mpirun with its output in `relay`.
pid_t start_mpirun(const JobStart& job, std::vector<std::string> words, const Relay& relay,
                   const sigset_t& before) {
  std::vector<char*> command;
  for (std::string& word : words) command.push_back(word.data());
  command.push_back(nullptr);
  const pid_t child = ::fork();
  if (child < 0)
    throw Error(ErrorKind::memory, std::string("cannot start mpirun: ") + std::strerror(errno),
                job.mpirun);
  if (child != 0) return child;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // a launcher that is killed takes the job along
  ::setpgid(0, 0);                     // a terminal's Ctrl-C is for us alone
  if (const int nothing = ::open("/dev/null", O_RDONLY); nothing >= 0)
    ::dup2(nothing, STDIN_FILENO);
  relay.become_output();
  ::execv(job.mpirun.c_str(), command.data());
  std::_Exit(127);
}

void tell(JobEnd& end, const Error& error) {
  end.code = error.exit_code();
  end.error = error.what();
}

// Whether mpirun itself ends with this code: a rank ends with one of docs/cli.md, where 1 is not an
// error, or by a signal.
bool is_of_mpirun(int code) {
  const auto documented = {static_cast<int>(ErrorKind::internal),
                           static_cast<int>(ErrorKind::stopped)};
  return code == 1 ||
         (code > static_cast<int>(ErrorKind::device) && (code < 128 || code >= 128 + 32) &&
          std::find(documented.begin(), documented.end(), code) == documented.end());
}

// How the job ended, where no rank left a verdict. `begun`: ranks had; `silent`: and none came to
// an end of its own.
void judge(JobEnd& end, const JobStart& job, int status, bool begun, bool silent) {
  const std::string help = "the same command goes on from the newest checkpoint";
  const int killer = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) - 128;
  if (end.asked == 0 && (!begun || silent) && follows_from_no_memory(killer) && memory_is_short())
    return tell(end, Error(ErrorKind::memory,
                           fmt::format("mpirun or a rank ended by signal {} ({}), and no rank has "
                                       "said why; {}",
                                       killer, ::strsignal(killer), memory_limit_text()),
                           job.mpirun, memory_limit_help));
  if (WIFSIGNALED(status))
    return tell(end, Error(ErrorKind::rank_lost,
                           fmt::format("mpirun ended by signal {} ({})", WTERMSIG(status),
                                       ::strsignal(WTERMSIG(status))),
                           job.mpirun));
  end.code = WEXITSTATUS(status);
  const int signal = end.code - 128;
  // The signal that we sent came before a rank listened to it; MPICH's mpirun ends with the bare
  // number of the signal, or with the bits of that and of the one by which it ended other ranks.
  const bool bare = (end.code == SIGUSR1 || end.code == (SIGUSR1 | SIGKILL)) &&
                    (!begun || silent) && !is_open_mpi(job.mpirun);
  if (end.asked == 1 && (signal == SIGUSR1 || bare)) {
    end.code = static_cast<int>(ErrorKind::stopped);
    say(stderr,
        "stopped on request before there was anything to save; the same command starts it, or goes "
        "on from the newest checkpoint\n");
    return;
  }
  if (signal > 0 && signal < 32 && end.asked == 0 && signal != SIGTERM && signal != SIGINT &&
      signal != SIGUSR1 && signal != SIGHUP)
    return tell(end, Error(ErrorKind::rank_lost,
                           fmt::format("mpirun says that a rank was ended by signal {} ({}), but "
                                       "nobody saw which",
                                       signal, ::strsignal(signal)),
                           job.mpirun, help));
  // A rank that ends by itself leaves its code, so this one is mpirun's or its daemon's; other
  // hosts need not share the folder.
  const bool of_mpirun = job.hosts.empty() ? end.code != 0 : is_of_mpirun(end.code);
  if (end.asked == 0 && (!begun || silent) && of_mpirun && memory_is_short())
    return tell(end, Error(ErrorKind::memory,
                           fmt::format("mpirun ended with {}, and no rank has said why; {}",
                                       end.code, memory_limit_text()),
                           job.mpirun, memory_limit_help));
  if (const std::string what = fmt::format("mpirun ended with {}", end.code);
      !begun && end.asked == 0 && is_of_mpirun(end.code))
    return tell(end, !job.hosts.empty()
                         ? without_hosts(job, what)
                         : Error(ErrorKind::rank_lost, what + ", and no rank has begun", job.mpirun,
                                 "`mpirun -np 2 true` must work here; --comm local starts ranks as "
                                 "threads of one process"));
  // A daemon of mpirun's that is gone with its host: it ends the ranks itself, and no rank speaks.
  if (end.code != 0 && silent && end.asked == 0 && job.goes_on)
    tell(end, Error(ErrorKind::rank_lost,
                    fmt::format("mpirun ended with {}, and no rank has said why: {}", end.code,
                                job.hosts.size() > 1 ? "a host is lost" : "its daemon is gone"),
                    job.mpirun, help));
}

}  // namespace

StopSignals::StopSignals() {
  sigemptyset(&handled);
  sigaddset(&handled, SIGCHLD);
  for (const int signal : stop_signals()) sigaddset(&handled, signal);
  ::sigprocmask(SIG_BLOCK, &handled, &before);
}

StopSignals::~StopSignals() { ::sigprocmask(SIG_SETMASK, &before, nullptr); }

bool StopSignals::asked(std::chrono::milliseconds wait) const {
  const auto until = std::chrono::steady_clock::now() + wait;
  for (;;) {
    const auto left = std::max(until - std::chrono::steady_clock::now(),
                               std::chrono::steady_clock::duration::zero());
    const long ns =
        static_cast<long>(std::chrono::duration_cast<std::chrono::nanoseconds>(left).count());
    const struct timespec pause = {ns / 1'000'000'000, ns % 1'000'000'000};
    const int signal = ::sigtimedwait(&handled, nullptr, &pause);
    if (signal <= 0 || signal != SIGCHLD) return signal > 0;
  }
}

JobEnd run_job(const JobStart& start, const StopSignals& signals,
               const std::function<bool(std::int64_t step)>& look) {
  prepare_for_mpirun(start.crowded);
  if (!std::getenv(terminal_variable))
    ::setenv(terminal_variable, ::isatty(STDOUT_FILENO) ? "1" : "0", 1);
  hand_terminal_on();
  ::setenv(ranks_variable, std::to_string(start.asked).c_str(), 1);
  const Job job{new_folder(start.out)};
  if (job.folder)
    ::setenv(heartbeat_variable, job.folder.path().c_str(), 1);
  else
    ::unsetenv(heartbeat_variable);
  Relay relay;  // its thread gets no signals
  const pid_t child =
      start_mpirun(start, command_of(start, job.folder.path()), relay, signals.before);
  const Ended ended = wait_for(child, signals.handled, start, job.folder, look);
  relay.finish();
  std::int64_t last = -1;
  for (const Seen& rank : job.folder.read_all()) last = std::max(last, step_of(rank));
  look(last);
  JobEnd end;
  end.asked = ended.asked;
  end.opened = job.folder.left(HeartbeatFolder::Sign::opened);
  if (const auto verdict = job.folder.verdict()) {
    end.code = verdict->code;
    end.error = verdict->text;
  } else if (const auto code = job.folder.code()) {
    end.code = *code;  // the rank has said why, whatever became of mpirun
  } else if (ended.given_up) {
    tell(end, *ended.given_up);
  } else {
    const bool some = !job.folder.read_all().empty(),
               ended_itself = job.folder.left(HeartbeatFolder::Sign::ended);
    judge(end, start, ended.status, some || ended_itself || !job.folder, some && !ended_itself);
  }
  end.deaf = relay.lost();
  return end;
}

}  // namespace tessera::run
