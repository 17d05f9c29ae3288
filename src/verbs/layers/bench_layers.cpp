// bench layers: where the time of inference goes by the parts of an encoder layer (of a residual
// block), in seconds and in shares, beside the time of the whole pass and beside what the FLOPs of
// attention would suggest.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/say.h"
#include "report/console.h"
#include "report/document.h"
#include "verbs/bench_ranks.h"
#include "verbs/layers/bench_layers.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

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
                     {"gflops", rate_of(row.flops, row.all.median)},
                     {"busy", row.busy}});
  }
  ordered_json document = {
      {"model", config.model.name},
      {"batch", batch},
      {"dtype", config.precision.dtype},
      {"threads", config.run.threads},
      {"threading", config.run.threading},
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
  report::say_sentence("{}\n\n", layers_heading(times, config, batch));
  std::size_t width = 0;
  for (const LayerRow& row : times.rows) width = std::max(width, row.name.size());
  say(stdout, "{:{}}  {:>12}  {:>23}  {:>6}  {:>11}  {:>6}  {:>4}  {:>8}\n", "part", width,
      "one layer, s", "least - most", "layers", "together, s", "share", "busy", "GFLOP/s");
  for (const LayerRow& row : times.rows) {
    const auto layers = static_cast<double>(row.count);
    say(stdout,
        "{:{}}  {:>12.6f}  {:>10.6f} - {:<10.6f}  {:>6}  {:>11.6f}  {:>5.1f}%  {:>4}  {:>8}\n",
        row.name, width, row.seconds(), row.all.min / layers, row.all.max / layers,
        row.count == 1 ? "" : fmt::format("x {}", row.count), row.all.median,
        times.share(row) * 100,
        row.busy.empty() ? "" : fmt::format("{:.0f}%", row.mean_busy() * 100),
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

LayerTimes measure_layers(const config::Config& config, std::int64_t batch, std::int64_t repeats) {
  std::vector<std::unique_ptr<LayerMeter>> one;
  one.push_back(std::make_unique<LayerMeter>(config, batch, random_pixels(config.model, batch)));
  return measure_in_turns(std::move(one), repeats)[0];
}

std::string layers_heading(const LayerTimes& times, const config::Config& config,
                           std::int64_t batch) {
  const models::ModelConfig& m = config.model;
  return fmt::format("{} {}x{}, batch {}, {}, {}, {}: {} layers, median of {} runs",
                     m.name.empty() ? m.family : m.name, m.image_h, m.image_w, batch,
                     config.precision.dtype, layout_heading(config),
                     config.run.fuse ? "fused kernels" : "every equation its own kernel",
                     times.layers, times.runs);
}

int bench_layers(const config::Config& config, const BenchOptions& options) {
  if (options.compare_threading) return bench_threading(config, options);
  const LayerTimes times = measure_layers(config, options.batch, options.repeats);
  if (options.json)
    report::print_document(layers_json(times, config, options.batch));
  else
    print_layers(times, config, options.batch);
  return 0;
}

}  // namespace tessera::run
