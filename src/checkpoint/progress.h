// Where a training stands: everything besides weights and optimizer state that the loop must know
// to go on as if it had never stopped. Convention: random numbers need no state of their own; they
// are keyed by (seed, step, position), all of which are here or in the config.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace tessera::run {

struct Progress {
  std::int64_t step = 0;   // applied updates; a skipped step is none
  std::int64_t epoch = 0;  // of the next batch
  // The first sample of the next batch inside its epoch. It equals the samples of an epoch while
  // every batch is done, but its evaluation and its line are not.
  std::int64_t position = 0;
  std::int64_t skipped = 0, skipped_in_a_row = 0;  // steps whose loss or gradient was not finite:
                                                   // their batch is used up, nothing changed
  double best_top1 = 0;                            // on the test samples
  std::int64_t best_epoch = 0, best_step = 0;      // best_step 0: not evaluated yet
  double epoch_loss = 0, epoch_correct = 0,
         epoch_seconds = 0;  // sums of the epoch under way, over applied steps
  std::int64_t epoch_images = 0;
  double wall_s = 0;     // spent by this run in all its processes
  bool reached = false;  // run.until is fulfilled: the run is at its end
  double time_to_target_s = 0;
  std::int64_t epochs_to_target = 0;
  std::int64_t metrics_bytes =
      0;  // length of metrics.jsonl: what lies beyond is repeated by a resumed run
  std::string metrics_hash;  // of these bytes; empty in checkpoints of earlier versions
  // Empty: the loss scale is state of the program, and so a tensor of a checkpoint.
  nlohmann::json loss_scale = nlohmann::json::object();

  // A step that was applied, or not; `loss` is the mean of its images. An overflow that the loss
  // scale answers is skipped, but no bad step.
  void add(bool applied, std::int64_t images, double loss, double correct, bool overflow = false);
};

nlohmann::json to_json(const Progress& progress);
// Error(weights) when something is missing or of the wrong kind; `where` names the file.
Progress progress_from(const nlohmann::json& json, const std::string& where);

}  // namespace tessera::run
