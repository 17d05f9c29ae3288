#include "train/epoch.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/heartbeat.h"
#include "input/dataset.h"
#include "ranks/stop.h"
#include "report/console.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

void check_target(TrainState& state, TrainLog& log, const Score& s, std::int64_t epoch) {
  if (state.config.run.until.empty()) return;
  const config::Target target = config::parse_until(state.config.run.until);
  state.progress.reached = target.metric == "loss"
                               ? s.loss <= target.value
                               : (target.metric == "top5" ? s.top5 : s.top1) >= target.value;
  if (!state.progress.reached) return;
  state.progress.time_to_target_s = state.wall();
  state.progress.epochs_to_target = epoch;
  log.console().line(
      fmt::format("reached {} after {} ({} epochs, {} steps)", state.config.run.until,
                  report::duration(state.progress.time_to_target_s), epoch, state.progress.step));
}

}  // namespace

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void TrainState::note_progress(const TrainLog& log) {
  if (ranks.first()) {
    progress.metrics_bytes = log.bytes();
    progress.metrics_hash = log.hash();
  }
  progress.epoch_seconds += seconds_since(epoch_start);
  epoch_start = std::chrono::steady_clock::now();
  progress.wall_s = wall();
}

bool TrainState::epoch_pending() const {
  return progress.position >= epoch_samples ||
         (progress.step >= total && progress.epoch_images > 0);
}

bool TrainState::last_epoch() const {
  const std::int64_t after = progress.epoch + (progress.position >= epoch_samples ? 1 : 0);
  return progress.step >= total || (config.run.epochs > 0 && after >= config.run.epochs);
}

bool TrainState::stopping() const {
  comm::Heartbeat::doing("after step", progress.step);
  return ranks.any(stop_requested());
}

std::int64_t evaluations_left(const TrainState& state) {
  if (state.test->size() == 0) return 0;
  const std::int64_t batch = std::max<std::int64_t>(1, state.config.batch.global),
                     steps = std::max<std::int64_t>(1, (state.epoch_samples + batch - 1) / batch),
                     last = (state.total + steps - 1) / steps;  // epochs of the whole run
  if (last <= state.progress.epoch) return 0;
  const std::int64_t every = state.config.run.eval_every;
  return every <= 0 ? 1 : last / every - state.progress.epoch / every + (last % every == 0 ? 0 : 1);
}

Score evaluate(TrainState& state, TrainLog& log) {
  const std::int64_t epoch =
      state.progress.epoch - (state.progress.position == 0 && state.progress.epoch > 0 ? 1 : 0);
  if (state.session->averages() && state.session->has_statistics())
    recalibrate(*state.session, state.config, *state.train, epoch);
  const auto start = std::chrono::steady_clock::now();
  Score out = score(
      *state.session, state.config, *state.test, evaluation_batch(state.config),
      static_cast<int>(state.config.data.workers), nullptr, [&] { return state.stopping(); },
      [&](std::int64_t images) { log.evaluating(images, seconds_since(start), false); });
  log.evaluating(out.images, seconds_since(start), true);
  return out;
}

bool end_epoch(TrainState& state, TrainLog& log, Meter& meter) {
  const std::int64_t epoch = state.progress.epoch + 1;
  const bool scored =
      state.test->size() > 0 && (state.last_epoch() || (state.config.run.eval_every > 0 &&
                                                        epoch % state.config.run.eval_every == 0));
  const double n = std::max(1.0, static_cast<double>(state.progress.epoch_images));
  const std::vector<double> waits = meter.barrier();
  EpochRecord record{state.progress.epoch_seconds + seconds_since(state.epoch_start),
                     state.progress.epoch_loss / n, state.progress.epoch_correct / n};
  record.barrier_wait_s = *std::max_element(waits.begin(), waits.end());
  ordered_json line = epoch_json(epoch, state.progress.step,
                                 state.progress.position >= state.epoch_samples, record, waits);
  if (scored) {
    const Score s = evaluate(state, log);
    if (state.stopping() && s.images < state.test->size()) return false;
    state.results.final = s;
    record.test_top1 = s.top1;
    if (state.progress.best_step == 0 || s.top1 > state.progress.best_top1) {
      state.progress.best_top1 = s.top1;
      state.progress.best_epoch = epoch;
      state.progress.best_step = state.progress.step;
    }
    log.console().line(eval_line(epoch, s, state.progress));
    line.update({{"test_loss", s.loss}, {"test_top1", s.top1}, {"test_top5", s.top5}});
    if (s.top1_tta >= 0) line["test_top1_tta"] = record.test_top1_tta = s.top1_tta;
    check_target(state, log, s, epoch);
  }
  line["elapsed_s"] = state.wall();
  log.append(line);
  state.results.epochs.push_back(record);
  if (state.progress.position >= state.epoch_samples) {
    ++state.progress.epoch;
    state.progress.position = 0;
  }
  state.progress.epoch_loss = state.progress.epoch_correct = state.progress.epoch_seconds = 0;
  state.progress.epoch_images = 0;
  state.epoch_start = std::chrono::steady_clock::now();
  return true;
}

}  // namespace tessera::run
