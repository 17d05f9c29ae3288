// The state of a study in one SQLite file (study.db in its folder): the plan that was run last, and
// of every run ever planned its status, how it was started, how it ended and its record.
// Convention: each change is one transaction that is on the disk when the call returns, so kill -9
// at any moment loses nothing that was finished; rows are found by identity, and only --fresh
// removes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

struct sqlite3;

namespace tessera::study {

enum class Status : std::uint8_t { waiting, running, done, failed };

struct RunRow {
  Status status = Status::waiting;
  int attempts = 0;
  double started = 0, ended = 0;  // seconds since 1970; 0: not yet
  int pid = 0;  // of the process that was started, which leads a session; 0: none runs
  std::uint64_t pid_started = 0;        // its start time, as base/process.h tells it
  std::string machine;                  // host and boot that pid belongs to
  int exit_code = -1;                   // 128 + n: ended by signal n
  std::string reason;                   // failed: why
  double wall = 0;                      // seconds of the last attempt
  std::string command, folder, record;  // record: JSON, of a run that is done
};

class State {
 public:
  // Opens or makes folder/study.db. `read_only`: it must be there. A file that is damaged, or of
  // something else or another version, is Error(weights) and stays as it is.
  explicit State(const std::filesystem::path& folder, bool read_only = false);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::string get(const std::string& name) const;  // "": never set
  void set(const std::string& name, const std::string& value);

  std::optional<RunRow> find(const std::string& identity) const;
  std::map<std::string, RunRow> all() const;
  void put(const std::string& identity, const RunRow& row);  // new or changed
  void remove(const std::string& identity);

 private:
  class Statement;
  void open(bool read_only);
  void execute(const char* sql) const;
  [[noreturn]] void fail(const std::string& what, int code) const;
  std::filesystem::path path_;
  sqlite3* db_ = nullptr;
};

// One `tessera study` at a time in a folder; Error(usage) names the process that is there. Released
// however the process ends.
class StudyLock {
 public:
  explicit StudyLock(const std::filesystem::path& folder);
  ~StudyLock();
  StudyLock(const StudyLock&) = delete;
  StudyLock& operator=(const StudyLock&) = delete;

 private:
  int descriptor_ = -1;
};
// Whether one holds the folder now.
bool is_locked(const std::filesystem::path& folder);

}  // namespace tessera::study
