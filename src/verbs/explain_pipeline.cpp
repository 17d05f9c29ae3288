#include "verbs/explain_pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "plan/traffic.h"
#include "report/console.h"

namespace tessera::run {

using nlohmann::ordered_json;
using report::PipelineBar;
using report::with_commas;

namespace {

std::string counted(std::int64_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}
std::string balanced_words(const std::string& by) {
  return by == "params" ? "parameters" : by == "flops" ? "FLOPs" : "measured time";
}
std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

ordered_json bars_json(const std::vector<PipelineBar>& bars) {
  ordered_json out = ordered_json::array();
  for (const PipelineBar& b : bars)
    out.push_back({{"rank", b.rank},
                   {"stage", b.stage},
                   {"micro", b.micro},
                   {"work", std::string(1, b.kind)},
                   {"start", b.start_ms},
                   {"end", b.end_ms}});
  return out;
}

}  // namespace

PipelineView::PipelineView(const StepSpec& spec, Goal goal, int micros)
    : schedule_(schedule_of(spec, goal, micros)),
      peers_(spec.layout.mesh_of_stage().ranks()),
      balanced_(spec.config.parallel.stages.word),
      formula_(bubble_formula(spec.config, goal, micros)),
      ranks_(schedule_.ranks.size()) {
  const std::vector<int> homes = transforms::homes(schedule_);
  const std::vector<BlockCost> blocks = model_blocks(spec.config.model);
  std::size_t next = 0;
  for (const std::int64_t count : spec.blocks) {
    const std::size_t end = next + static_cast<std::size_t>(count);
    Stage stage{.rank = homes[stages_.size()],
                .first = blocks[next].name,
                .last = blocks[end - 1].name,
                .blocks = count,
                .params = 0};
    for (; next < end; ++next) stage.params += blocks[next].params;
    stages_.push_back(std::move(stage));
  }
}

void PipelineView::add(const plan::Plan& plan) {
  if (plan.rank % peers_ != 0) return;
  Rank& rank = ranks_.at(at(plan.rank / peers_));
  rank = {.memory = plan.memory,
          .peak_bytes = plan.peak_bytes(),
          .sent_bytes = 0,
          .flops = turn_flops(plan.program)};
  for (const plan::CommRow& row : plan::communication(plan))
    if (row.op == ir::Op::send) rank.sent_bytes += row.bytes;
}

void PipelineView::measure(const RunTrace& run) {
  MeasuredStep step = measured_step(run, schedule_, peers_);
  const report::PipelineUse use =
      report::pipeline_use(step.bars, static_cast<int>(ranks_.size()) * peers_);
  measured_ = Measured{std::move(step), use};
}

double PipelineView::flops(int stage) const {
  double sum = 0;
  for (const auto& [turn, flops] : ranks_[at(stages_[at(stage)].rank)].flops)
    if (turn.work != 'U' && turn.stage == stage) sum += flops;
  return sum;
}

std::vector<transforms::Timed> PipelineView::simulated() const {
  return transforms::simulate(schedule_, [&](const transforms::Turn& turn) {
    const auto& flops = ranks_[at(stages_[at(turn.stage)].rank)].flops;
    const auto found = flops.find(pipeline_turn(turn));
    return found == flops.end()
               ? 0.0
               : found->second *
                     1e-9;  // of a first stage's backward turn without its weights nothing is left
  });
}

std::vector<PipelineBar> PipelineView::predicted(double scale) const {
  std::vector<PipelineBar> bars;
  for (const transforms::Timed& t : simulated())
    bars.push_back({.rank = t.rank,
                    .stage = t.turn.stage,
                    .micro = t.turn.micro,
                    .kind = pipeline_turn(t.turn).work,
                    .start_ms = t.start * scale,
                    .end_ms = t.end * scale});
  return bars;
}

std::vector<PipelineBar> PipelineView::measured() const {
  std::vector<PipelineBar> bars;
  for (PipelineBar b : measured_->step.bars) {
    if (b.rank % peers_ != 0) continue;
    b.rank /= peers_;
    bars.push_back(b);
  }
  return bars;
}

double PipelineView::bubble_of_turns() const {
  std::map<PipelineTurn, double> ms;
  for (const PipelineBar& b : measured_->step.bars)
    ms[{b.stage, b.micro, b.kind}] += (b.end_ms - b.start_ms) / peers_;
  const auto timed = transforms::simulate(schedule_, [&](const transforms::Turn& turn) {
    const auto found = ms.find(pipeline_turn(turn));
    return found == ms.end() ? 0.0 : found->second;
  });
  return transforms::bubble(timed, static_cast<int>(ranks_.size()));
}

double PipelineView::gflops() const {
  double work = 0, ms = 0;
  for (const transforms::Timed& t : simulated()) work += t.end - t.start;
  for (const PipelineBar& b : measured()) ms += b.end_ms - b.start_ms;
  return ms > 0 && work > 0 ? work / ms * 1e3 : 1;
}

std::string PipelineView::ranks_text(int rank) const {
  return peers_ == 1 ? std::to_string(rank)
                     : fmt::format("{}-{}", rank * peers_, (rank + 1) * peers_ - 1);
}

// Rows with peers say whose they are.
report::ChartRows PipelineView::rows() const {
  report::ChartRows out;
  out.peers = peers_;
  for (int r = 0; peers_ > 1 && r < static_cast<int>(ranks_.size()); ++r) {
    std::vector<std::string> stages;
    for (std::size_t s = 0; s < stages_.size(); ++s)
      if (stages_[s].rank == r) stages.push_back(std::to_string(s));
    out.names.push_back(fmt::format("stage{} {} (rank {})", stages.size() == 1 ? "" : "s",
                                    join(stages, "+"), r * peers_));
  }
  return out;
}

std::string PipelineView::heading() const {
  const std::string ranks = counted(static_cast<std::int64_t>(ranks_.size()) * peers_, "rank");
  return fmt::format("{}, {} on {}{}, {} micro-batch{}", schedule_.name,
                     counted(schedule_.stages, "stage"), ranks,
                     peers_ == 1 ? "" : fmt::format(" ({} for each stage)", peers_),
                     schedule_.micros, schedule_.micros == 1 ? "" : "es");
}

std::string PipelineView::text(int columns) const {
  std::string out = fmt::format("\npipeline: {}\n", heading());
  std::size_t wide = 6;
  const auto blocks = [](const Stage& s) {
    return s.blocks == 1 ? s.first : s.first + " to " + s.last;
  };
  for (const Stage& s : stages_) wide = std::max(wide, blocks(s).size());
  out += fmt::format("  {:>5} {:>7}  {:{}} {:>7} {:>15} {:>15}\n", "stage",
                     peers_ == 1 ? "rank" : "ranks", "blocks", wide, "count", "parameters",
                     "GFLOP a step");
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& s = stages_[i];
    out += fmt::format("  {:>5} {:>7}  {:{}} {:>7} {:>15} {:>15.3f}\n", i, ranks_text(s.rank),
                       blocks(s), wide, s.blocks, with_commas(s.params),
                       flops(static_cast<int>(i)) * 1e-9);
  }
  out += balanced_.empty()
             ? "  blocks per stage: as given"
             : fmt::format("  blocks per stage: chosen to balance {}", balanced_words(balanced_));
  out += fmt::format("; GFLOP a step: of {}, recomputation counted\n",
                     peers_ == 1 ? "the stage's rank" : "one of the stage's ranks");

  out += fmt::format(
      "\nmemory at the peak of each rank of the pipeline, in bytes{}\n",
      peers_ == 1 ? "" : fmt::format(" (the first of every {} that hold the same stages)", peers_));
  out += fmt::format("  {:>4} {:>14} {:>14} {:>14} {:>14} {:>14} {:>15} {:>11} {:>16}\n", "rank",
                     "weights", "gradients", "optimizer", "activations", "workspace", "all",
                     "in flight", "sent a step");
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const plan::Memory& m = ranks_[r].memory;
    out += fmt::format(
        "  {:>4} {:>14} {:>14} {:>14} {:>14} {:>14} {:>15} {:>11} {:>16}\n",
        static_cast<int>(r) * peers_, with_commas(m.weights), with_commas(m.gradients),
        with_commas(m.optimizer), with_commas(m.activations), with_commas(m.workspace),
        with_commas(ranks_[r].peak_bytes), transforms::in_flight(schedule_, static_cast<int>(r)),
        with_commas(ranks_[r].sent_bytes));
  }
  const auto ranks = static_cast<int>(ranks_.size());
  report::ChartRows shown = rows();
  out += fmt::format("\npredicted: a turn takes as long as its FLOPs, a transfer no time\n{}",
                     report::text_chart(predicted(1), ranks, columns, report::Scale::work, shown));
  if (measured_) {
    const MeasuredStep& s = measured_->step;
    shown.of_all = &measured_->use;
    out += fmt::format("\nmeasured: step {} of the trace's steps {} to {}\n{}", s.step, s.first,
                       s.last,
                       report::text_chart(measured(), ranks, columns, report::Scale::time, shown));
  }
  std::vector<std::string> bubbles;
  if (formula_) bubbles.push_back(percent(*formula_) + " by formula (stages of equal cost)");
  bubbles.push_back(percent(transforms::bubble(simulated(), ranks)) + " predicted");
  if (measured_)
    bubbles.push_back(percent(bubble_measured()) +
                      (peers_ == 1 ? " measured" : " measured (all ranks)"));
  out += "\nbubble    " + join(bubbles, ", ") + "\n";
  if (!measured_) return out;
  std::vector<std::string> idle;
  for (const double share : measured_->use.idle) idle.push_back(percent(share));
  return out + fmt::format(
                   "measured  idle {} on rank 0 to {}; {:.1f} GFLOP/s in a turn; turns as long as "
                   "these, started at once, leave {}\n",
                   join(idle, " "), idle.size() - 1, gflops(), percent(bubble_of_turns()));
}

std::string PipelineView::svg(const std::string& of) const {
  const std::string formula =
      formula_ ? fmt::format("; bubble by formula {}", percent(*formula_)) : "";
  report::ChartRows shown = rows();
  if (!measured_)
    return report::svg_chart(predicted(1), heading(),
                             of + "; a turn takes as long as its FLOPs" + formula,
                             report::Scale::work, shown);
  shown.of_all = &measured_->use;
  const double rate = gflops();
  return report::svg_charts(
      predicted(1e3 / rate), measured(), heading(),
      fmt::format("{}; predicted: FLOPs at the measured {:.1f} GFLOP/s of a turn{}", of, rate,
                  formula),
      shown);
}

ordered_json PipelineView::json() const {
  ordered_json stages = ordered_json::array();
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const Stage& s = stages_[i];
    const Rank& rank = ranks_[at(s.rank)];
    const plan::Memory& m = rank.memory;
    stages.push_back({{"stage", i},
                      {"rank", s.rank},
                      {"blocks", s.blocks},
                      {"first", s.first},
                      {"last", s.last},
                      {"params", s.params},
                      {"flops", flops(static_cast<int>(i))},
                      {"memory",
                       {{"weights", m.weights},
                        {"gradients", m.gradients},
                        {"optimizer", m.optimizer},
                        {"activations", m.activations},
                        {"workspace", m.workspace}}},
                      {"peak_bytes", rank.peak_bytes},
                      {"in_flight", transforms::in_flight(schedule_, s.rank)},
                      {"sent_bytes", rank.sent_bytes}});
  }
  ordered_json out = {
      {"schedule", schedule_.name},
      {"micros", schedule_.micros},
      {"balanced", balanced_.empty() ? "given" : balanced_},
      {"peers", peers_},
      {"stages", stages},
      {"bubble_formula", formula_ ? ordered_json(*formula_) : ordered_json()},
      {"bubble_predicted", transforms::bubble(simulated(), static_cast<int>(ranks_.size()))},
      {"turns", bars_json(predicted(1))}};
  if (measured_)
    out["measured"] = {{"step", measured_->step.step},
                       {"bubble", bubble_measured()},
                       {"bubble_of_turns", bubble_of_turns()},
                       {"idle", measured_->use.idle},
                       {"span_ms", measured_->use.span_ms},
                       {"gflops", gflops()},
                       {"turns", bars_json(measured_->step.bars)}};
  return out;
}

}  // namespace tessera::run
