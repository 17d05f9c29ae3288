// The binary from outside: run it to its end, or start it, send it signals and wait; and read what
// it left.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::test {

// Tests have more ranks than some machines have cores.
inline const bool may_oversubscribe = ::setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0) == 0;

namespace fs = std::filesystem;
using nlohmann::json;

inline const std::string tiny =
    " --model vit_micro --set model.depth=1 --set data.train_size=96 --set data.test_size=32 "
    "--global-batch 32 --threads 2 ";

// For the verbs of a test that runs on any device: the one that TESSERA_TEST_DEVICE names, with
// messages as TESSERA_TEST_COMM says.
inline std::string on_device() {
  const char *device = std::getenv("TESSERA_TEST_DEVICE"), *comm = std::getenv("TESSERA_TEST_COMM");
  return (device ? " --device " + std::string(device) + " " : "") +
         (comm ? " --comm " + std::string(comm) + " " : "");
}

// A folder for all tests of the program, gone when it ends.
inline fs::path scratch() {
  struct Folder {
    fs::path path = fs::temp_directory_path() / ("tessera_cli_" + std::to_string(::getpid()));
    Folder() { fs::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

inline std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The bytes of a weight file that says nothing of its content's hash, so that a test may change
// them. The header keeps its length.
inline std::string without_hash(std::string bytes) {
  constexpr std::string_view key = "tessera.xxh3", unknown = "tessera.test";
  static_assert(key.size() == unknown.size());
  if (const std::size_t at = bytes.find(key); at != bytes.npos)
    bytes.replace(at, key.size(), unknown);
  return bytes;
}

inline void write(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct Result {
  int code = -1;
  std::string out, err;
};
inline Result run(const std::string& arguments) {
  const fs::path err = scratch() / "stderr";
  const std::string command = std::string(TESSERA_BINARY) + " " + arguments + " 2>" + err.string();
  Result r;
  FILE* pipe = ::popen(command.c_str(), "r");
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;)
    r.out.append(buffer, n);
  const int status = ::pclose(pipe);
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  r.err = read(err);
  return r;
}

// Memory that MPI itself never frees is no leak of ours: a sanitized binary under mpirun does not
// look for leaks.
inline bool has_mpirun() {
  ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  return std::system("command -v mpirun >/dev/null 2>&1") == 0;
}

// A process of its own; what it says goes to `log`. `file_limit`: the largest file it may write, in
// bytes.
class Process {
 public:
  explicit Process(const std::string& arguments, const fs::path& log = "/dev/null",
                   rlim_t file_limit = RLIM_INFINITY) {
    const std::string command =
        "exec " + std::string(TESSERA_BINARY) + " " + arguments + " 2>" + log.string();
    id_ = ::fork();
    if (id_ != 0) return;
    std::signal(SIGINT, SIG_DFL);  // a script that runs the tests in its background ignores it
    if (file_limit != RLIM_INFINITY) {
      const struct rlimit limit = {file_limit, file_limit};
      ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  ~Process() {
    if (id_ > 0) {
      ::kill(id_, SIGKILL);
      wait();
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) { ::kill(id_, number); }
  pid_t id() const { return id_; }
  bool ended() const {
    siginfo_t found{};
    return ::waitid(P_PID, static_cast<id_t>(id_), &found, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           found.si_pid != 0;
  }
  // The exit code, or 128 + the signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(id_, &status, 0);
    id_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t id_ = -1;
};

// Lines of metrics.jsonl of one kind.
inline std::vector<json> lines_of(const fs::path& folder, const std::string& kind) {
  std::vector<json> all;
  std::istringstream lines(read(folder / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (json m = json::parse(line, nullptr, false); m.is_object() && m["kind"] == kind)
      all.push_back(std::move(m));  // the last may be half
  return all;
}
// The losses of all steps as text, so that equal means every bit.
inline std::vector<std::string> losses(const fs::path& folder) {
  std::vector<std::string> all;
  for (const json& m : lines_of(folder, "step"))
    all.push_back(m["step"].dump() + " " + m["loss"].dump() +
                  (m.contains("skipped") ? " skipped" : ""));
  return all;
}

}  // namespace tessera::test
