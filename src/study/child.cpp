#include "study/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "base/printable.h"
#include "base/process.h"
#include "study/throttle.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int> session_of(int leader) {
  std::vector<int> out;
  for (const int pid : all_processes())
    if (const ProcessStat s = stat_of(pid); s.state != 0 && s.state != 'Z' && s.session == leader)
      out.push_back(pid);
  return out;
}

void signal_all(const std::vector<int>& processes, int signal) {
  for (const int pid : processes) {
    ::kill(pid, signal);
    ::kill(pid, SIGCONT);  // one that is stopped hears nothing
  }
}

void signal_session(int leader, int signal) { signal_all(session_of(leader), signal); }

// Kills until nobody is left: a process may start another one while it is being looked for.
void kill_session(int leader) {
  for (int i = 0; i < 100 && !session_of(leader).empty(); ++i) {
    signal_session(leader, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int open_output(const fs::path& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0)
    throw Error(ErrorKind::disk, std::string("cannot write: ") + std::strerror(errno),
                path.string());
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

// The child waits for a byte before it becomes the command: by then its pid is in the database.
// Only calls that are safe after fork.
[[noreturn]] void become(char** command, char** environment, const sigset_t& signals, int go,
                         int start, int parent, int out, int err, int in) {
  ::close(start);  // so that the end of the parent is the end of what is read
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  char byte = 0;
  if (::getppid() != parent || ::read(go, &byte, 1) != 1) ::_exit(126);  // the parent is gone
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::sigprocmask(SIG_SETMASK, &signals, nullptr);
  ::execvpe(command[0], command, environment);
  const char* why = std::strerror(errno);
  for (const char* text :
       {"error: cannot start ", static_cast<const char*>(command[0]), ": ", why, "\n"})
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  ::_exit(127);
}

// For execvpe; `words` must outlive it.
std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> out;
  for (const std::string& word : words) out.push_back(const_cast<char*>(word.c_str()));
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> environment_of(const ChildOptions& options) {
  std::vector<std::string> out;
  if (options.launcher)
    out = environment_for_mpirun(options.crowded);
  else
    for (char** entry = environ; *entry; ++entry) out.emplace_back(*entry);
  const auto set = [&](const std::string& name, const std::string& value) {
    std::erase_if(out, [&](const std::string& entry) { return entry.starts_with(name + "="); });
    out.push_back(name + "=" + value);
  };
  // The file says how many ranks a run has: nobody has to ask again for more than cores.
  set("OMPI_MCA_rmaps_base_oversubscribe", "1");
  if (!options.study.empty()) set(std::string(study_variable), options.study);
  return out;
}

// Lets the child begin, and waits for its end.
ChildResult watch(pid_t child, Descriptor& start, const ChildOptions& options,
                  const StopRequests& requests) {
  ChildResult result;
  const auto began = Clock::now();
  if (options.on_start) options.on_start(child, stat_of(child).started);
  ::send(start.number, "x", 1, MSG_NOSIGNAL);  // one that was killed meanwhile does not hear it
  start.close();
  Throttler throttler(options.throttle, child, options.folder);
  int status = 0;
  auto asked = Clock::time_point::max();
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child)
      result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended == child || (ended < 0 && errno == ECHILD)) break;
    const bool again = asked != Clock::time_point::max();
    if (requests.wait(100) != 0) {
      result.stopped = true;
      if (again) kill_session(child);  // asked twice: at once
    }
    if (options.on_tick) options.on_tick(seconds_since(began));
    if (!again && options.time_limit > 0 && seconds_since(began) > options.time_limit)
      result.timed_out = true;
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
  return result;
}

}  // namespace

StopRequests::StopRequests() {
  struct sigaction usual =
      {};  // ignored, as some who start us have it, no child could be waited for
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &usual, &child_before_);
  sigemptyset(&kept_);
  sigaddset(&kept_, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (struct sigaction now = {};
        ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
      sigaddset(&kept_, signal);
  ::pthread_sigmask(SIG_BLOCK, &kept_, &before_);
}

StopRequests::~StopRequests() {
  while (wait(0) != 0) continue;  // what came after all was done shall not end us
  ::sigaction(SIGCHLD, &child_before_, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int StopRequests::wait(int ms) const {
  const struct timespec pause = {ms / 1000, (ms % 1000) * 1'000'000L};
  const int signal = ::sigtimedwait(&kept_, nullptr, &pause);
  return signal > 0 && signal != SIGCHLD ? signal : 0;
}

ChildResult run_child(const ChildOptions& options, const StopRequests& requests) {
  CHECK(!options.command.empty(), "a command without words");
  Descriptor out(open_output(options.folder / "stdout.txt")),
      err(open_output(options.folder / "stderr.txt"));
  Descriptor in(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ErrorKind::memory, std::string("cannot start a process: ") + std::strerror(errno));
  Descriptor go(ends[0]), start(ends[1]);
  const std::vector<std::string> variables = environment_of(options);
  std::vector<char*> command = pointers_to(options.command), environment = pointers_to(variables);
  const int self = ::getpid();
  const pid_t child = ::fork();
  if (child < 0)
    throw Error(ErrorKind::memory, std::string("cannot start a process: ") + std::strerror(errno),
                options.command[0]);
  if (child == 0)
    become(command.data(), environment.data(), requests.before(), go.number, start.number, self,
           out.number, err.number, in.number);
  go.close();
  try {
    return watch(child, start, options, requests);
  } catch (...) {
    ::kill(child, SIGKILL);
    kill_session(child);
    ::waitpid(child, nullptr, 0);
    throw;
  }
}

std::string mark_of(const fs::path& study) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(study, error);
  return (error ? fs::absolute(study, error) : whole).string();
}

void end_session(int leader, std::uint64_t started, const fs::path& study, double grace) {
  if (leader <= 1) return;
  const ProcessStat stat = stat_of(leader);
  // Without its leader a session keeps its number, so no other process can have got that.
  if (stat.state != 0 && (stat.started != started || stat.session != leader)) return;
  const std::string mark = mark_of(study);
  const auto left = [&] {
    std::vector<int> out = session_of(leader);
    std::erase_if(
        out, [&](int pid) { return !is_own(pid) || variable_of(pid, study_variable) != mark; });
    return out;
  };
  const auto began = Clock::now();
  for (int signal = SIGTERM; !left().empty() && seconds_since(began) < grace + 1;) {
    signal_all(left(), signal);
    do std::this_thread::sleep_for(std::chrono::milliseconds(signal == SIGTERM ? 50 : 10));
    while (signal == SIGTERM && !left().empty() && seconds_since(began) < grace);
    signal =
        SIGKILL;  // again and again: a process may start another one while it is being looked for
  }
}

namespace {

// So many bytes of a file from there; negative: from its end.
std::string piece_of(const fs::path& path, std::streamoff from, std::size_t bytes) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (size <= 0) return "";
  file.seekg(from < 0 ? std::max<std::streamoff>(size + from, 0) : from);
  std::string out(bytes, '\0');
  file.read(out.data(), static_cast<std::streamsize>(bytes));
  out.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return out;
}

std::string without_blanks(const std::string& line) {
  const auto first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
  return first == line.npos ? "" : line.substr(first, last - first + 1);
}

bool has_words(const std::string& line) {
  return std::any_of(line.begin(), line.end(),
                     [](unsigned char c) { return c >= 128 || std::isalnum(c) != 0; });
}

// The text that follows the first "error:" near the beginning of a line, however it is written;
// else the last line that has words; else "". What Open MPI puts between lines of dashes is a
// remark on what others said before, so it counts only where there is nothing else; then the first
// box does, all its lines as one.
std::string complaint_in(const fs::path& path) {
  constexpr std::size_t most_head = 1 << 20, dashes = 40;
  const std::string text = piece_of(path, 0, most_head);
  std::istringstream head(text), tail(text.size() < most_head ? "" : piece_of(path, -4096, 4096));
  std::string last, box;
  int borders = 0;
  for (std::string line; std::getline(head, line);) {
    std::string lower = line.substr(0, 47);
    for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    if (const auto at = lower.find("error:"); at < 40)
      if (std::string said = without_blanks(line.substr(at + 6)); !said.empty()) return said;
    if (line.size() >= dashes && line.find_first_not_of("-\r") == line.npos) ++borders;
    if (!has_words(line)) continue;
    if (borders % 2 == 0) last = without_blanks(line);
    if (borders == 1) box += (box.empty() ? "" : " ") + without_blanks(line);
  }
  for (std::string line; std::getline(tail, line);)
    if (has_words(line)) last = without_blanks(line);
  return last.empty() ? box : last;
}

}  // namespace

std::string failure_reason(const ChildResult& result, double time_limit, const fs::path& folder) {
  if (result.timed_out)
    return fmt::format("it ran longer than its time limit of {:g} s and was ended", time_limit);
  static const std::pair<int, const char*> words[] = {
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
  std::string said =
      result.code < 0 ? "nobody knows how it ended" : fmt::format("exit code {}", result.code);
  for (const auto& [code, text] : words)
    if (code == result.code) said = fmt::format("{} (exit code {})", text, code);
  if (result.code > 128 && result.code <= 192) {
    const char* name = ::strsignal(result.code - 128);
    said = fmt::format("ended by signal {}{}", result.code - 128,
                       name ? fmt::format(" ({})", name) : "");
  }
  const fs::path path = folder / "stderr.txt";
  const std::string complaint = complaint_in(path);
  return said + (complaint.empty() ? "; it said nothing in " + printable(path.string())
                                   : ": " + printable(complaint, 300));
}

std::string machine_name() { return host_name() + " " + boot_id(); }

}  // namespace tessera::study
