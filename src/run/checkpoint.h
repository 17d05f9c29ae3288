// Checkpoints of a run folder: ckpt/step-N/{manifest.json, rank-R.safetensors}. Written beside and renamed, so a cut-off write is never
// taken for one. Convention: a damaged checkpoint is passed over for an older one; a whole one of another run is an error, never a reason
// to start over.
#pragma once

#include <optional>
#include <string>

#include "run/session.h"

namespace tessera::run {

// Everything besides weights and state that the loop must know to go on as if it had never stopped.
struct Progress {
  std::int64_t step = 0;                 // applied updates
  std::int64_t epoch = 0, position = 0;  // of the next batch
  double best_top1 = 0;
  std::int64_t best_epoch = 0;
  double epoch_loss = 0, epoch_correct = 0, epoch_seconds = 0;  // sums of the epoch under way
  std::int64_t epoch_images = 0;
  double wall_s = 0;  // spent by this run in all its processes
};

// Saves every persistent buffer. Older ones beyond the newest `keep` go (0: none goes), and so do those of steps that lie ahead.
void save_checkpoint(const std::string& folder, Session& session, const Progress& progress, std::int64_t keep);

// The newest checkpoint that is whole, loaded into the session; damaged ones are named in `notes` and passed over.
// Error(weights) when it belongs to another model, optimizer or data size. `samples`: of an epoch.
std::optional<Progress> load_newest_checkpoint(const std::string& folder, Session& session, std::int64_t samples,
                                               std::vector<std::string>& notes);

}  // namespace tessera::run
