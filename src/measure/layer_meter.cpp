// The rows of `bench layers`, measured.
#include <algorithm>
#include <chrono>
#include <numeric>

#include "measure/layers.h"
#include "session/init.h"

namespace tessera::run {
namespace {

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

config::Config with_batch(config::Config config, std::int64_t batch) {
  config.batch = {batch, batch, 1};
  return config;
}

}  // namespace

LayerMeter::LayerMeter(const config::Config& config, std::int64_t batch,
                       std::vector<std::uint8_t> images)
    : session_(with_batch(config, batch), {}, nullptr, Use::inference),
      images_(std::move(images)),
      batch_(batch),
      plan_(session_.compiled(Goal::predict, batch).plan),
      parts_(layer_rows(plan_)) {
  parts_.rows.push_back({rest_part});
  seconds_.resize(parts_.rows.size());
  watch_.begin();                  // settles which threads it watches, before others start theirs
  if (config.run.device == "cpu")  // a card has its work by the graph
    cpu_.assign(parts_.rows.size() - 1, std::vector<double>(watch_.computed().size()));
  session_.load(initial_weights(static_cast<std::uint64_t>(config.run.seed)));
  session_.predict(images_, batch_);  // warms up
}

void LayerMeter::turn() {
  watch_.begin();
  const auto start = std::chrono::steady_clock::now();
  session_.predict(images_, batch_);
  whole_.push_back(since(start));
  watch_.end();
  time_steps();
}

void LayerMeter::time_steps() {
  std::vector<double> before = watch_.computed();
  if (!cpu_.empty())
    session_.observe([&](std::size_t step, const auto&) {
      std::vector<double> now = watch_.computed();
      const std::size_t row = parts_.of_step[step];
      for (std::size_t i = 0; i < now.size() && row != LayerRows::rest; ++i)
        cpu_[row][i] += now[i] - before[i];
      before = std::move(now);
    });
  exec::Timeline timeline;
  const auto start = std::chrono::steady_clock::now();
  session_.predict(images_, batch_, &timeline);
  double rest = since(start);
  session_.observe({});
  for (std::vector<double>& row : seconds_) row.push_back(0);
  for (const exec::Timeline::Span& span : timeline.spans) {
    const std::size_t row = parts_.of_step[static_cast<std::size_t>(span.step)];
    if (span.kind != exec::Timeline::compute || row == LayerRows::rest) continue;
    const double took = (span.end - span.start) * 1e-3;
    seconds_[row].back() += took;
    rest -= took;
  }
  seconds_.back().back() = std::max(0.0, rest);
}

LayerTimes LayerMeter::times() const {
  LayerTimes out{.rows = parts_.rows,
                 .layers = models::layer_count(session_.config().model),
                 .runs = turns(),
                 .flops = plan_.cost.flops,
                 .total_s = 0,
                 .whole_s = report::quantiles(whole_),
                 .busy = watch_.busy()};
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    out.rows[i].all = report::quantiles(seconds_[i]);
    out.total_s += out.rows[i].all.median;
    const double passed = std::accumulate(seconds_[i].begin(), seconds_[i].end(), 0.0);
    for (const double spent : i < cpu_.size() ? cpu_[i] : std::vector<double>())
      out.rows[i].busy.push_back(passed > 0 ? std::clamp(spent / passed, 0.0, 1.0) : 0);
  }
  return out;
}

std::vector<LayerTimes> measure_in_turns(std::vector<std::unique_ptr<LayerMeter>> meters,
                                         std::int64_t repeats) {
  const auto begin = std::chrono::steady_clock::now();
  const double enough = 2.0 * static_cast<double>(meters.size());
  const auto goes_on = [&](std::int64_t turns) {
    return repeats > 0 ? turns < repeats : turns < 5 || (since(begin) < enough && turns < 200);
  };
  for (std::int64_t turn = 0; goes_on(turn); ++turn)
    for (const auto& meter : meters) meter->turn();
  std::vector<LayerTimes> out;
  for (const auto& meter : meters) out.push_back(meter->times());
  return out;
}

}  // namespace tessera::run
