// A run folder as a record. Convention: summary.json and metrics.jsonl are what counts;
// resolved.toml only says what was asked for where a run is still going on. Every value is looked
// at before it is used; a file that is damaged is named, with its line.
#include "record/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/check.h"
#include "files/json.h"
#include "files/text.h"
#include "record/record_files.h"
#include "record/stats.h"
#include "report/html.h"

namespace tessera::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t longest_line = 4u << 20, most_metric_lines = 50'000'000, most_losses = 200;
constexpr std::int64_t warmups_of_an_epoch =
    20;  // as long an only epoch must be for its time to count

Breakdown breakdown_from(const Values& v) {
  const auto part = [&](const char* key) {
    const double d = v.number(key);
    return std::isfinite(d) ? d : 0;
  };
  Breakdown b;
  b.compute = part("compute");
  b.comm_exposed = part("comm_exposed");
  b.comm_hidden = part("comm_hidden");
  b.wait = part("wait");
  b.data = part("data");
  b.host = part("host");
  b.bubble = part("bubble");
  b.pipelined = v.has("bubble");
  b.copy = part("copy");
  return b;
}

Breakdown mean_of(const std::vector<Breakdown>& all) {
  Breakdown out;
  for (const Breakdown& b : all) {
    for (const auto part : breakdown_parts) out.*part += b.*part / static_cast<double>(all.size());
    out.pipelined |= b.pipelined;
  }
  return out;
}

// "dp2 x tp2 zero1", "pp2 1f1b"; one rank without any of it: "one rank".
std::string layout_words(const std::map<std::string, std::int64_t>& axes, std::int64_t zero,
                         const std::string& schedule) {
  std::string out;
  for (const char* axis : {"pp", "dp", "sp", "tp"})
    if (const auto found = axes.find(axis); found != axes.end() && found->second > 1)
      out += fmt::format("{}{}{}", out.empty() ? "" : " x ", axis, found->second);
  if (out.empty()) out = "one rank";
  if (const auto pp = axes.find("pp"); pp != axes.end() && pp->second > 1 && !schedule.empty())
    out += " " + schedule;
  if (zero > 0) out += fmt::format(" zero{}", zero);
  return out;
}

// Every key of resolved.toml but what names one run of many.
std::vector<std::pair<std::string, std::string>> settings_from(
    const std::map<std::string, std::string>& facts) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& [key, value] : facts)
    if (key != "run.out" && key != "run.name" && key != "run.seed" && out.size() < kMostSettings)
      out.emplace_back(shorten(key, kLongestSetting), shorten(value, kLongestSetting));
  return out;
}

// Steps, evenly thinned while they come: of a run of any length no more than a few thousand are
// held.
class ThinSteps {
 public:
  void add(const StepRecord& step) {
    last_ = step;
    if (seen_++ % stride_ == 0) kept_.push_back(last_);
    if (kept_.size() < 20 * most_losses) return;
    for (std::size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
    kept_.resize((kept_.size() + 1) / 2);
    stride_ *= 2;
  }
  // At most most_losses, the first and the last among them.
  std::vector<StepRecord> take() {
    if (!kept_.empty() && kept_.back().step != last_.step) kept_.push_back(last_);
    if (kept_.size() <= most_losses) return std::move(kept_);
    std::vector<StepRecord> out;
    for (std::size_t i = 0; i < most_losses; ++i)
      out.push_back(kept_[i * (kept_.size() - 1) / (most_losses - 1)]);
    return out;
  }

 private:
  std::vector<StepRecord> kept_;
  StepRecord last_;
  std::size_t seen_ = 0, stride_ = 1;
};

void read_metrics(const fs::path& path, std::int64_t warmup, RunRecord& run) {
  if (!has_file(path)) return;
  std::ifstream file;
  open_file(file, path);
  std::vector<double> step_ms, mfu;
  std::vector<Breakdown> sampled;  // of the first rank, which writes the file
  ThinSteps thin;
  double elapsed = 0;
  std::size_t number = 0;
  for (std::string line; get_line(file, line, longest_line, path);) {
    const std::string where = fmt::format("{}:{}", path.string(), ++number);
    if (line.size() > longest_line || number > most_metric_lines)
      damaged(where, "longer than what a run writes");
    if (line.empty()) continue;
    const json parsed = files::parse_json(line);
    if (!parsed.is_object()) {
      if (file.eof()) break;  // the run goes on and has not written all of it
      damaged(where, "expected a JSON object on every line");
    }
    const Values v(parsed, where);
    const std::string kind = v.text("kind");
    if (kind == "step") {
      const std::int64_t step = v.whole("step", 0);
      run.steps = std::max(run.steps, step);
      const bool skipped = v.has("skipped");
      if (skipped) ++run.skipped;
      if (!skipped) {
        run.loss = v.number("loss");
        thin.add({.step = step,
                  .loss = run.loss,
                  .lr = v.number("lr"),
                  .grad_norm = v.number("grad_norm"),
                  .images_per_s = v.number("images_per_s")});
      }
      if (step > warmup && !skipped) {
        if (const double ms = v.number("step_ms"); ms > 0 && std::isfinite(ms))
          step_ms.push_back(ms);
        if (const double share = v.number("mfu"); share > 0 && std::isfinite(share))
          mfu.push_back(share);
      }
      if (v.has("comm_bytes")) run.comm_bytes = v.number("comm_bytes");
      if (v.has("breakdown") && step > warmup)
        sampled.push_back(breakdown_from(v.object("breakdown")));
    } else if (kind == "epoch") {
      EpochRecord e;
      e.seconds = v.number("seconds");
      e.loss = v.number("loss");
      e.train_top1 = v.number("train_top1");
      e.test_loss = v.number("test_loss");
      e.test_top1 = v.number("test_top1");
      e.barrier_wait = v.number("barrier_wait_s");
      elapsed += std::isfinite(e.seconds) ? e.seconds : 0;
      e.elapsed = v.has("elapsed_s") ? v.number("elapsed_s") : elapsed;
      e.whole = !parsed.contains("whole") || parsed["whole"] != false;
      run.epochs.push_back(e);
    }
  }
  if (!step_ms.empty()) run.step_ms = quantiles(std::move(step_ms));
  if (!mfu.empty()) run.mfu = quantiles(std::move(mfu)).median;
  if (!sampled.empty()) run.breakdown = mean_of(sampled);
  run.thinned = thin.take();
  for (const StepRecord& s : run.thinned) run.losses.emplace_back(s.step, s.loss);
}

// A rank's mean over so many steps, less the early ones that are warm-up; where all of them are,
// the mean as it is.
Breakdown without_warmup(Breakdown mean, const Values& sampled, std::int64_t warmup) {
  const std::int64_t all = sampled.whole("steps", 0);
  std::vector<Breakdown> cold;
  for (const json& entry : sampled.list("early")) {
    if (!entry.is_object()) damaged("summary.json", "early: expected objects");
    const Values e(entry, "summary.json, early");
    if (e.whole("step", 0) <= warmup) cold.push_back(breakdown_from(e.object("breakdown")));
  }
  const std::int64_t left = all - static_cast<std::int64_t>(cold.size());
  if (cold.empty() || left <= 0) return mean;
  for (const auto part : breakdown_parts) {
    mean.*part *= static_cast<double>(all);
    for (const Breakdown& b : cold) mean.*part -= b.*part;
    mean.*part = std::max(0.0, mean.*part / static_cast<double>(left));
  }
  return mean;
}

// Unknown where no epoch is whole, or the only one is led by its warm-up.
double seconds_of_epoch(const RunRecord& run, std::int64_t warmup) {
  std::vector<double> seconds;
  for (const EpochRecord& e : run.epochs)
    if (e.whole && std::isfinite(e.seconds)) seconds.push_back(e.seconds);
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  const bool led = run.epochs.size() == 1 && run.steps < warmups_of_an_epoch * warmup;
  return led ? kUnknown : spread_of(std::move(seconds)).mean;
}

void read_summary(const Values& s, RunRecord& run) {
  run.model = s.text("model", run.model);
  run.dtype = s.text("dtype", run.dtype);
  run.data = s.text("data", run.data);
  run.ranks = static_cast<int>(s.whole("world", run.ranks, 1 << 20));
  run.steps = s.whole("steps", run.steps);
  run.skipped = s.whole("skipped", run.skipped);
  run.seed = s.whole("seed", run.seed, INT64_MAX);
  run.threads = static_cast<int>(s.whole("threads", run.threads, 1 << 20));
  const Values batch = s.object("batch");
  run.global_batch = batch.whole("global", run.global_batch);
  run.accumulate = batch.whole("accumulate", run.accumulate);
  run.wall = s.number("wall_s");
  run.params = s.whole("params", 0);
  run.date = s.text("finished");
  const Values end = s.object("final"), best = s.object("best"), bytes = s.object("peak_bytes"),
               layout = s.object("layout");
  if (end.has("loss")) run.loss = end.number("loss");
  run.test_loss = end.number("test_loss");
  run.test_top1 = end.number("test_top1");
  if (best.whole("step", 0) > 0) run.best_top1 = best.number("test_top1");
  if (const Values comm = s.object("comm"); comm.has("messages"))
    run.ring_bytes = comm.object("messages").number("bytes");
  run.planned = bytes.whole("planned", 0);
  run.measured = bytes.whole("measured", 0);
  std::map<std::string, std::int64_t> axes;
  for (const char* axis : {"pp", "dp", "sp", "tp"}) axes[axis] = layout.whole(axis, 1, 1 << 20);
  if (s.has("layout"))
    run.layout = layout_words(axes, layout.whole("zero", 0, 3), layout.text("schedule"));
  std::vector<Breakdown> all;
  std::set<std::string> hosts;
  for (const json& entry : s.list("ranks")) {
    if (!entry.is_object()) damaged("summary.json", "ranks: expected objects");
    const Values r(entry, "summary.json, ranks");
    RankRecord rank;
    rank.host = r.text("host");
    rank.device = r.text("device");
    rank.breakdown =
        without_warmup(breakdown_from(r.object("breakdown")), r.object("sampled"), run.warmup);
    if (const double wait = r.number("barrier_wait_s"); std::isfinite(wait))
      rank.barrier_wait = wait;
    rank.others_waited = r.number("others_waited_ms");
    rank.planned = r.object("peak_bytes").whole("planned", 0);
    rank.measured = r.object("peak_bytes").whole("measured", 0);
    hosts.insert(rank.host);
    all.push_back(rank.breakdown);
    run.by_rank.push_back(std::move(rank));
  }
  if (!all.empty()) run.hosts = static_cast<int>(hosts.size());
  // Only the summary knows the mean of several ranks; the lines of its steps know that of one.
  if (all.size() == 1 && step_of(run.breakdown) > 0)
    run.by_rank.front().breakdown = run.breakdown;
  else if (!all.empty())
    run.breakdown = mean_of(all);
  if (run.step_ms.median <= 0) {  // fewer steps than warm-up: what the run itself says
    const Values q = s.object("step_ms");
    for (const auto& [key, value] : {std::pair("median", &run.step_ms.median),
                                     {"p10", &run.step_ms.p10},
                                     {"p90", &run.step_ms.p90}})
      if (const double ms = q.number(key); std::isfinite(ms)) *value = ms;
  }
  if (run.global_batch == 0 && s.object("step_ms").has("median"))  // runs of older versions
    if (const double images =
            s.number("images_per_s") * s.object("step_ms").number("median") * 1e-3;
        images > 0 && images < 1e9)
      run.global_batch = std::llround(images);
}

}  // namespace

RunRecord read_run(const std::string& folder, std::int64_t warmup) {
  const fs::path at = folder;
  bool any = false;
  for (const char* name : {"summary.json", "metrics.jsonl", "resolved.toml"})
    any |= has_file(at / name);
  if (!any)
    throw Error(
        ErrorKind::usage,
        "expected a run folder, found none of summary.json, metrics.jsonl and resolved.toml",
        folder, "give the folder that `tessera train --out` made");
  RunRecord run;
  run.folder = folder;
  run.warmup = warmup;
  std::map<std::string, std::string> facts = resolved_facts(at / "resolved.toml");
  const auto number = [&](const char* key, std::int64_t otherwise) {
    const auto found = facts.find(key);
    char* end = nullptr;
    const long long v = found == facts.end() || found->second.empty()
                            ? otherwise
                            : std::strtoll(found->second.c_str(), &end, 10);
    return end && *end != '\0' ? otherwise : v;
  };
  run.settings = settings_from(facts);
  run.model = facts["model.name"].empty() ? facts["model.family"] : facts["model.name"];
  run.data = facts["data.source"];
  run.dtype = facts["precision.dtype"];
  run.global_batch = std::max<std::int64_t>(0, number("batch.global", 0));
  run.accumulate = std::max<std::int64_t>(1, number("batch.accumulate", 1));
  run.seed = number("run.seed", 0);
  run.threads = static_cast<int>(std::clamp<std::int64_t>(number("run.threads", 0), 0, 1 << 20));
  std::map<std::string, std::int64_t> axes;
  std::int64_t ranks = 1;
  for (const char* axis : {"pp", "dp", "sp", "tp"}) {
    axes[axis] =
        std::clamp<std::int64_t>(number((std::string("parallel.") + axis).c_str(), 1), 1, 1 << 20);
    ranks = std::min<std::int64_t>(ranks * axes[axis], 1 << 20);
  }
  run.ranks = static_cast<int>(ranks);
  run.layout = layout_words(axes, number("parallel.zero", 0), facts["parallel.schedule"]);
  read_metrics(at / "metrics.jsonl", warmup, run);
  const json summary = document_at(at / "summary.json"), env = document_at(at / "env.json");
  if (!summary.empty()) read_summary(Values(summary, (at / "summary.json").string()), run);
  run.env = env;
  if (run.step_ms.median > 0 && run.global_batch > 0)
    run.images_per_s = static_cast<double>(run.global_batch) / run.step_ms.median * 1e3;
  if (run.breakdown.pipelined) run.bubble = run.breakdown.bubble;
  run.epoch_seconds = seconds_of_epoch(run, warmup);
  for (const EpochRecord& e : run.epochs) {
    if (summary.empty() && std::isfinite(e.test_top1)) {
      run.test_top1 = e.test_top1;
      run.test_loss = e.test_loss;
    }
    if (std::isfinite(e.test_top1) && !(run.best_top1 >= e.test_top1)) run.best_top1 = e.test_top1;
  }
  return run;
}

}  // namespace tessera::report
