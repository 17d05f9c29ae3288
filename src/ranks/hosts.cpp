#include "ranks/hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "base/check.h"
#include "files/text.h"

namespace tessera::run {
namespace {

constexpr std::size_t most_hostfile_bytes = 1 << 20;
constexpr int most_slots = 65536;

// A whole number from 1 on; 0: it is none.
int count_of(std::string_view text) {
  int value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && rest == text.data() + text.size() && value > 0 &&
                 value <= most_slots
             ? value
             : 0;
}

void add(std::vector<Host>& hosts, const std::string& name, int slots) {
  const auto same =
      std::find_if(hosts.begin(), hosts.end(), [&](const Host& host) { return host.name == name; });
  if (same != hosts.end())
    same->slots += slots;
  else
    hosts.push_back({name, slots});
}

// The output of a command, line by line; nothing when it cannot be run.
std::vector<std::string> lines_of_command(const std::string& command) {
  std::vector<std::string> out;
  FILE* pipe = ::popen(command.c_str(), "re");
  if (!pipe) return out;
  std::string text;
  std::array<char, 4096> piece;
  for (std::size_t n; (n = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;)
    text.append(piece.data(), n);
  if (::pclose(pipe) != 0) return out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) out.push_back(line);
  return out;
}

std::vector<Host> hosts_of_slurm() {
  const char *nodes = std::getenv("SLURM_JOB_NODELIST"),
             *tasks = std::getenv("SLURM_TASKS_PER_NODE");
  if (!nodes || !tasks) return {};
  const std::string list = nodes;  // "node[1-3,7]": never handed to a shell with anything else
  if (list.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                             "-_.,[]") != list.npos)
    return {};
  const std::vector<std::string> names =
      lines_of_command("scontrol show hostnames '" + list + "' 2>/dev/null");
  const std::vector<int> counts = slurm_counts(tasks);
  if (names.empty() || names.size() != counts.size()) return {};
  std::vector<Host> out;
  for (std::size_t i = 0; i < names.size(); ++i) add(out, names[i], counts[i]);
  return out;
}

}  // namespace

std::vector<Host> read_hosts(std::string_view text, const std::string& file) {
  std::vector<Host> out;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, more;
    if (!(words >> name)) continue;
    int slots = 1;
    const auto refuse = [&](const std::string& word) {
      throw Error(ErrorKind::usage, "'" + word + "' is not what a line of a hostfile has",
                  fmt::format("{}:{}", file, number), "write `node1 slots=4` or `node1:4`");
    };
    if (const auto colon = name.find(':'); colon != name.npos) {
      slots = count_of(std::string_view(name).substr(colon + 1));
      if (slots == 0) refuse(name);
      name.resize(colon);
    }
    while (words >> more) {
      const auto equals = more.find('=');
      const std::string key = more.substr(0, equals);
      if (equals == more.npos || (key != "slots" && key != "max_slots" && key != "max-slots"))
        refuse(more);
      const int count = count_of(std::string_view(more).substr(equals + 1));
      if (count == 0) refuse(more);
      if (key == "slots") slots = count;
    }
    if (name.empty() || name.front() == '-') refuse(name);
    add(out, name, slots);
  }
  if (out.empty()) throw Error(ErrorKind::usage, "the hostfile names no host", file);
  return out;
}

std::vector<int> slurm_counts(std::string_view text) {
  std::vector<int> out;
  while (!text.empty()) {
    std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int times = 1;
    if (const auto open = part.find("(x"); open != part.npos) {
      if (!part.ends_with(')')) return {};
      times = count_of(part.substr(open + 2, part.size() - open - 3));
      part = part.substr(0, open);
    }
    const int count = count_of(part);
    if (count == 0 || times == 0) return {};
    out.insert(out.end(), static_cast<std::size_t>(times), count);
  }
  return out;
}

std::vector<Host> hosts_of(const std::string& hostfile) {
  if (hostfile.empty()) return hosts_of_slurm();
  return read_hosts(files::read_text(hostfile, most_hostfile_bytes), hostfile);
}

int slots_of(const std::vector<Host>& hosts) {
  int out = 0;
  for (const Host& host : hosts) out += host.slots;
  return out;
}

std::string hostfile_text(const std::vector<Host>& hosts, bool open_mpi) {
  std::string out;
  for (const Host& host : hosts)
    out += open_mpi ? fmt::format("{} slots={}\n", host.name, host.slots)
                    : fmt::format("{}:{}\n", host.name, host.slots);
  return out;
}

std::string names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return join(names, ", ");
}

bool is_open_mpi(const std::string& mpirun) {
  const std::vector<std::string> said = lines_of_command("'" + mpirun + "' --version 2>&1");
  return said.empty() || std::any_of(said.begin(), said.end(), [](const std::string& line) {
           return line.find("Open MPI") != line.npos || line.find("OpenRTE") != line.npos ||
                  line.find("PRTE") != line.npos;
         });
}

std::vector<std::string> write_hostfile(const std::vector<Host>& hosts,
                                        const std::filesystem::path& folder, bool open_mpi) {
  if (folder.empty())
    throw Error(ErrorKind::disk,
                "no folder can be made for the job, and so no list of hosts for mpirun", "",
                "free some space, or choose an --out that can be written");
  const std::filesystem::path file = folder / "hosts";
  files::write_atomically(file, hostfile_text(hosts, open_mpi));
  return {open_mpi ? "--hostfile" : "-f", file.string()};
}

HostProbe::HostProbe(std::string mpirun, std::vector<Host> hosts, std::chrono::seconds patience)
    : until_(std::chrono::steady_clock::now() + patience) {
  for (Host& host : hosts) {
    Asked& asked = asked_.emplace_back();
    asked.host = std::move(host);
    const pid_t process = ::fork();
    if (process == 0) {
      sigset_t none;
      sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      ::setpgid(0, 0);  // so that all that it starts can be ended
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      for (const int stream : {0, 1, 2})
        if (const int nothing = ::open("/dev/null", O_RDWR); nothing >= 0) ::dup2(nothing, stream);
      // The name of a host is one word of a command line, in no shell.
      ::execl(mpirun.c_str(), mpirun.c_str(), "--host", asked.host.name.c_str(), "-np", "1",
              "/bin/true", nullptr);
      std::_Exit(127);
    }
    asked.process = process;
  }
}

HostProbe::~HostProbe() {
  for (const Asked& asked : asked_)
    if (asked.process > 0) {
      ::kill(-asked.process, SIGKILL);
      ::waitpid(asked.process, nullptr, 0);
    }
}

std::optional<std::vector<Host>> HostProbe::poll() {
  const bool late = std::chrono::steady_clock::now() > until_;
  for (Asked& asked : asked_) {
    int status = 0;
    if (asked.process <= 0) continue;
    if (::waitpid(asked.process, &status, WNOHANG) == asked.process) {
      asked.answers = WIFEXITED(status) && WEXITSTATUS(status) == 0;
      asked.process = -1;
    } else if (!late) {
      return std::nullopt;
    }
  }
  std::vector<Host> out;
  for (const Asked& asked : asked_)
    if (asked.answers) out.push_back(asked.host);
  return out;
}

std::vector<Host> HostProbe::wait() {
  for (;;) {
    if (auto known = poll()) return *known;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace tessera::run
