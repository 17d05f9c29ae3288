#include "faults/command.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace tessera::test::faults {
namespace {

using std::chrono::steady_clock;

constexpr double longest_s =
    240;  // of a command that needs a fraction of a second on an idle machine

// A Record in a file of its own, mapped.
class MappedRecord {
 public:
  explicit MappedRecord(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (descriptor < 0 || ::ftruncate(descriptor, sizeof(Record)) != 0)
      throw std::runtime_error("no record at " + path.string());
    at_ = static_cast<Record*>(
        ::mmap(nullptr, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
    ::close(descriptor);
    if (at_ == MAP_FAILED) throw std::runtime_error("the record cannot be mapped");
  }
  ~MappedRecord() { ::munmap(at_, sizeof(Record)); }
  MappedRecord(const MappedRecord&) = delete;
  MappedRecord& operator=(const MappedRecord&) = delete;
  const Record* operator->() const { return at_; }

 private:
  Record* at_;
};

// The binary that is tested; another one by hand, to see the sweep fail on an older version.
std::string binary() {
  const char* other = std::getenv("TESSERA_FAULT_BINARY");
  return other ? other : TESSERA_BINARY;
}

}  // namespace

std::string Fault::words() const {
  std::string out(call_names[static_cast<std::size_t>(call)]);
  out += " " + std::to_string(n) + (for_ever ? " and all after it: " : ": ");
  out += action == "fail"   ? std::strerror(static_cast<int>(value))
         : action == "slow" ? std::to_string(value) + " ms"
                            : action;
  if (rank >= 0) out += ", rank " + std::to_string(rank);
  if (!only.empty()) out += ", paths with " + only;
  return out;
}

std::string Fault::order() const {
  if (n == 0) return "";
  std::ostringstream out;
  out << call_names[static_cast<std::size_t>(call)] << ' ' << (only.empty() ? "/" : only)
      << " from=" << n << (for_ever ? "" : " times=1");
  if (rank >= 0) out << " rank=" << rank;
  if (action == "fail") out << " errno=" << value;
  if (action == "slow") out << " slow=" << static_cast<double>(value) / 1000;
  if (action == "await") out << " await=" << awaited.string();
  if (action == "die") out << " die";
  return out.str();
}

void Started::start(const std::string& arguments, const fs::path& log,
                    const std::vector<std::string>& variables) {
  const std::string command = "exec " + binary() + " " + arguments;
  std::vector<std::string> all = variables;
  for (char** at = environ; *at; ++at)
    if (!std::string_view(*at).starts_with("TESSERA_FAULT")) all.emplace_back(*at);
  for (const char* allowed : {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"})
    all.emplace_back(allowed);
  std::vector<char*> environment;
  for (std::string& variable : all) environment.push_back(variable.data());
  environment.push_back(nullptr);
  const char* const words[] = {"sh", "-c", command.c_str(), nullptr};
  process_ = ::fork();
  if (process_ != 0) {
    ::setpgid(process_, process_);
    return;
  }
  ::setpgid(0, 0);
  const int to = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600),
            from = ::open("/dev/null", O_RDONLY);
  ::dup2(from, 0);
  ::dup2(to, 1);
  ::dup2(to, 2);
  ::execve("/bin/sh", const_cast<char* const*>(words), environment.data());
  ::_exit(127);
}

Started::Started(const std::string& arguments, const fs::path& log) { start(arguments, log, {}); }

Started::Started(const std::string& arguments, const fs::path& log, const Fault& fault,
                 const fs::path& under, const fs::path& record) {
  start(arguments, log,
        {std::string("LD_PRELOAD=") + TESSERA_PRELOAD,
         std::string(under_variable) + "=" + under.string(),
         std::string(record_variable) + "=" + record.string(),
         std::string(fault_variable) + "=" + fault.order()});
}

Started::~Started() {
  if (process_ <= 0) return;
  ::kill(-process_, SIGKILL);
  ::waitpid(process_, &status_, 0);
}

void Started::signal(int number) const {
  if (process_ > 0) ::kill(process_, number);
}

bool Started::running() {
  if (process_ > 0 && ::waitpid(process_, &status_, WNOHANG) == process_) process_ = -1;
  return process_ > 0;
}

int Started::wait(double limit_s) {
  const auto start = steady_clock::now();
  while (running()) {
    if (std::chrono::duration<double>(steady_clock::now() - start).count() > limit_s) {
      ::kill(-process_, SIGKILL);
      ::waitpid(process_, &status_, 0);
      process_ = -1;
      return Ended::hang;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
  }
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

Ended run_with(const Fault& fault, const std::string& arguments, const fs::path& under,
               const fs::path& scratch) {
  fs::create_directories(scratch);
  const MappedRecord record(scratch / "record");
  const auto start = steady_clock::now();
  Ended out;
  Started process(arguments, scratch / "log", fault, under, scratch / "record");
  out.code = process.wait(longest_s);
  out.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
  out.said = text_of(scratch / "log");
  for (std::size_t slot = 0; slot < slot_count; ++slot)
    for (std::size_t call = 0; call < call_count; ++call)
      out.seen[slot][call] = record->seen[slot][call];
  out.fired = record->fired;
  out.first = record->first;
  return out;
}

Ended run_plainly(const std::string& arguments, const fs::path& scratch) {
  fs::create_directories(scratch);
  Ended out;
  Started process(arguments, scratch / "log");
  out.code = process.wait(longest_s);
  out.said = text_of(scratch / "log");
  return out;
}

void make_record(const fs::path& path) { const MappedRecord made(path); }

std::int64_t fired_in(const fs::path& record) {
  std::ifstream file(record, std::ios::binary);
  file.seekg(offsetof(Record, fired));
  std::int64_t fired = 0;
  file.read(reinterpret_cast<char*>(&fired), sizeof(fired));
  return fired;
}

bool is_sharded() { return std::getenv("TESSERA_FAULT_SHARD") != nullptr; }

bool in_shard(std::int64_t k) {
  long long mine = 0, all = 1;
  if (const char* text = std::getenv("TESSERA_FAULT_SHARD"))
    if (std::sscanf(text, "%lld/%lld", &mine, &all) != 2 || mine < 0 || mine >= all)
      throw std::runtime_error("TESSERA_FAULT_SHARD is \"" + std::string(text) +
                               "\"; it should be like \"0/16\"");
  return k % all == mine;
}

void print_counts(const std::string& name,
                  const std::vector<std::pair<std::string, std::int64_t>>& counts) {
  std::string line = "count: " + name;
  for (const auto& [key, number] : counts) line += " | " + key + " " + std::to_string(number);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

fs::path scratch_folder() {
  struct Folder {
    fs::path path =
        fs::canonical(fs::temp_directory_path()) / ("tessera_faults_" + std::to_string(::getpid()));
    Folder() { fs::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      if (!std::getenv("TESSERA_FAULT_KEEP")) fs::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path;
}

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace tessera::test::faults
