// bench layers --compare-threading: the parts of a layer by each way in which threads may share
// work out (run.threading), beside one thread, and how busy each thread was. All ways are measured
// in turns.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/say.h"
#include "report/console.h"
#include "report/document.h"
#include "verbs/bench_ranks.h"
#include "verbs/layers/bench_layers.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

struct Way {
  std::string name;
  config::Config config;
  LayerTimes times = {};
};

std::vector<Way> measure_ways(const config::Config& config, const BenchOptions& options) {
  std::vector<Way> ways;
  std::vector<std::unique_ptr<LayerMeter>> meters;
  for (const char* name : {"one thread", "heads", "rows", "products", "auto"}) {
    Way& way = ways.emplace_back(Way{name, config});
    if (ways.size() == 1)
      way.config.run.threads = 1;
    else
      way.config.run.threading = name;
    meters.push_back(std::make_unique<LayerMeter>(way.config, options.batch,
                                                  random_pixels(config.model, options.batch)));
  }
  std::vector<LayerTimes> times = measure_in_turns(std::move(meters), options.repeats);
  for (std::size_t i = 0; i < ways.size(); ++i) ways[i].times = std::move(times[i]);
  return ways;
}

double times_faster(const std::vector<Way>& ways, const Way& way) {
  return ways[0].times.whole_s.median / way.times.whole_s.median;
}

ordered_json ways_json(const std::vector<Way>& ways, const config::Config& config,
                       std::int64_t batch) {
  ordered_json list = ordered_json::array();
  for (const Way& way : ways) {
    const LayerTimes& t = way.times;
    ordered_json parts = ordered_json::array();
    for (const LayerRow& row : t.rows)
      parts.push_back({{"name", row.name},
                       {"seconds", row.seconds()},
                       {"all_layers", row.all.median},
                       {"busy", row.busy}});
    list.push_back(
        {{"threading", way.config.run.threading},
         {"threads", way.config.run.threads},
         {"whole_s",
          {{"median", t.whole_s.median}, {"min", t.whole_s.min}, {"max", t.whole_s.max}}},
         {"times_one_thread", times_faster(ways, way)},
         {"busy", t.busy},
         {"parts", parts}});
  }
  return {{"model", config.model.name},      {"batch", batch},
          {"dtype", config.precision.dtype}, {"threads", config.run.threads},
          {"device", config.run.device},     {"fused", config.run.fuse},
          {"runs", ways[0].times.runs},      {"ways", list}};
}

// A row of the table, a cell for each way.
template <class Cell>
void say_row(const std::vector<Way>& ways, const std::string& name, std::size_t width,
             const Cell& cell) {
  std::string line = fmt::format("{:{}}", name, width);
  for (const Way& way : ways) line += fmt::format("  {:>13}", cell(way));
  say(stdout, "{}\n", line);
}

void print_ways(const std::vector<Way>& ways, const config::Config& config, std::int64_t batch) {
  const std::vector<LayerRow>& rows = ways[0].times.rows;
  report::say_sentence("{}, in turns\n\n", layers_heading(ways[0].times, config, batch));
  std::size_t width = std::string_view("times one thread").size();
  for (const LayerRow& row : rows) width = std::max(width, row.name.size());
  say_row(ways, "seconds, busy", width, [](const Way& way) { return way.name; });
  for (std::size_t i = 0; i < rows.size(); ++i)
    say_row(ways, rows[i].name, width, [&](const Way& way) {
      const LayerRow& row = way.times.rows[i];
      return row.busy.empty()
                 ? fmt::format("{:.6f}     ", row.all.median)
                 : fmt::format("{:.6f} {:>3.0f}%", row.all.median, row.mean_busy() * 100);
    });
  say(stdout, "\n");
  const auto whole = [](const Way& way) { return way.times.whole_s; };
  say_row(ways, "whole pass", width,
          [&](const Way& way) { return fmt::format("{:.6f}", whole(way).median); });
  say_row(ways, "least", width,
          [&](const Way& way) { return fmt::format("{:.6f}", whole(way).min); });
  say_row(ways, "most", width,
          [&](const Way& way) { return fmt::format("{:.6f}", whole(way).max); });
  say_row(ways, "times one thread", width,
          [&](const Way& way) { return fmt::format("{:.2f}", times_faster(ways, way)); });
  for (std::size_t i = 0; i < ways.back().times.busy.size(); ++i)
    say_row(ways, fmt::format("thread {} busy", i), width, [&](const Way& way) {
      const std::vector<double>& busy = way.times.busy;
      return i < busy.size() ? fmt::format("{:.0f}%", busy[i] * 100) : "";
    });
  say(stdout, "\n");
  report::say_sentence(
      "rows: seconds of all layers together, and the mean over the threads of the share in which "
      "they computed; the whole pass is timed in runs of its own\n");
}

}  // namespace

int bench_threading(const config::Config& config, const BenchOptions& options) {
  if (config.run.device != "cpu" || config.run.threads < 2)
    throw Error(ErrorKind::usage,
                fmt::format("--compare-threading is about threads of the CPU, and this is {}",
                            config.run.device != "cpu" ? config.run.device : "one of them"),
                "run.threads", "--device cpu --threads 2");
  const std::vector<Way> ways = measure_ways(config, options);
  if (options.json)
    report::print_document(ways_json(ways, config, options.batch));
  else
    print_ways(ways, config, options.batch);
  return 0;
}

}  // namespace tessera::run
