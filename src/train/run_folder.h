// The folder of a run: whether it holds a finished one, who may write in it, what goes in at the
// start. Convention: nothing in it changes before everything that can be wrong with the
// configuration has been found.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"
#include "ranks/ranks.h"
#include "train/train.h"

namespace tessera::run {

// A finished run of the same configuration; of another one: Error(usage). One that shall only get
// more epochs or steps, and has a checkpoint, is not finished.
bool holds_finished_run(const std::filesystem::path& folder, const config::Config& config);

// The same with its results whole: those that are damaged are to be made anew from the last
// checkpoint, which a note says; without one: Error(weights).
bool holds_whole_run(const std::filesystem::path& folder, const config::Config& config,
                     std::vector<std::string>& notes);

// Damage to the results of a finished run: its summary or its weights are gone or not whole; "":
// nothing is.
std::string damage_of_finished_run(const std::filesystem::path& folder);

// Changes for a run that goes on: the lines of the configuration that changed ("run.until: not set"
// where one is gone). Empty without an older one.
std::vector<std::string> changes_since(const std::filesystem::path& folder,
                                       const config::Config& config);

// resolved.toml of a run folder; Error(usage) where there is none.
std::string configuration_of_run(const std::filesystem::path& folder);
// The schedule that was read from a file, as the run keeps it; "": none was.
std::string schedule_of_run(const std::filesystem::path& folder);

// One process trains in a folder at a time: a second one is refused with Error(usage) before it
// changes anything. With several ranks the first one holds the lock, under any launcher. The lock
// ends with the process, however that ends.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  void take(const std::filesystem::path&
                folder);  // does nothing when it is held or the folder does not exist yet
  bool held() const { return descriptor_ >= 0; }  // or the file system has no locks

 private:
  int descriptor_ = -1;
};

// Removes what torn writes left, for who holds the lock; nobody else touches anything. What cannot
// be removed is named in `notes`.
void clean_run_folder(const std::filesystem::path& folder, const FolderLock& lock,
                      std::vector<std::string>& notes);

// Makes the folder and locks it, removes an old run when `fresh`, and writes config.toml,
// resolved.toml, env.json and schedule.txt (a copy of the schedule that is read from a file;
// resolved.toml names the copy). Error(disk) when it cannot; Error(usage) when the folder was not
// there when the lock was first asked for and holds a run now.
void open_folder(const std::filesystem::path& folder, const config::Config& config,
                 const TrainOptions& options, FolderLock& lock);

// Makes the place where ranks see each other's heartbeats (ranks/watchdog.h) and begins to watch;
// a note names the ranks whose heartbeat nobody sees. All ranks call it once the folder is open.
void watch_ranks(const Ranks& ranks, const std::filesystem::path& folder,
                 std::vector<std::string>& notes);

}  // namespace tessera::run
