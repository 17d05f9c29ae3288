#include "study/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/check.h"
#include "base/printable.h"
#include "base/process.h"
#include "study/throttle.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::vector<int> session_of(int leader) {
  std::vector<int> out;
  for (const int pid : all_processes())
    if (const ProcessStat s = stat_of(pid); s.state != 0 && s.state != 'Z' && s.session == leader) out.push_back(pid);
  return out;
}

void signal_session(int leader, int signal) {
  for (const int pid : session_of(leader)) {
    ::kill(pid, signal);
    ::kill(pid, SIGCONT);  // one that is stopped hears nothing
  }
}

// Kills until nobody is left: a process may start another one while it is being looked for.
void kill_session(int leader) {
  for (int i = 0; i < 100 && !session_of(leader).empty(); ++i) {
    signal_session(leader, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int open_output(const fs::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) throw Error(ErrorKind::disk, std::string("cannot write: ") + std::strerror(errno), path.string());
  return file;
}

struct Descriptor {
  int number = -1;
  explicit Descriptor(int n) : number(n) {}
  ~Descriptor() { close(); }
  void close() {
    if (number >= 0) ::close(number);
    number = -1;
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

// The child waits for a byte before it becomes the command: by then its pid is in the database. Only calls that are safe after fork.
[[noreturn]] void become(char** command, const sigset_t& signals, int go, int start, int parent, int out, int err, int in) {
  ::close(start);  // so that the end of the parent is the end of what is read
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  char byte = 0;
  if (::getppid() != parent || ::read(go, &byte, 1) != 1) ::_exit(126);  // the parent is gone
  ::dup2(in, STDIN_FILENO), ::dup2(out, STDOUT_FILENO), ::dup2(err, STDERR_FILENO);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  ::execvp(command[0], command);
  const char* why = std::strerror(errno);
  for (const char* text : {"error: cannot start ", static_cast<const char*>(command[0]), ": ", why, "\n"})
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  ::_exit(127);
}

}  // namespace

StopRequests::StopRequests() {
  sigemptyset(&kept_);
  sigaddset(&kept_, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (struct sigaction now = {}; ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&kept_, signal);
  ::pthread_sigmask(SIG_BLOCK, &kept_, &before_);
}

StopRequests::~StopRequests() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int StopRequests::wait(int ms) const {
  const struct timespec pause = {ms / 1000, (ms % 1000) * 1'000'000L};
  const int signal = ::sigtimedwait(&kept_, nullptr, &pause);
  return signal > 0 && signal != SIGCHLD ? signal : 0;
}

ChildResult run_child(const ChildOptions& options, const StopRequests& requests) {
  CHECK(!options.command.empty(), "a command without words");
  Descriptor out(open_output(options.folder / "stdout.txt")), err(open_output(options.folder / "stderr.txt"));
  Descriptor in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error(ErrorKind::memory, std::string("cannot start a process: ") + std::strerror(errno));
  Descriptor go(ends[0]), start(ends[1]);
  std::vector<char*> command;
  for (const std::string& word : options.command) command.push_back(const_cast<char*>(word.c_str()));
  command.push_back(nullptr);
  if (options.launcher) prepare_for_mpirun(options.crowded);
  const int self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw Error(ErrorKind::memory, std::string("cannot start a process: ") + std::strerror(errno), options.command[0]);
  if (child == 0) become(command.data(), requests.before(), go.number, start.number, self, out.number, err.number, in.number);
  go.close();
  ChildResult result;
  const auto began = Clock::now();
  try {
    if (options.on_start) options.on_start(child, stat_of(child).started);
  } catch (...) {
    start.close();
    ::waitpid(child, nullptr, 0);
    throw;
  }
  const bool told = ::write(start.number, "x", 1) == 1;
  start.close();
  if (!told) result.code = 126;
  Throttler throttler(options.throttle, child, options.folder);
  int status = 0;
  auto asked = Clock::time_point::max();
  while (::waitpid(child, &status, WNOHANG) != child) {
    const bool again = asked != Clock::time_point::max();
    if (requests.wait(100) != 0) {
      result.stopped = true;
      if (again) kill_session(child);  // asked twice: at once
    }
    if (options.on_tick) options.on_tick(seconds_since(began));
    if (!again && options.time_limit > 0 && seconds_since(began) > options.time_limit) result.timed_out = true;
    if (!again && (result.stopped || result.timed_out)) {
      throttler.end();
      asked = Clock::now();
      signal_session(child, SIGTERM);
    }
    if (again && seconds_since(asked) > options.grace) kill_session(child);
  }
  result.wall = seconds_since(began);
  result.throttled = throttler.end();
  kill_session(child);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

void end_session(int leader, std::uint64_t started, double grace) {
  if (leader <= 1) return;
  const ProcessStat stat = stat_of(leader);
  // Without its leader a session keeps its number, so no other process can have got that.
  if (stat.state != 0 && (stat.started != started || stat.session != leader)) return;
  if (session_of(leader).empty()) return;
  signal_session(leader, SIGTERM);
  const auto began = Clock::now();
  while (!session_of(leader).empty() && seconds_since(began) < grace) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  kill_session(leader);
}

std::string failure_reason(const ChildResult& result, double time_limit, const fs::path& folder) {
  if (result.timed_out) return fmt::format("it ran longer than its time limit of {:g} s and was ended", time_limit);
  static const std::pair<int, const char*> words[] = {{1, "a difference was found"},
                                                      {2, "the command line or configuration was refused"},
                                                      {3, "the data set or an image is bad"},
                                                      {4, "a checkpoint or weights are bad"},
                                                      {5, "steps are not finite"},
                                                      {6, "a rank hangs"},
                                                      {7, "a rank was lost"},
                                                      {8, "out of memory"},
                                                      {9, "the disk is full or not writable"},
                                                      {70, "a defect of tessera's"},
                                                      {75, "it was stopped on request"},
                                                      {127, "the command could not be started"}};
  std::string said = fmt::format("exit code {}", result.code);
  for (const auto& [code, text] : words)
    if (code == result.code) said = fmt::format("{} (exit code {})", text, code);
  if (result.code > 128) {
    const char* name = ::strsignal(result.code - 128);
    said = fmt::format("ended by signal {}{}", result.code - 128, name ? fmt::format(" ({})", name) : "");
  }
  std::ifstream file(folder / "stderr.txt", std::ios::binary);
  std::string line;
  for (int i = 0; i < 10'000 && std::getline(file, line); ++i)
    if (const auto at = line.find("error: "); at != line.npos && at < 40) return said + ": " + printable(line.substr(at + 7), 300);
  return said;
}

std::string machine_name() { return host_name() + " " + boot_id(); }

}  // namespace tessera::study
