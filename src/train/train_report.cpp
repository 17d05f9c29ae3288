#include "train/train_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>

#include "base/build_info.h"
#include "compile/stages.h"
#include "config/devices.h"
#include "config/layout.h"
#include "config/pipeline.h"
#include "exec/device.h"
#include "measure/environment.h"
#include "models/model.h"
#include "ranks/launch.h"
#include "ranks/placement.h"
#include "report/console.h"

namespace tessera::run {

using nlohmann::ordered_json;

namespace {

std::int64_t ranks_of(const config::Config& c) {
  return c.parallel.dp * c.parallel.tp * c.parallel.pp * c.parallel.sp;
}

// "dp4 x tp2 zero1", "pp2 1f1b 3+3": the axes of one rank are left out; of a pipeline its schedule
// and the blocks of each stage.
std::string layout_in_short(const config::Config& c) {
  std::string out = config::mesh_words(c.parallel);
  if (out.empty()) out = "dp1";
  if (config::pipeline_stages(c.parallel) > 1)
    out += fmt::format(" {} {}", c.parallel.pp > 1 ? c.parallel.schedule : "segments",
                       fmt::join(blocks_per_stage(c), "+"));
  if (c.parallel.zero > 0) out += fmt::format(" zero{}", c.parallel.zero);
  if (c.parallel.sequence == "megatron") out += " megatron";
  return out;
}

ordered_json summary_layout(const config::Config& c) {
  const config::Parallel& p = c.parallel;
  ordered_json out = {{"dp", p.dp}, {"tp", p.tp},     {"pp", p.pp},
                      {"sp", p.sp}, {"zero", p.zero}, {"sequence", p.sequence}};
  if (config::pipeline_stages(p) == 1) return out;
  out["schedule"] = p.schedule;
  out["stages"] = blocks_per_stage(c);
  return out;
}

// The first of those ranks that hold the most, with its number where some hold less.
struct Largest {
  plan::Memory memory;
  std::string whose;
};
Largest largest(const std::vector<plan::Memory>& ranks) {
  std::size_t most = 0;
  bool differ = false;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    differ |= ranks[r].total() != ranks[0].total();
    if (ranks[r].total() > ranks[most].total()) most = r;
  }
  return {ranks[most], differ ? fmt::format(" (most: rank {})", most) : ""};
}

std::int64_t most_bytes(const ordered_json& ranks, const char* which) {
  std::int64_t most = 0;
  for (const ordered_json& rank : ranks)
    most = std::max(most, rank["peak_bytes"][which].get<std::int64_t>());
  return most;
}

// The rank that the others waited for the most, in ms a step and as a share of one; null: there is
// one rank, or nobody waited.
ordered_json waited_for(const ordered_json& ranks, double step_ms) {
  ordered_json out = nullptr;
  double most = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const double ms = ranks[r].value("others_waited_ms", 0.0);
    if (ms <= most) continue;
    most = ms;
    out = {{"rank", r}, {"ms", ms}, {"share", step_ms > 0 ? ms / step_ms : 0.0}};
  }
  return out;
}

}  // namespace

void TrainResults::recall(const std::vector<nlohmann::json>& lines) {
  auto number = [](const nlohmann::json& line, const char* key, double otherwise) {
    return line.contains(key) && line[key].is_number() ? line[key].get<double>() : otherwise;
  };
  for (const nlohmann::json& line : lines) {
    if (line["kind"] == "step" && !line.contains("skipped")) {
      step_ms.push_back(number(line, "step_ms", 0));
      last_loss = number(line, "loss", 0);
    } else if (line["kind"] == "epoch") {
      epochs.push_back({.seconds = number(line, "seconds", 0),
                        .loss = number(line, "loss", 0),
                        .train_top1 = number(line, "train_top1", 0),
                        .test_top1 = number(line, "test_top1", -1),
                        .test_top1_tta = number(line, "test_top1_tta", -1),
                        .barrier_wait_s = number(line, "barrier_wait_s", 0)});
    }
  }
}

namespace {
// The device that a rank computes on: "cpu (2 threads each)", "cuda (NVIDIA H200)".
std::string device_text(const config::Config& config) {
  const int threads = static_cast<int>(config.run.threads);
  if (config::mixed(config))
    return fmt::format("({}; {} thread{} each)", join(config::devices_of(config), ", "), threads,
                       threads == 1 ? "" : "s");
  const exec::DeviceInfo info = exec::device_info(config::device_of(config, 0), threads);
  if (const std::string card = info.card(); !card.empty())
    return fmt::format("{} ({})", info.name, card);
  return fmt::format("{} ({} thread{}{})", info.name, threads, threads == 1 ? "" : "s",
                     ranks_of(config) == 1 ? "" : " each");
}

std::int64_t parameter_count(const config::Config& config) {
  std::int64_t params = 0;
  for (const models::Param& p : models::parameters(config.model))
    params += p.buffer ? 0 : ir::elements(p.shape);
  return params;
}

}  // namespace

std::vector<std::string> introduction(const config::Config& config,
                                      const std::vector<plan::Memory>& memory, std::int64_t planned,
                                      std::int64_t train_samples, std::int64_t test_samples,
                                      const std::string& resumed) {
  const std::int64_t params = parameter_count(config);
  const auto [m, whose] = largest(memory);
  auto mb = [](std::int64_t bytes) {
    return fmt::format("{:.{}f}", static_cast<double>(bytes) * 1e-6, bytes < 10'000'000 ? 1 : 0);
  };
  std::string talk;
  if (!how_ranks_talk().empty()) {
    talk = "ranks talk: " + how_ranks_talk();
    if (config.parallel.wire != "f32" && talk.find("ring") == talk.npos)
      talk += fmt::format("; parallel.wire = \"{}\" changes nothing, no sum goes round a ring",
                          config.parallel.wire);
  }
  const bool folder_says_name = std::filesystem::path(config.run.out).filename() == config.run.name;
  const std::string where =
      folder_says_name ? config.run.out : config.run.name + " in " + config.run.out;
  std::vector<std::string> lines = {
      fmt::format("tessera {}  run {}  seed {}{}", build_version, where, config.run.seed, resumed),
      fmt::format("model {}  {} params   data {} {} / {}   layout {} {}   {} x {}",
                  config.model.name.empty() ? config.model.family : config.model.name,
                  report::millions(params), config.data.source, report::with_commas(train_samples),
                  report::with_commas(test_samples), layout_in_short(config),
                  config.precision.dtype, ranks_of(config), device_text(config))};
  if (!talk.empty()) lines.push_back(talk);
  lines.push_back(fmt::format(
      "memory/rank{}  weights {}  grads {}  optim {}  activations {}  buffers {}  = {} MB", whose,
      mb(m.weights), mb(m.gradients), mb(m.optimizer), mb(m.activations), mb(m.workspace),
      mb(m.total())));
  if (planned > m.total()) lines.back() += fmt::format("; with evaluation {} MB", mb(planned));
  return lines;
}

std::string doubt_of_peak(const Peak& peak) {
  if (peak.doubt.empty()) return {};
  return fmt::format(
      "the peak that \"% of peak\" is against, {:.0f} GFLOP/s a rank, may be wrong: {}",
      peak.gflops, peak.doubt);
}

std::string step_line(const report::StepMetrics& m, std::int64_t total) {
  if (m.overflow)
    return fmt::format(
        "step {:>6}/{} | skipped: a gradient overflowed with loss scale {:g}, which answers it; "
        "nothing else was changed",
        m.step, total, m.loss_scale);
  if (m.skipped)
    return fmt::format(
        "step {:>6}/{} | skipped: loss {} and gradient norm {} are not both finite; nothing was "
        "changed",
        m.step, total, m.loss, std::abs(m.grad_norm));
  const std::string line = fmt::format(
      "step {:>6}/{} | loss {:.3f} | top1 {:.1f}% | gnorm {:.2f} | lr {:.1e} | {:.1f} ms | {} "
      "img/s | {:.0f}% of peak",
      m.step, total, m.loss, m.top1 * 100, m.grad_norm, m.lr, m.step_ms,
      report::per_second(m.images_per_s), m.mfu * 100);
  // The breakdown may be that of an earlier step: its parts are shares of that one. A run that goes
  // on has none before its first sampled step.
  const report::Breakdown& b = m.breakdown;
  const double all = b.compute + b.comm_exposed + b.wait + b.data + b.host;
  if (all <= 0) return line;
  const double share = 100 / all;
  return line +
         fmt::format(" | comp {:.0f} comm {:.0f} wait {:.0f} data {:.0f}{} %", b.compute * share,
                     b.comm_exposed * share, b.wait * share, b.data * share,
                     b.host * share < 0.5 ? "" : fmt::format(" host {:.0f}", b.host * share));
}

std::string eval_line(std::int64_t epoch, const Score& s, const Progress& progress) {
  return fmt::format(
      "eval  epoch {}  top1 {:.2f}%  top5 {:.2f}%  loss {:.3f}  ({} images, {:.1f} s)   best "
      "{:.2f}% @ epoch {}",
      epoch, s.top1 * 100, s.top5 * 100, s.loss, report::with_commas(s.images), s.seconds,
      progress.best_top1 * 100, progress.best_epoch);
}

std::string done_line(const ordered_json& summary, const std::string& folder) {
  return fmt::format("done in {}: top1 {:.2f}%, {} steps, {} img/s (median), results in {}",
                     report::duration(summary["wall_s"].get<double>()),
                     summary["final"]["test_top1"].get<double>() * 100,
                     summary["steps"].get<std::int64_t>(),
                     report::per_second(summary["images_per_s"].get<double>()), folder);
}

nlohmann::ordered_json epoch_json(std::int64_t epoch, std::int64_t step, bool whole,
                                  const EpochRecord& record, const std::vector<double>& waits) {
  nlohmann::ordered_json line = {{"kind", "epoch"},
                                 {"epoch", epoch},
                                 {"step", step},
                                 {"whole", whole},
                                 {"loss", record.loss},
                                 {"train_top1", record.train_top1},
                                 {"seconds", record.seconds},
                                 {"barrier_wait_s", record.barrier_wait_s}};
  if (waits.size() > 1) line["barrier_waits_s"] = waits;
  return line;
}

ordered_json summary_of(const config::Config& config, const Progress& progress,
                        const TrainResults& results) {
  const report::Quantiles q = report::quantiles(results.step_ms);
  ordered_json epochs = ordered_json::array();
  for (const EpochRecord& e : results.epochs) {
    epochs.push_back({{"seconds", e.seconds},
                      {"barrier_wait_s", e.barrier_wait_s},
                      {"loss", e.loss},
                      {"train_top1", e.train_top1}});
    epochs.back()["test_top1"] =
        e.test_top1 < 0 ? ordered_json(nullptr) : ordered_json(e.test_top1);
    if (e.test_top1_tta >= 0) epochs.back()["test_top1_tta"] = e.test_top1_tta;
  }
  ordered_json comm = ordered_json::object();  // per step
  for (int v = 0; v < comm::verb_count; ++v)
    if (const comm::Traffic::Row& row = results.comm[static_cast<comm::Verb>(v)]; row.count > 0)
      comm[std::string(comm::name(static_cast<comm::Verb>(v)))] = {{"count", row.count},
                                                                   {"bytes", row.bytes}};
  if (const comm::Traffic::Row& row = results.comm.messages; row.count > 0)
    comm["messages"] = {{"count", row.count}, {"bytes", row.bytes}};
  ordered_json summary = {
      {"images_per_s",
       q.median > 0 ? static_cast<double>(config.batch.global) / q.median * 1e3 : 0.0},
      {"step_ms", {{"median", q.median}, {"p10", q.p10}, {"p90", q.p90}}},
      {"peak_bytes",
       {{"planned", most_bytes(results.ranks, "planned")},
        {"measured", most_bytes(results.ranks, "measured")}}},
      {"final",
       {{"loss", results.last_loss},
        {"train_top1", results.epochs.empty() ? 0.0 : results.epochs.back().train_top1},
        {"test_top1", results.final.top1},
        {"test_top5", results.final.top5},
        {"test_loss", results.final.loss}}},
      {"best",
       {{"test_top1", progress.best_top1},
        {"epoch", progress.best_epoch},
        {"step", progress.best_step}}},
      {"epochs", epochs},
      {"ranks", results.ranks},
      {"waited_for", waited_for(results.ranks, q.median)},
      {"segments", results.segments},
      {"comm", comm},
      {"layout", summary_layout(config)},
      {"model", config.model.name.empty() ? config.model.family : config.model.name},
      {"dtype", config.precision.dtype},
      {"data", config.data.source},
      {"batch", {{"global", config.batch.global}, {"accumulate", config.batch.accumulate}}},
      {"seed", config.run.seed},
      {"threads", config.run.threads},
      {"world", ranks_of(config)},
      {"placement", placement_here()},
      {"steps", progress.step},
      {"skipped", progress.skipped},
      {"reached", progress.reached}};
  if (results.final.top1_tta >= 0) summary["final"]["test_top1_tta"] = results.final.top1_tta;
  // Time to accuracy; null when there was no target or the run ended before it.
  summary["time_to_target_s"] =
      progress.reached ? ordered_json(progress.time_to_target_s) : ordered_json(nullptr);
  summary["epochs_to_target"] =
      progress.reached ? ordered_json(progress.epochs_to_target) : ordered_json(nullptr);
  summary["wall_s"] = progress.wall_s;
  summary["params"] = parameter_count(config);
  summary["finished"] = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
  return summary;
}

}  // namespace tessera::run
