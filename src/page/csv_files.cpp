// All that a study measured, as CSV: a row per run, per epoch, per rank and per part of a model,
// each with what says which run it is.
#include <fmt/format.h>

#include "page/table.h"

namespace tessera::report {
namespace {

const std::vector<std::string> csv_run_key = {"part", "technique", "axes", "repeat"};

std::vector<std::string> csv_columns(std::vector<std::string> own) {
  own.insert(own.begin(), csv_run_key.begin(), csv_run_key.end());
  return own;
}

void csv_key(Csv& csv, const Part& part, const Point& point, const Repeat& repeat) {
  std::string axes;
  for (const auto* list : {&point.axes, &point.fixed})
    for (const auto& [key, value] : *list) axes += (axes.empty() ? "" : "; ") + key + "=" + value;
  csv.text(part.name).text(point.technique).text(axes).whole(repeat.number);
}

const char* csv_outcome(Outcome o) {
  return o == Outcome::done      ? "done"
         : o == Outcome::failed  ? "failed"
         : o == Outcome::running ? "running"
                                 : "waiting";
}

// A number that is never 0 where it is known: times of steps, peak bytes.
double csv_known(double v) { return v > 0 ? v : kUnknown; }
double csv_known(std::int64_t v) { return csv_known(static_cast<double>(v)); }

// Empty where no step was sampled.
Csv& csv_breakdown(Csv& csv, const Breakdown& b) {
  for (const double ms : {b.compute, b.comm_exposed, b.comm_hidden, b.wait, b.data, b.host})
    csv.number(step_of(b) > 0 ? ms : kUnknown);
  return csv;
}

void csv_run(Csv& csv, const Repeat& repeat) {
  csv.text(csv_outcome(repeat.outcome))
      .text(repeat.reason)
      .text(repeat.command)
      .text(repeat.folder);
  if (!repeat.record) {
    for (int i = 0; i < 38; ++i) csv.text("");
    csv.end();
    return;
  }
  const RunRecord& r = *repeat.record;
  csv.text(r.model)
      .text(r.data)
      .text(r.dtype)
      .text(r.layout)
      .whole(r.ranks)
      .whole(r.hosts)
      .whole(r.threads)
      .whole(r.global_batch);
  csv.whole(r.accumulate)
      .whole(r.steps)
      .whole(r.seed)
      .whole(r.skipped)
      .number(r.images_per_s)
      .number(r.mfu)
      .number(csv_known(r.step_ms.median))
      .number(csv_known(r.step_ms.mean));
  csv.number(csv_known(r.step_ms.p10))
      .number(csv_known(r.step_ms.p90))
      .number(r.epoch_seconds)
      .number(r.latency_ms)
      .number(r.wall);
  csv_breakdown(csv, r.breakdown)
      .number(r.bubble)
      .number(r.comm_bytes)
      .number(r.ring_bytes)
      .number(csv_known(r.planned))
      .number(csv_known(r.measured));
  csv.number(r.loss).number(r.test_loss).number(r.test_top1).number(r.best_top1);
  csv.text(r.env.is_object() && r.env.contains("host") && r.env["host"].is_string()
               ? r.env["host"].get<std::string>()
               : "");
  csv.text(r.env.is_object() && r.env.contains("commit") && r.env["commit"].is_string()
               ? r.env["commit"].get<std::string>()
               : "");
  csv.end();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> csv_files(const Study& study) {
  Csv runs(csv_columns({"outcome",        "reason",        "command",
                        "folder",         "model",         "data",
                        "dtype",          "layout",        "ranks",
                        "hosts",          "threads",       "global_batch",
                        "accumulate",     "steps",         "seed",
                        "skipped",        "images_per_s",  "mfu",
                        "step_ms_median", "step_ms_mean",  "step_ms_p10",
                        "step_ms_p90",    "epoch_seconds", "latency_ms",
                        "wall_s",         "compute_ms",    "comm_exposed_ms",
                        "comm_hidden_ms", "wait_ms",       "data_ms",
                        "host_ms",        "bubble",        "comm_bytes",
                        "ring_bytes",     "planned_bytes", "measured_bytes",
                        "loss",           "test_loss",     "test_top1",
                        "best_top1",      "host",          "commit"}));
  Csv epochs(csv_columns({"epoch", "seconds", "elapsed_s", "loss", "train_top1", "test_loss",
                          "test_top1", "barrier_wait_s"}));
  Csv losses(csv_columns({"step", "loss"}));
  Csv ranks(csv_columns({"rank", "host", "device", "compute_ms", "comm_exposed_ms",
                         "comm_hidden_ms", "wait_ms", "data_ms", "host_ms", "barrier_wait_s",
                         "planned_bytes", "measured_bytes"}));
  Csv parts(csv_columns({"row", "seconds", "share", "count"}));
  Csv claims({"paper", "says", "command", "number", "verdict", "note"});
  bool any_parts = false;
  for (const Part& part : study.parts)
    for (const Point& point : part.points)
      for (const Repeat& repeat : point.repeats) {
        csv_key(runs, part, point, repeat);
        csv_run(runs, repeat);
        if (!repeat.record) continue;
        const RunRecord& r = *repeat.record;
        for (std::size_t i = 0; i < r.epochs.size(); ++i) {
          const EpochRecord& e = r.epochs[i];
          csv_key(epochs, part, point, repeat);
          epochs.whole(static_cast<std::int64_t>(i) + 1)
              .number(e.seconds)
              .number(e.elapsed)
              .number(e.loss)
              .number(e.train_top1);
          epochs.number(e.test_loss).number(e.test_top1).number(e.barrier_wait).end();
        }
        for (const auto& [step, loss] : r.losses) {
          csv_key(losses, part, point, repeat);
          losses.whole(step).number(loss).end();
        }
        for (std::size_t i = 0; i < r.by_rank.size(); ++i) {
          const RankRecord& k = r.by_rank[i];
          csv_key(ranks, part, point, repeat);
          ranks.whole(static_cast<std::int64_t>(i)).text(k.host).text(k.device);
          csv_breakdown(ranks, k.breakdown)
              .number(k.barrier_wait)
              .number(csv_known(k.planned))
              .number(csv_known(k.measured))
              .end();
        }
        for (const PartRecord& p : r.parts) {
          csv_key(parts, part, point, repeat);
          parts.text(p.name).number(p.seconds).number(p.share).whole(p.count).end();
          any_parts = true;
        }
      }
  for (const ClaimResult& c : study.claims)
    claims.text(c.paper)
        .text(c.says)
        .text(c.command)
        .text(c.number)
        .text(c.verdict)
        .text(c.note)
        .end();
  std::vector<std::pair<std::string, std::string>> out = {{"runs.csv", runs.str()},
                                                          {"epochs.csv", epochs.str()},
                                                          {"losses.csv", losses.str()},
                                                          {"ranks.csv", ranks.str()}};
  if (any_parts) out.emplace_back("parts.csv", parts.str());
  if (!study.claims.empty()) out.emplace_back("claims.csv", claims.str());
  return out;
}

}  // namespace tessera::report
