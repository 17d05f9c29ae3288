// bench offload: how fast what rests away from the device comes and goes in a plan, beside copies
// alone. Two plans are measured: an update whose moments come and go in pieces, and layers whose
// weights come one ahead of their use. Convention: rates are bytes of one direction over the time
// of the whole plan, of which the best run counts, as for the link.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/say.h"
#include "exec/executor.h"
#include "plan/traffic.h"
#include "report/console.h"
#include "report/document.h"
#include "report/metrics.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

constexpr int layers = 8;

// An update of one bucket; each moment has `bytes` bytes.
std::string update_program(std::int64_t bytes, const std::string& away) {
  const std::string type = fmt::format(" : f32[{}]", bytes / 4);
  return fmt::format(
      "program update mesh()\n  input w{0} param \"w\"\n  input g{0} param \"g\"\n"
      "  input m{0} state \"m\"{1}\n  input v{0} state \"v\"{1}\n"
      "  input lr : f32[] scalar \"lr\"\n  input t : i64[] scalar \"t\"\n"
      "  w1{0}, m1{0}, v1{0} = adamw w m v g lr t  # !optimizer\n"
      "  output \"w\" = w1 updates \"w\"\n  output \"m\" = m1 updates \"m\"\n"
      "  output \"v\" = v1 updates \"v\"\n",
      type, away);
}

// Layers that read their weights, `bytes` in all, once each.
std::string weights_program(std::int64_t bytes, const std::string& away) {
  const std::string type = fmt::format(" : f32[{}]", bytes / 4 / layers);
  std::string text = "program weights mesh()\n";
  const auto copy = [&](int k) { return fmt::format("  c{0}{1} = copy w{0}\n", k, type); };
  for (int k = 0; k < layers; ++k)
    text += fmt::format("  input w{0}{1} param \"w{0}\"{2}\n", k, type, away);
  text += copy(0);
  for (int k = 0; k < layers; ++k) {
    if (k + 1 < layers) text += copy(k + 1);
    text += fmt::format("  s{0} : f32[] = sumsq c{0}\n", k);
  }
  for (int k = 0; k < layers; ++k) text += fmt::format("  output \"s{0}\" = s{0}\n", k);
  return text;
}

struct Row {
  std::string what;
  std::int64_t fetched = 0, stowed = 0;
  report::Quantiles ms{};
  double best_ms = 0;
  double up() const { return static_cast<double>(fetched) / best_ms * 1e-6; }
  double down() const { return static_cast<double>(stowed) / best_ms * 1e-6; }
};

Row measure(const config::Config& config, const std::string& what, const std::string& text,
            std::int64_t repeats) {
  const int threads = static_cast<int>(config.run.threads);
  const std::unique_ptr<exec::Executor> executor = exec::make_executor(
      config.run.device, threads, {}, exec::Carrier::host,
      config.parallel.offload_folder.empty() ? std::string(".") : config.parallel.offload_folder);
  const plan::Plan plan = plan::lower(ir::parse(text), 0, executor->target(), true);
  const std::unique_ptr<exec::Loaded> loaded = executor->load(plan);
  const plan::AwayTraffic moved = plan::away_traffic(plan);
  Row row{.what = what, .fetched = moved.fetched, .stowed = moved.stowed};
  std::vector<double> ms;
  for (std::int64_t step = 1; step <= repeats + 2; ++step) {  // the first two capture graphs
    const float rate = 0.01f;
    if (plan.input("lr")) {
      loaded->write("lr", std::as_bytes(std::span(&rate, 1)));
      loaded->write("t", std::as_bytes(std::span(&step, 1)));
    }
    const double took = loaded->run().timeline.wall_ms;
    if (step > 2) ms.push_back(took);
  }
  row.ms = report::quantiles(ms);
  row.best_ms = *std::min_element(ms.begin(), ms.end());
  return row;
}

}  // namespace

int bench_offload(const config::Config& config, const BenchOptions& options) {
  const bool file =
      config.parallel.offload_optimizer == "file" || config.parallel.offload_params == "file";
  const std::string home = file ? "file" : "host";
  const auto piece = static_cast<std::int64_t>(config.parallel.offload_mb * (1 << 20));
  const std::string away = fmt::format(" on {} by {}", home, piece);
  const std::int64_t bytes = std::max<std::int64_t>(options.max_bytes, 4096) / 4096 * 4096,
                     repeats = options.repeats > 0 ? options.repeats : 9;
  const std::vector<Row> rows = {measure(config, "update", update_program(bytes, away), repeats),
                                 measure(config, "weights", weights_program(bytes, away), repeats)};
  exec::LinkRates link;
  if (!file)
    link = exec::device_info(config.run.device, static_cast<int>(config.run.threads)).link_gbytes();
  // An update is held up by both directions at once, weights by one.
  const auto share = [&](const Row& row) {
    return row.stowed > 0 ? std::max(row.up(), row.down()) / link.both : row.up() / link.up;
  };
  if (options.json) {
    ordered_json all = ordered_json::array();
    for (const Row& row : rows) {
      all.push_back({{"what", row.what},
                     {"fetched", row.fetched},
                     {"stowed", row.stowed},
                     {"ms", {{"median", row.ms.median}, {"min", row.best_ms}}},
                     {"up_gbytes", row.up()},
                     {"down_gbytes", row.down()}});
      if (!file) all.back()["of_link"] = share(row);
    }
    ordered_json out = {
        {"device", config.run.device}, {"home", home}, {"piece_bytes", piece}, {"runs", repeats}};
    if (!file) out["link_gbytes"] = {{"up", link.up}, {"down", link.down}, {"both", link.both}};
    out["rows"] = all;
    report::print_document(out);
    return 0;
  }
  if (!file)
    say(stdout, "link: {:.1f} GB/s to the device, {:.1f} from it, {:.1f} each way at once\n",
        link.up, link.down, link.both);
  for (const Row& row : rows)
    report::say_sentence(
        "{:8} fetches {:.1f} and stows {:.1f} MB in {:.2f} ms: {:.1f} and {:.1f} GB/s{}\n",
        row.what, static_cast<double>(row.fetched) * 1e-6, static_cast<double>(row.stowed) * 1e-6,
        row.best_ms, row.up(), row.down(),
        file ? "" : fmt::format(", {:.0f}% of the link", share(row) * 100));
  report::say_sentence("the best of {} runs on {}, pieces of {:.1f} MB, state {}\n", repeats,
                       config.run.device, static_cast<double>(piece) * 1e-6,
                       file ? "in a file" : "on the host");
  return 0;
}

}  // namespace tessera::run
