// A command of the binary under test in a process group of its own, with a fault in it, and what it
// left: exit code, words, and the record of its calls. Convention: whatever runs longer than its
// limit is killed with all its children and counts as a hang (exit code -1).
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "preload/fault.h"

namespace tessera::test::faults {

namespace fs = std::filesystem;

struct Fault {
  Call call = Call::open;
  std::int64_t n = 0;  // 0: none, calls are only counted
  bool for_ever = false;
  std::string action = "fail";
  std::int64_t value = 5;  // an errno, or milliseconds
  int rank = -1;           // of an MPI job; -1: of any process
  std::string only = {};   // text that a path must contain (preload/fault.h: WHERE)
  fs::path awaited = {};   // what an "await" waits for

  std::string words() const;  // "fsync 3 and all after it: Input/output error"
  std::string order() const;  // as the library in the binary reads it
};

struct Ended {
  static constexpr int hang = -1;
  int code = 0;  // 128 + the signal that ended it; `hang`
  std::string said;
  std::int64_t seen[slot_count][call_count] = {};
  std::int64_t fired = 0;
  std::string first;  // the path of the first call that failed
  double seconds = 0;
};

// A process that is still running.
class Started {
 public:
  Started(const std::string& arguments,
          const fs::path& log);  // without any fault; stdout and stderr go to `log`
  Started(const std::string& arguments, const fs::path& log, const Fault& fault,
          const fs::path& under, const fs::path& record);
  // With these in its environment ("NAME=value").
  Started(const std::string& arguments, const fs::path& log,
          const std::vector<std::string>& variables) {
    start(arguments, log, variables);
  }
  ~Started();  // kills what is left
  Started(const Started&) = delete;
  Started& operator=(const Started&) = delete;

  bool running();
  int wait(double limit_s);  // the exit code, 128 + signal, or Ended::hang
  void signal(int number) const;

 private:
  void start(const std::string& arguments, const fs::path& log,
             const std::vector<std::string>& variables);
  int process_ = -1, status_ = 0;
};

// Runs `tessera ARGUMENTS` to its end with this fault on paths below `under`. `scratch` is a folder
// for its log and its record.
Ended run_with(const Fault& fault, const std::string& arguments, const fs::path& under,
               const fs::path& scratch);
Ended run_plainly(const std::string& arguments, const fs::path& scratch);

// An empty record, for a process that is started by hand; how many calls failed or were held up.
void make_record(const fs::path& path);
std::int64_t fired_in(const fs::path& record);

// Whether case k is one of this process's share (TESSERA_FAULT_SHARD="2/16": the third of sixteen
// shares; without it, all are). tools/fault_sweep starts one process for each share.
bool in_shard(std::int64_t k);
bool is_sharded();
// A line for the summary of all shares: "count: NAME | KEY NUMBER | KEY NUMBER".
void print_counts(const std::string& name,
                  const std::vector<std::pair<std::string, std::int64_t>>& counts);

// A folder of this test program, gone when it ends.
fs::path scratch_folder();
std::string text_of(const fs::path& path);

}  // namespace tessera::test::faults
