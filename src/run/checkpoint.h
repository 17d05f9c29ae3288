// Checkpoints of a run folder: ckpt/step-N/{manifest.json, rank-R.safetensors} (docs/checkpoints.md).
// Convention: a damaged checkpoint is named and passed over for an older one; a whole one of another run is an error, and so is a folder
// whose checkpoints are all damaged: neither is ever a reason to start over.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files/atomic_folder.h"
#include "files/sharded.h"
#include "run/progress.h"
#include "run/session.h"
#include "run/state_tensors.h"

namespace tessera::run {

// A copy of all persistent buffers at one moment, so that training can go on while it is written.
struct Snapshot {
  std::vector<StateTensor> tensors;
  std::map<std::string, std::vector<std::byte>> buffers;
  Progress progress;
  nlohmann::json state;         // of the manifest
  std::filesystem::path flush;  // a file that must be on the disk before the checkpoint is (metrics.jsonl); may be empty
};
// `notes`: what else the manifest shall remember (names of the classes, length of the run, ...). Reuses the memory of `into`.
void take_snapshot(Session& session, const Progress& progress, const nlohmann::json& notes, Snapshot& into);

struct Retention {
  std::int64_t keep = 2;  // newest that stay
  bool keep_best = true;  // and the one of Progress::best_step
};
// Writes ckpt/step-N of the run folder; then older ones go, and so do those of steps that lie ahead. Error(disk): what was there stays.
// With several ranks: the first one makes a CheckpointWrite, all others write_part() into part(), and the first finish()es.
class CheckpointWrite {
 public:
  CheckpointWrite(const std::filesystem::path& run, std::int64_t step);
  static std::filesystem::path part(const std::filesystem::path& run, std::int64_t step);
  void finish(const Snapshot& snapshot, const Retention& retention, int ranks, const std::atomic<bool>& cancelled);

 private:
  std::filesystem::path run_;
  std::int64_t step_;
  files::AtomicFolder folder_;
};
void write_checkpoint(const std::filesystem::path& run, const Snapshot& snapshot, const Retention& retention);

// Folders of a run that are named like checkpoints, newest first.
struct CheckpointPath {
  std::int64_t step = 0;
  std::filesystem::path path;
};
std::vector<CheckpointPath> checkpoints_in(const std::filesystem::path& run);

// Opens a checkpoint and proves every byte of it. Error(weights) with the reason.
std::shared_ptr<const files::Sharded> open_checkpoint(const std::filesystem::path& path);
// The newest one of a run folder that is whole; those passed over are named in `notes`. Null when there is none at all, Error(weights) when
// all are damaged.
std::shared_ptr<const files::Sharded> newest_checkpoint(const std::filesystem::path& run, std::vector<std::string>& notes);
Progress progress_of(const files::Sharded& checkpoint);

// Loads the newest whole checkpoint into the session. Error(weights) when it belongs to another model, optimizer or data size.
// `samples`: of an epoch.
std::optional<Progress> load_newest_checkpoint(const std::filesystem::path& run, Session& session, std::int64_t samples,
                                               std::vector<std::string>& notes);

}  // namespace tessera::run
