#include "verbs/bench_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/say.h"
#include "measure/peak.h"
#include "report/console.h"
#include "report/document.h"
#include "report/metrics.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

std::string shape_key(const plan::Step& step) {
  std::string key(ir::name(step.op));
  if (step.op == ir::Op::contract || step.op == ir::Op::sum || step.op == ir::Op::add ||
      step.op == ir::Op::mul)
    key += " " + ir::signature(step.op, step.attrs, static_cast<int>(step.in.size()));
  for (std::size_t i = 0; i < std::min<std::size_t>(step.in.size(), 2); ++i)
    key += " " + ir::to_string(step.in[i].type.shape);
  return key;
}

// Peaks that equations are held against, by element type; each is measured when it is first asked
// for. On a card all of them are held against that of the run's type.
class OpPeaks {
 public:
  OpPeaks(const config::Config& config, int threads) : config_(config), threads_(threads) {}

  const Peak& of(const std::string& dtype) {
    const auto found = known_.find(dtype);
    if (found != known_.end()) return found->second;
    return known_[dtype] = peak_on(config_.run.device, dtype, Ranks(nullptr), threads_);
  }
  const Peak& of_run() { return of(multiplies_in(config_)); }
  // The type of the first operand is that of the factors.
  const Peak& of(const plan::Step& step) {
    if (config_.run.device != "cpu" || step.in.empty()) return of_run();
    const ir::DType dtype = step.in[0].type.dtype;
    return of(dtype == ir::DType::bf16 ? "bf16" : dtype == ir::DType::i8 ? "int8" : "f32");
  }
  ordered_json json() const {
    ordered_json out = ordered_json::object();
    for (const auto& [dtype, peak] : known_) out[dtype] = peak.gflops;
    return out;
  }
  std::string words() const {  // "164 GFLOP/s f32, measured 2026-..."
    std::vector<std::string> out;
    for (const auto& [dtype, peak] : known_)
      out.push_back(fmt::format("{:.0f} GFLOP/s {}, measured {}{}", peak.gflops, peak.dtype,
                                peak.measured, peak.doubt.empty() ? "" : " (" + peak.doubt + ")"));
    return fmt::format("{}", fmt::join(out, "; "));
  }

 private:
  const config::Config& config_;
  int threads_;
  std::map<std::string, Peak> known_;
};

// Equations of one kind and shape, together.
struct OpRow {
  std::string name;
  int calls = 0;
  double ms = 0, flops = 0, bytes = 0;
  // The larger of operations over the peak of their type and bytes over bandwidth.
  double floor_ms = 0;
  double lost_ms() const { return ms - floor_ms; }
};

// The slowest first.
std::vector<OpRow> op_rows(const plan::Plan& plan, const TimedRuns& found,
                           const std::string& filter, OpPeaks& peaks, double copy) {
  std::map<std::string, OpRow> rows;
  for (std::size_t i = plan.prepared; i < plan.steps.size(); ++i) {
    const std::string name = shape_key(plan.steps[i]);
    if (name.find(filter) == std::string::npos) continue;
    OpRow& row = rows[name];
    const ir::Cost c = step_cost(plan.steps[i]);
    row.name = name;
    ++row.calls;
    row.ms += median_step(found, i);
    row.flops += c.flops;
    row.bytes += c.bytes;
    row.floor_ms += std::max(c.flops / peaks.of(plan.steps[i]).gflops, c.bytes / copy) * 1e-6;
  }
  std::vector<OpRow> out;
  for (auto& [name, row] : rows) out.push_back(std::move(row));
  std::sort(out.begin(), out.end(), [](const OpRow& a, const OpRow& b) { return a.ms > b.ms; });
  return out;
}

// The rows that take the most time above their floor, at most ten of them: where there is something
// to gain.
std::vector<OpRow> largest_losses(std::vector<OpRow> rows) {
  std::sort(rows.begin(), rows.end(),
            [](const OpRow& a, const OpRow& b) { return a.lost_ms() > b.lost_ms(); });
  rows.resize(std::min<std::size_t>(10, rows.size()));
  std::erase_if(rows, [](const OpRow& row) { return row.lost_ms() <= 0; });
  return rows;
}

}  // namespace

double median_step(const TimedRuns& found, std::size_t step) {
  std::vector<double> ms;
  for (const std::vector<double>& run : found.step_ms) ms.push_back(run[step]);
  return report::quantiles(ms).median;
}

ir::Cost step_cost(const plan::Step& step) {
  std::vector<ir::Type> in, out;
  for (const plan::Slot& s : step.in) in.push_back(s.type);
  for (const plan::Slot& s : step.out) out.push_back(s.type);
  return ir::cost(step.op, step.attrs, in, out);
}

void bench_ops(const plan::Plan& plan, const TimedRuns& found, const config::Config& config,
               const BenchOptions& options) {
  const int threads = static_cast<int>(config.run.threads);
  OpPeaks peaks(config, threads);
  const double peak = peaks.of_run().gflops;
  const exec::DeviceInfo device = exec::device_info(config.run.device, threads);
  const double copy = device.copy_gbytes();
  const std::vector<OpRow> rows = op_rows(plan, found, options.filter, peaks, copy),
                           losses = largest_losses(rows);
  if (options.json) {
    ordered_json all = ordered_json::array(), lost = ordered_json::array();
    for (const OpRow& r : rows)
      all.push_back({{"name", r.name},
                     {"calls", r.calls},
                     {"ms", r.ms},
                     {"gflops", r.flops / r.ms * 1e-6},
                     {"gbytes", r.bytes / r.ms * 1e-6},
                     {"floor_ms", r.floor_ms}});
    for (const OpRow& r : losses) lost.push_back({{"name", r.name}, {"ms", r.lost_ms()}});
    return report::print_document({{"model", config.model.name},
                                   {"batch", options.batch},
                                   {"dtype", config.precision.dtype},
                                   {"threads", threads},
                                   {"device", config.run.device},
                                   {"peak_gflops", peak},
                                   {"peaks", peaks.json()},
                                   {"copy_gbytes", copy},
                                   {"ops", all},
                                   {"losses", lost}});
  }
  say(stdout, "{:>5} {:>9} {:>9} {:>8} {:>8}  {}\n", "calls", "ms", "GFLOP/s", "GB/s", "floor",
      "equation");
  for (const OpRow& r : rows)
    say(stdout, "{:>5} {:>9.3f} {:>9.1f} {:>8.1f} {:>7.0f}%  {}\n", r.calls, r.ms,
        r.flops / r.ms * 1e-6, r.bytes / r.ms * 1e-6, r.floor_ms / r.ms * 100, r.name);
  const std::string card = device.card();
  report::say_sentence(
      "peak {}; copy {:.0f} GB/s, measured now, on {}; floor = floor time / measured time\n",
      peaks.words(), copy,
      card.empty() ? fmt::format("{} thread{}", threads, threads == 1 ? "" : "s") : card);
  say(stdout, "\nlargest losses: ms above the floor\n");
  for (const OpRow& r : losses) say(stdout, "{:>15.3f}  {}\n", r.lost_ms(), r.name);
}

}  // namespace tessera::run
