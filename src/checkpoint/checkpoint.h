// Checkpoints of a run folder: ckpt/step-N/{manifest.json, rank-R.safetensors}
// (docs/checkpoints.md). Convention: a damaged checkpoint is named and passed over for an older
// one; a whole one of another run is an error, and so is a folder whose checkpoints are all
// damaged: neither is ever a reason to start over.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/progress.h"
#include "checkpoint/state_tensors.h"
#include "files/atomic_folder.h"
#include "files/sharded.h"
#include "session/session.h"

namespace tessera::run {

class Ranks;

// A copy of all persistent buffers at one moment, so that training can go on while it is written.
struct Snapshot {
  std::vector<StateTensor> tensors;
  std::map<std::string, std::vector<std::byte>> buffers;
  Progress progress;
  nlohmann::json state;         // of the manifest
  std::filesystem::path flush;  // a file that must be on the disk before the checkpoint is
                                // (metrics.jsonl); may be empty
};
// `notes`: what else the manifest shall remember (names of the classes, length of the run, ...).
// Reuses the memory of `into`.
void take_snapshot(Session& session, const Progress& progress, const nlohmann::json& notes,
                   Snapshot& into);

struct Retention {
  std::int64_t keep = 2;  // newest that stay
  bool keep_best = true;  // and the one of Progress::best_step
};
// Messages between the thread that writes a checkpoint and the one that trains.
struct SaveState {
  std::atomic<bool> cancelled = false;  // other ranks may never write their part
  std::atomic<int> waits_for = -1;      // the rank whose part is not there yet
  double patience_s = 600;              // for parts of other ranks
  // Belong to the writer until it has ended: checkpoints that it could not remove, now or before,
  // and what is to be said of those that are new.
  std::set<std::filesystem::path> stuck;
  std::vector<std::string> notes;
};
// Writes ckpt/step-N of the run folder; then older ones go. Error(disk), also when it is not known
// to be on the disk: what was there stays. With several ranks: the first one makes a
// CheckpointWrite, all others write_part() into part(), and the first finish()es.
class CheckpointWrite {
 public:
  CheckpointWrite(const std::filesystem::path& run, std::int64_t step);
  static std::filesystem::path part(const std::filesystem::path& run, std::int64_t step);
  void finish(const Snapshot& snapshot, const Retention& retention, int ranks, SaveState& state);

 private:
  std::filesystem::path run_;
  std::int64_t step_;
  files::AtomicFolder folder_;
};
void write_checkpoint(const std::filesystem::path& run, const Snapshot& snapshot,
                      const Retention& retention);

// Folders of a run that are named like checkpoints, newest first.
struct CheckpointPath {
  std::int64_t step = 0;
  std::filesystem::path path;
};
// Error(disk) when the folder cannot be looked at.
std::vector<CheckpointPath> checkpoints_in(const std::filesystem::path& run);

// Opens a checkpoint and proves every byte of it. Error(weights) with the reason.
std::shared_ptr<const files::Sharded> open_checkpoint(const std::filesystem::path& path);
// The same; null when another process removed or replaced it meanwhile.
std::shared_ptr<const files::Sharded> open_unless_replaced(const std::filesystem::path& path);
// The newest one of a run folder that is whole; those passed over are named in `notes`. Null when
// there is none at all, Error(weights) with `hint` when all are damaged. The run may go on
// meanwhile: what it removes is no damage, and the next one is taken.
std::shared_ptr<const files::Sharded> newest_checkpoint(
    const std::filesystem::path& run, std::vector<std::string>& notes,
    const std::string& hint = "`tessera ckpt verify` says what is wrong with each");
Progress progress_of(const files::Sharded& checkpoint);

// A file of the run folder that says that a checkpoint was written: a folder without any is then an
// error and not a new run.
inline constexpr const char* saved_mark = ".saved";
void mark_saved(const std::filesystem::path& run);
void expect_never_saved(const std::filesystem::path& run);  // Error(weights)

// The step of the newest checkpoint in the folder, as the first rank sees it; -1: there is none.
// All ranks call it.
std::int64_t newest_step(const Ranks& ranks, const std::filesystem::path& run);
// A rank that cannot read what the others can has taken an older one (-1: none):
// AgreedError(weights).
void expect_same_step(const Ranks& ranks, const std::filesystem::path& run, std::int64_t step);
// Sets newer checkpoints aside, which a run that goes on from `step` could not use: they stay under
// another name (ckpt/aside-step-N), and a note says so. Error(disk) when that cannot be done.
void set_newer_aside(const std::filesystem::path& run, std::int64_t step,
                     std::vector<std::string>& notes);
// Removes checkpoints older than `step`, which is on the disk, but for those that `retention`
// keeps. Those that cannot be removed, and why (files/atomic_folder.h).
struct StuckCheckpoint {
  std::filesystem::path path;
  std::string why;
};
std::vector<StuckCheckpoint> remove_older(const std::filesystem::path& run, std::int64_t step,
                                          std::int64_t best_step, const Retention& retention);

// Loads the checkpoint of this folder. Error(weights) as below.
Progress load_checkpoint(const std::filesystem::path& path, Session& session, std::int64_t samples,
                         std::vector<std::string>& notes);
// Loads the newest whole checkpoint into the session. Nothing when the run has never written one.
// Error(weights) when the checkpoint belongs to another model, optimizer or data size, and when
// those that were written are gone. `samples`: of an epoch.
std::optional<Progress> load_newest_checkpoint(const std::filesystem::path& run, Session& session,
                                               std::int64_t samples,
                                               std::vector<std::string>& notes);

}  // namespace tessera::run
