// bench layers: where the time of inference goes by the parts of an encoder layer (of a residual
// block), in seconds and in shares, beside the time of the whole pass and beside what the FLOPs of
// attention would suggest.
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/say.h"
#include "measure/layers.h"
#include "measure/thread_watch.h"
#include "report/console.h"
#include "report/document.h"
#include "session/init.h"
#include "session/session.h"
#include "verbs/bench_ranks.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The sum over the rows of attention.
double attention_of(const LayerTimes& times, double (*value)(const LayerRow&)) {
  return std::accumulate(
      times.rows.begin(), times.rows.end(), 0.0,
      [&](double sum, const LayerRow& row) { return row.attention() ? sum + value(row) : sum; });
}
double time_share(const LayerTimes& t) {
  return attention_of(t, [](const LayerRow& row) { return row.all.median; }) / t.total_s;
}
double flops_share(const LayerTimes& t) {
  return attention_of(t, [](const LayerRow& row) { return row.flops; }) / t.flops;
}
double rate_of(double flops, double seconds) { return seconds > 0 ? flops / seconds * 1e-9 : 0; }

ordered_json layers_json(const LayerTimes& times, const config::Config& config,
                         std::int64_t batch) {
  ordered_json parts = ordered_json::array();
  for (const LayerRow& row : times.rows) {
    const auto layers = static_cast<double>(row.count);
    parts.push_back({{"name", row.name},
                     {"seconds", row.seconds()},
                     {"share", times.share(row)},
                     {"count", row.count},
                     {"least", row.all.min / layers},
                     {"most", row.all.max / layers},
                     {"all_layers", row.all.median},
                     {"gflops", rate_of(row.flops, row.all.median)}});
  }
  ordered_json document = {
      {"model", config.model.name},
      {"batch", batch},
      {"dtype", config.precision.dtype},
      {"threads", config.run.threads},
      {"device", config.run.device},
      {"fused", config.run.fuse},
      {"runs", times.runs},
      {"total_s", times.total_s},
      {"whole_s",
       {{"median", times.whole_s.median}, {"min", times.whole_s.min}, {"max", times.whole_s.max}}},
      {"gflops", rate_of(times.flops, times.whole_s.median)},
      {"layers", times.layers},
      {"busy", times.busy}};
  if (flops_share(times) > 0)
    document["attention"] = {{"share", time_share(times)}, {"flops_share", flops_share(times)}};
  document["parts"] = parts;
  return document;
}

void print_layers(const LayerTimes& times, const config::Config& config, std::int64_t batch) {
  const models::ModelConfig& m = config.model;
  report::say_sentence("{} {}x{}, batch {}, {}, {}, {}: {} layers, median of {} runs\n\n",
                       m.name.empty() ? m.family : m.name, m.image_h, m.image_w, batch,
                       config.precision.dtype, layout_heading(config),
                       config.run.fuse ? "fused kernels" : "every equation its own kernel",
                       times.layers, times.runs);
  std::size_t width = 0;
  for (const LayerRow& row : times.rows) width = std::max(width, row.name.size());
  say(stdout, "{:{}}  {:>12}  {:>23}  {:>6}  {:>11}  {:>6}  {:>8}\n", "part", width, "one layer, s",
      "least - most", "layers", "together, s", "share", "GFLOP/s");
  for (const LayerRow& row : times.rows) {
    const auto layers = static_cast<double>(row.count);
    say(stdout, "{:{}}  {:>12.6f}  {:>10.6f} - {:<10.6f}  {:>6}  {:>11.6f}  {:>5.1f}%  {:>8}\n",
        row.name, width, row.seconds(), row.all.min / layers, row.all.max / layers,
        row.count == 1 ? "" : fmt::format("x {}", row.count), row.all.median,
        times.share(row) * 100,
        row.flops > 0 ? fmt::format("{:.1f}", rate_of(row.flops, row.all.median)) : "");
  }
  say(stdout, "{:{}}  {:>12}  {:>23}  {:>6}  {:>11.6f}  {:>5.1f}%\n\n", "sum", width, "", "", "",
      times.total_s, 100.0);
  if (flops_share(times) > 0)
    report::say_sentence(
        "attention (all msa rows) takes {:.1f}% of the time; its share of the FLOPs is {:.1f}%\n",
        time_share(times) * 100, flops_share(times) * 100);
  report::say_sentence(
      "the whole pass, timed from outside in runs of its own: {:.6f} s ({:.6f} - {:.6f}); the sum "
      "of the rows is {:+.1f}% off\n",
      times.whole_s.median, times.whole_s.min, times.whole_s.max,
      (times.total_s / times.whole_s.median - 1) * 100);
  std::string busy;
  for (std::size_t i = 0; i < times.busy.size(); ++i)
    busy += fmt::format("{}{} {:.0f}%", i == 0 ? "" : ", ", i, times.busy[i] * 100);
  report::say_sentence("threads were busy for so much of the whole pass: {}\n", busy);
  say(stdout, "{:.2f} GFLOP a pass: {:.1f} GFLOP/s, {} img/s\n", times.flops * 1e-9,
      rate_of(times.flops, times.whole_s.median),
      report::per_second(static_cast<double>(batch) / times.whole_s.median));
}

}  // namespace

LayerTimes measure_layers(const config::Config& given, std::int64_t batch, std::int64_t repeats) {
  config::Config config = given;
  config.batch = {batch, batch, 1};
  ThreadWatch watch;
  Session session(config, {}, nullptr, Use::inference);
  const std::vector<std::uint8_t> images = random_pixels(config.model, batch);
  session.load(initial_weights(static_cast<std::uint64_t>(config.run.seed)));
  const plan::Plan& plan = session.compiled(Goal::predict, batch).plan;
  LayerRows parts = layer_rows(plan);
  parts.rows.push_back({rest_part});
  std::vector<std::vector<double>> seconds(parts.rows.size());  // of a row, by run
  std::vector<double> whole;
  session.predict(images, batch);  // warms up
  const auto begin = std::chrono::steady_clock::now();
  while (repeats > 0 ? static_cast<std::int64_t>(whole.size()) < repeats
                     : whole.size() < 5 || (since(begin) < 2 && whole.size() < 200)) {
    // In turns with runs that are timed from outside alone, so that both meet the same neighbours
    // on the machine.
    watch.begin();
    auto start = std::chrono::steady_clock::now();
    session.predict(images, batch);
    whole.push_back(since(start));
    watch.end();
    exec::Timeline timeline;
    start = std::chrono::steady_clock::now();
    session.predict(images, batch, &timeline);
    double rest = since(start);
    for (std::vector<double>& row : seconds) row.push_back(0);
    for (const exec::Timeline::Span& span : timeline.spans) {
      if (span.kind != exec::Timeline::compute ||
          parts.of_step[static_cast<std::size_t>(span.step)] == LayerRows::rest)
        continue;
      const double took = (span.end - span.start) * 1e-3;
      seconds[parts.of_step[static_cast<std::size_t>(span.step)]].back() += took;
      rest -= took;
    }
    seconds.back().back() = std::max(0.0, rest);
  }
  LayerTimes out{std::move(parts.rows),
                 models::layer_count(config.model),
                 static_cast<std::int64_t>(whole.size()),
                 plan.cost.flops,
                 0,
                 report::quantiles(whole),
                 watch.busy()};
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    out.rows[i].all = report::quantiles(seconds[i]);
    out.total_s += out.rows[i].all.median;
  }
  return out;
}

int bench_layers(const config::Config& config, const BenchOptions& options) {
  const LayerTimes times = measure_layers(config, options.batch, options.repeats);
  if (options.json)
    report::print_document(layers_json(times, config, options.batch));
  else
    print_layers(times, config, options.batch);
  return 0;
}

}  // namespace tessera::run
