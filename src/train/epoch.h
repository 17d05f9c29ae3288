// The state of a training, and the end of an epoch: evaluation, its line, the best so far and the
// target. Convention: every rank makes the same calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "checkpoint/progress.h"
#include "config/config.h"
#include "data/dataset.h"
#include "measure/meter.h"
#include "ranks/ranks.h"
#include "session/session.h"
#include "train/score.h"
#include "train/train_log.h"
#include "train/train_report.h"

namespace tessera::run {

double seconds_since(std::chrono::steady_clock::time_point start);

struct TrainState {
  TrainState(const config::Config& config, comm::Comm* world) : config(config), ranks(world) {}

  // All batches of the epoch (or of the run) are done, its evaluation and its line are not.
  bool epoch_pending() const;
  bool last_epoch() const;
  // One rank that is asked to stop stops all.
  bool stopping() const;
  // Seconds of all processes of the run so far.
  double wall() const { return wall_before + seconds_since(start); }
  // Brings `progress` to what the log and the clocks say now, for a checkpoint.
  void note_progress(const TrainLog& log);

  config::Config config;
  Ranks ranks;
  std::unique_ptr<data::Dataset> train, test;
  std::unique_ptr<Session> session;
  Progress progress;
  TrainResults results;
  std::int64_t epoch_samples = 0, total = 0;  // of one epoch; steps of the run
  double wall_before = 0;                     // seconds of earlier processes
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point epoch_start = start;
};

// How often the epochs to come are evaluated.
std::int64_t evaluations_left(const TrainState& state);

// The moving average where one is kept, with statistics of its own: of the epoch that ends or has
// just ended, because a process that resumes at the very end must find the same batches.
Score evaluate(TrainState& state, TrainLog& log);

// Evaluates, writes the epoch's line and begins the next one; false when a request to stop came
// in between and the epoch is still pending.
bool end_epoch(TrainState& state, TrainLog& log, Meter& meter);

}  // namespace tessera::run
