// Checkpoints of a run folder: ckpt/step-N/{manifest.json, rank-R.safetensors}. Written beside and renamed, so a cut-off write is never taken for one.
#pragma once

#include <optional>
#include <string>

#include "run/session.h"

namespace tessera::run {

struct Progress {
  std::int64_t step = 0;               // applied updates
  std::int64_t epoch = 0, position = 0;    // of the next batch
  double best_top1 = 0;
  std::int64_t best_epoch = 0;
};

// Saves every persistent buffer; keeps the newest `keep` (0: all).
void save_checkpoint(const std::string& folder, Session& session, const Progress& progress, std::int64_t keep);

// The newest checkpoint that is whole (size and checksum as its manifest says, same model and buffers), loaded into the session.
// Damaged ones are named in `notes` and passed over.
std::optional<Progress> load_newest_checkpoint(const std::string& folder, Session& session, std::vector<std::string>& notes);

}  // namespace tessera::run
