#include "train/under_way.h"

#include <algorithm>

#include "base/check.h"
#include "checkpoint/save_interval.h"
#include "comm/heartbeat.h"
#include "ranks/clocks.h"
#include "ranks/watchdog.h"
#include "train/batches.h"
#include "train/learning_rate.h"

namespace tessera::run {

report::StepMetrics metrics_of(const FinishedStep& step, const Measured& seen) {
  const StepResult& r = step.result;
  const double count = static_cast<double>(step.batch.count);
  return {.step = r.step,
          .epoch = step.batch.epoch,
          .loss = r.loss,
          .top1 = r.correct / count,
          .grad_norm = r.grad_norm,
          .step_ms = seen.step_ms,
          .images_per_s = count / seen.step_ms * 1e3,
          .comm_bytes = step.sent.total().bytes,
          .skipped = !r.ok,
          .loss_scale = r.loss_scale,
          .overflow = r.overflow,
          .sampled = seen.sampled,
          .breakdown = seen.breakdown};
}

StepsUnderWay::StepsUnderWay(Session& session, const RunExtent& extent, int ahead)
    : session_(session),
      extent_(extent),
      ahead_(ahead >= 0 ? ahead : session.executor().runs_ahead()) {
  CHECK(ahead_ < transforms::rates_ahead, "a program does not know the rates of so many updates");
}

StepInputs StepsUnderWay::inputs_of(const data::Batch& batch, std::int64_t number) const {
  const config::Config& config = session_.config();
  return {.images = images_of(batch),
          .labels = batch.labels,
          .lr = learning_rate(config, number, extent_.steps),
          .step = number,
          .position = batch.epoch * extent_.samples + batch.first_position,
          .targets = batch.targets,
          .weights = batch.weights,
          .next_lr = learning_rate(config, number + 1, extent_.steps)};
}

void StepsUnderWay::submit(data::Loader& loader, const Progress& progress, const Meter& meter,
                           int rank) {
  const std::int64_t expected =
      progress.step + 1 +
      static_cast<std::int64_t>(steps_.size());  // its number, if those before are applied
  Step& now = steps_.emplace_back(Step{std::move(spare_), meter.wanted(expected), steady_ns()});
  comm::Heartbeat::doing("loading the data of step", expected);
  hang_if_asked(rank, expected);
  next_batch(loader, session_, session_.config(), now.batch);
  now.data_ms = static_cast<double>(steady_ns() - now.began_ns) * 1e-6;
  comm::Heartbeat::doing("computing step", expected);
  const comm::Traffic before = session_.traffic();
  now.pending = session_.submit(inputs_of(now.batch, progress.step + 1), now.wanted.spans);
  now.sent = session_.traffic() - before;
}

bool StepsUnderWay::full(const Progress& progress) const {
  if (steps_.empty()) return false;
  const config::Config& config = session_.config();
  const std::int64_t every =
      config.checkpoint.every < 0 ? SaveInterval::multiple : config.checkpoint.every;
  const std::int64_t most =
      progress.step +
      static_cast<std::int64_t>(steps_.size());  // applied updates, when all of them are done
  const data::Batch& last = steps_.back().batch;
  const bool ends_epoch = last.first_position + last.count >= extent_.epoch_samples,
             ends_run = most >= extent_.steps;
  const auto passes = [&](std::int64_t steps) {
    return steps > 0 && most / steps > progress.step / steps;
  };
  const bool saves = passes(every) || passes(config.checkpoint.memory_every);
  const bool decides = ends_epoch || ends_run || saves || progress.skipped_in_a_row > 0 ||
                       config.parallel.shares.word == "measured";
  return decides || static_cast<std::int64_t>(steps_.size()) > ahead_;
}

FinishedStep StepsUnderWay::wait() {
  Step now = std::move(steps_.front());
  FinishedStep out{.batch = std::move(now.batch),
                   .result = now.pending->wait(),
                   .wanted = now.wanted,
                   .sent = now.sent};
  steps_.pop_front();
  out.began_ns = std::max(now.began_ns, finished_ns_);
  finished_ns_ = steady_ns();
  out.ran_ms = static_cast<double>(finished_ns_ - out.began_ns) * 1e-6;
  out.data_ms = std::min(now.data_ms, out.ran_ms);
  return out;
}

}  // namespace tessera::run
