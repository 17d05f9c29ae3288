// explain: what would run under a layout, without running it: the program of all ranks, then one
// rank's messages, memory and FLOPs; of a pipeline all its stages and its schedule
// (explain_pipeline.h). Convention: no rank is started; bytes are exact, per step and per rank.
// Only stages by time are measured, here as in a run.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/say.h"
#include "compile/compile.h"
#include "compile/pipeline.h"
#include "compile/stages.h"
#include "config/devices.h"
#include "config/layout.h"
#include "exec/executor.h"
#include "files/text.h"
#include "plan/traffic.h"
#include "report/console.h"
#include "report/document.h"
#include "session/session.h"
#include "train/run_folder.h"
#include "verbs/explain_memory.h"
#include "verbs/explain_pipeline.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;
using report::with_commas;

// A quantity that is counted per rank, a line of the table.
struct Quantity {
  const char* name;
  std::int64_t (*of)(const plan::Plan&);
};
constexpr Quantity quantities[] = {
    {"weights", [](const plan::Plan& p) { return p.memory.weights; }},
    {"gradients", [](const plan::Plan& p) { return p.memory.gradients; }},
    {"optimizer", [](const plan::Plan& p) { return p.memory.optimizer; }},
    {"activations", [](const plan::Plan& p) { return p.memory.activations; }},
    {"workspace", [](const plan::Plan& p) { return p.memory.workspace; }},
};

std::int64_t comm_bytes(const std::vector<plan::CommRow>& rows) {
  std::int64_t n = 0;
  for (const plan::CommRow& row : rows) n += row.bytes;
  return n;
}

// The ranks that stand for all: splits give the larger parts to the first, so on every axis the
// first two and the last two show all there is; stages all differ.
std::vector<int> different_ranks(const ir::Mesh& mesh) {
  std::set<int> out = {0};
  int stride = 1;
  for (std::size_t i = mesh.axes.size(); i-- > 0;) {
    const int n = mesh.axes[i].size;
    std::set<int> more;
    for (int at = 0; at < n; ++at)
      if (at < 2 || at >= n - 2 || mesh.axes[i].kind == ir::Axis::stage)
        for (const int rank : out) more.insert(rank + at * stride);
    out = std::move(more);
    stride *= n;
  }
  return {out.begin(), out.end()};
}

struct Range {
  double least = 0, most = 0;
  void add(double value, bool first) {
    least = first ? value : std::min(least, value);
    most = first ? value : std::max(most, value);
  }
  ordered_json json() const { return {{"least", least}, {"most", most}}; }
  bool differs() const { return least != most; }
};
ordered_json whole(const Range& r) {
  return {{"least", static_cast<std::int64_t>(r.least)},
          {"most", static_cast<std::int64_t>(r.most)}};
}

// The plans of the ranks that can differ, seen together.
struct PlansOfRanks {
  std::vector<Range> memory = std::vector<Range>(std::size(quantities));
  Range peak, flops, comm;
  void add(const plan::Plan& p, bool first) {
    for (std::size_t i = 0; i < memory.size(); ++i)
      memory[i].add(static_cast<double>(quantities[i].of(p)), first);
    peak.add(static_cast<double>(p.peak_bytes()), first);
    flops.add(p.cost.flops, first);
    comm.add(static_cast<double>(comm_bytes(plan::communication(p))), first);
  }
  bool differ() const {
    return peak.differs() || flops.differs() || comm.differs() ||
           std::any_of(memory.begin(), memory.end(), [](const Range& r) { return r.differs(); });
  }
};

std::string ranks_text(std::int64_t n) { return n == 1 ? "one rank" : fmt::format("{} ranks", n); }

std::string layout_text(const config::Config& c) {
  const config::Parallel& p = c.parallel;
  const std::int64_t ranks = p.pp * p.dp * p.sp * p.tp;
  std::string out = (ranks == 1 ? "" : config::mesh_words(p) + " = ") + ranks_text(ranks);
  if (p.segments > 1) out += fmt::format(", {} segments", p.segments);
  if (p.zero > 0) out += fmt::format(", ZeRO {}", p.zero);
  if (p.sequence != "none") out += fmt::format(", sequence {}", p.sequence);
  if (p.recompute != "none") out += fmt::format(", recompute {}", p.recompute);
  if (p.compress != "none") out += fmt::format(", gradients sent as {}", p.compress);
  if (p.offload_optimizer != "none")
    out += fmt::format(", optimizer state on {}", p.offload_optimizer);
  if (p.offload_params != "none") out += fmt::format(", weights on {}", p.offload_params);
  return out;
}

std::string batch_text(const config::Config& c, std::size_t micros) {
  std::string out = fmt::format("{} samples", c.batch.global);
  if (micros > 1) out += fmt::format(" in {} micro-batches", micros);
  if (c.parallel.dp > 1) out += fmt::format(", at most {} at once on a rank", c.batch.micro);
  return out;
}

ordered_json row_json(const plan::CommRow& row) {
  return {{"phase", plan::name(row.phase)},
          {"op", ir::name(row.op)},
          {"axis", row.axis},
          {"what", row.what},
          {"count", row.count},
          {"bytes", row.bytes}};
}

// Everything that is printed.
struct Explained {
  Compiled compiled;
  std::string before;  // the program before it was placed
  std::size_t micros = 1;
  int world = 1;
  PlansOfRanks ranks;
  std::optional<PipelineView> pipeline;
  std::optional<RunMemory> run_memory;  // of a training
  std::string unmeasured;  // why nothing of the run that was asked for is shown; "": it is, or
                           // there is none
};

std::string why_unmeasured(const config::Config& config, const ExplainOptions& options) {
  std::error_code error;
  if (!pipelined(config, Goal::train)) return "the run has no pipeline";
  if (options.goal != "train") return "the trace of a run is of training steps";
  if (std::filesystem::exists(std::filesystem::path(options.run) / "trace.json", error)) return "";
  if (config.run.trace == 0) return "the run keeps no trace (run.trace = 0)";
  return fmt::format("there is no trace.json yet; it is of run.trace = {} steps after the first",
                     config.run.trace);
}

ordered_json to_json(const config::Config& config, const ExplainOptions& options,
                     const Explained& e) {
  const Compiled& c = e.compiled;
  const PlansOfRanks& ranks = e.ranks;
  const plan::Plan& plan = c.plan;
  const config::Parallel& p = config.parallel;
  ordered_json passes = ordered_json::array(), comm = ordered_json::array(), memory, range;
  for (const transforms::PassReport& pass : c.passes)
    passes.push_back({{"name", pass.name},
                      {"ms", pass.ms},
                      {"eqns_before", pass.eqns_before},
                      {"eqns_after", pass.eqns_after},
                      {"disabled", pass.disabled},
                      {"preserves_numerics", pass.preserves_numerics}});
  const std::vector<plan::CommRow> rows = plan::communication(plan);
  for (const plan::CommRow& row : rows) comm.push_back(row_json(row));
  for (std::size_t i = 0; i < std::size(quantities); ++i) {
    memory[quantities[i].name] = quantities[i].of(plan);
    range["memory"][quantities[i].name] = whole(ranks.memory[i]);
  }
  range["peak_bytes"] = whole(ranks.peak);
  range["comm_bytes"] = whole(ranks.comm);
  range["flops"] = ranks.flops.json();
  ordered_json out = {
      {"goal", options.goal},
      {"model", config.model.name},
      {"dtype", config.precision.dtype},
      {"batch", config.batch.global},
      {"accumulate", config.batch.accumulate},
      {"threads", config.run.threads},
      {"layout",
       {{"dp", p.dp},
        {"tp", p.tp},
        {"pp", p.pp},
        {"sp", p.sp},
        {"zero", p.zero},
        {"sequence", p.sequence},
        {"compress", p.compress}}},
      {"world", e.world},
      {"rank", plan.rank},
      {"steps", plan.steps.size()},
      {"flops", plan.cost.flops},
      {"bytes", plan.cost.bytes},
      {"comm_bytes", comm_bytes(rows)},
      {"comm", comm},
      {"peak_bytes", plan.peak_bytes()},
      {"arena_bytes", plan.arena_bytes},
      {"memory", memory},
      {"gradients", {{"kept", plan.gradients.kept}, {"in_flight", plan.gradients.in_flight}}},
      {"ranks", range},
      {"passes", passes}};
  if (plan.bytes_on(ir::Home::host) + plan.bytes_on(ir::Home::file) > 0)
    out["away"] = away_json(plan);
  if (e.run_memory) out["run"] = e.run_memory->json();
  if (e.pipeline) out["pipeline"] = e.pipeline->json();
  if (!e.unmeasured.empty()) out["unmeasured"] = e.unmeasured;
  if (options.program) out["program"] = ir::print(c.program);
  if (options.program || options.before) out["program_before"] = e.before;
  if (options.plan) out["plan"] = plan::print(plan);
  return out;
}

void print_communication(const std::vector<plan::CommRow>& rows, int rank) {
  if (rows.empty()) {
    say(stdout, "\ncommunication: none\n");
    return;
  }
  say(stdout, "\ncommunication of rank {} in a step\n", rank);
  say(stdout, "  {:10} {:15} {:5} {:12} {:>6} {:>18}\n", "phase", "op", "axis", "what", "count",
      "bytes");
  std::int64_t count = 0;
  for (const plan::CommRow& row : rows) {
    say(stdout, "  {:10} {:15} {:5} {:12} {:>6} {:>18}\n", plan::name(row.phase), ir::name(row.op),
        row.axis, row.what, row.count, with_commas(row.bytes));
    count += row.count;
  }
  say(stdout, "  {:45} {:>6} {:>18}\n", "all", count, with_commas(comm_bytes(rows)));
}

// One column for the rank, and two more where ranks differ.
void print_memory(const plan::Plan& plan, const PlansOfRanks& ranks, bool several) {
  const bool differ = ranks.differ();
  const auto line = [&](const char* name, std::int64_t bytes, const Range& range) {
    say(stdout, "  {:12} {:>16} {:>9.1f} MB", name, with_commas(bytes),
        static_cast<double>(bytes) * 1e-6);
    if (differ)
      say(stdout, " {:>16} {:>16}", with_commas(static_cast<std::int64_t>(range.least)),
          with_commas(static_cast<std::int64_t>(range.most)));
    say(stdout, "\n");
  };
  say(stdout, "\nmemory at the peak, in bytes{}\n",
      several && !differ ? ", the same on every rank" : "");
  if (differ)
    say(stdout, "  {:12} {:>16} {:13} {:>16} {:>16}\n", "", fmt::format("rank {}", plan.rank), "",
        "least of ranks", "most of ranks");
  for (std::size_t i = 0; i < std::size(quantities); ++i)
    line(quantities[i].name, quantities[i].of(plan), ranks.memory[i]);
  line("all", plan.peak_bytes(), ranks.peak);
  say_lines(stdout, away_text(plan));
  const plan::Gradients& g = plan.gradients;
  if (g.kept + g.in_flight == 0) return;
  report::say_sentence(
      "  gradients of a step: at most {} bytes wait for the update{}\n", with_commas(g.kept),
      g.in_flight == 0 ? ""
                       : fmt::format(", {} more are whole buckets on their way to their ranks",
                                     with_commas(g.in_flight)));
}

std::string model_text(const config::Config& config, const ExplainOptions& options) {
  return fmt::format(
      "{}, {}, {}", config.model.name.empty() ? config.model.family : config.model.name,
      config.precision.dtype, options.goal == "train" ? "one training step" : "inference");
}

void print_text(const config::Config& config, const ExplainOptions& options, const Explained& e) {
  const Compiled& c = e.compiled;
  const PlansOfRanks& ranks = e.ranks;
  const plan::Plan& plan = c.plan;
  if (options.before) say_lines(stdout, "before placement\n" + e.before + "\nafter placement\n");
  if (options.program) say_lines(stdout, ir::print(c.program) + "\n");
  if (options.plan)
    say_lines(stdout, fmt::format("plan of rank {}\n{}\n", plan.rank, plan::print(plan)));
  report::say_sentence("model   {}\nlayout  {}\nbatch   {}\n", model_text(config, options),
                       layout_text(config), batch_text(config, e.micros));
  report::say_sentence("plan    rank {}: {} steps, {:.3f} GFLOP (recomputation not counted){}\n",
                       plan.rank, plan.steps.size(), plan.cost.flops * 1e-9,
                       ranks.flops.differs()
                           ? fmt::format("; of all ranks {:.3f} to {:.3f}",
                                         ranks.flops.least * 1e-9, ranks.flops.most * 1e-9)
                           : "");
  print_communication(plan::communication(plan), plan.rank);
  print_memory(plan, ranks, e.world > 1);
  if (e.run_memory) report::say_cut(e.run_memory->text(e.world > 1));
  if (e.pipeline) say_lines(stdout, e.pipeline->text(report::chart_columns()));
  if (!e.unmeasured.empty()) report::say_sentence("\nnothing is measured: {}\n", e.unmeasured);
  say(stdout, "\n{:16} {:>9} {:>12}\n", "pass", "ms", "equations");
  for (const transforms::PassReport& p : c.passes)
    say(stdout, "{:16} {:>9.2f} {:>7} -> {:<6}{}\n", p.name, p.ms, p.eqns_before, p.eqns_after,
        p.disabled             ? " disabled"
        : p.preserves_numerics ? ""
                               : " rounding may change");
  if (!options.dump_passes.empty())
    say(stdout, "programs after each pass are in {}\n", options.dump_passes);
}

}  // namespace

int explain(const config::Config& given, const ExplainOptions& options) {
  config::Config config = given;
  std::optional<RunTrace> run;
  Explained e;
  // Wherever the run folder is now.
  if (const std::string kept = options.run.empty() ? "" : schedule_of_run(options.run);
      !kept.empty() && !schedule_file(config).empty())
    config.parallel.schedule = "file:" + kept;
  if (!options.run.empty()) e.unmeasured = why_unmeasured(config, options);
  if (!options.run.empty() && e.unmeasured.empty()) run = trace_of_run(options.run);
  // Stages by time are those of the run, or measured here.
  if (run && !run->trace.blocks.empty() && config.parallel.stages.word == "time")
    config.parallel.stages.list.assign(run->trace.blocks.begin(), run->trace.blocks.end());
  else
    settle_stages(config, nullptr);
  if (options.goal == "train") settle_pictures(config);
  StepSpec spec = resolve(config);
  spec.infers = options.goal != "train";
  const ir::Mesh& mesh = spec.mesh;
  e.world = mesh.ranks();
  if (options.rank < 0 || options.rank >= mesh.ranks())
    throw Error(ErrorKind::usage,
                fmt::format("--rank {}: the layout has {}", options.rank, ranks_text(mesh.ranks())),
                "",
                mesh.ranks() == 1 ? "give a layout (--pp, --dp, --tp, --sp), or leave --rank out"
                                  : fmt::format("choose 0 to {}", mesh.ranks() - 1));
  plan::Target target = exec::target_of(config::device_of(config, options.rank),
                                        static_cast<int>(config.run.threads), liberties_of(config));
  target.packs = options.goal != "train";  // as a session for inference has it
  transforms::RunOptions passes;
  passes.dump_dir = options.dump_passes;
  passes.disabled = {options.disabled.begin(), options.disabled.end()};
  passes.before = [&](const transforms::Pass& pass, const ir::Program& program) {
    if (pass.name == "place") e.before = ir::print(program);
  };
  const Goal goal = options.goal == "train" ? Goal::train : Goal::predict;
  const std::vector<std::int64_t> micro = micro_batches_for(config, goal, config.batch.global);
  e.micros = micro.size();
  if (pipelined(config, goal))
    e.pipeline.emplace(spec, goal, static_cast<int>(micro.size()));
  else if (!options.schedule_svg.empty())
    throw Error(ErrorKind::usage, "there is no pipeline to draw: the layout has one stage",
                "--schedule-svg", "choose --pp N, or parallel.segments for a training");
  if (run) e.pipeline->measure(*run);
  e.compiled = compile(spec, goal, micro, target, passes, Weights::live, options.rank);
  const auto look_at = [&](const plan::Plan& plan, bool first) {
    e.ranks.add(plan, first);
    if (e.pipeline) e.pipeline->add(plan);
  };
  look_at(e.compiled.plan, true);
  for (const int rank : different_ranks(mesh))
    if (rank != options.rank)
      look_at(plan::lower(e.compiled.program, rank, target, config.parallel.overlap), false);
  if (goal == Goal::train) {
    transforms::RunOptions quiet;
    quiet.disabled = passes.disabled;
    e.run_memory = memory_of_run(config, options.rank, different_ranks(mesh), target, quiet);
  }
  if (!options.schedule_svg.empty())
    files::write_atomically(
        options.schedule_svg,
        e.pipeline->svg(fmt::format("{}, {}", model_text(config, options), layout_text(config))));
  if (options.json)
    report::print_document(to_json(config, options, e));
  else
    print_text(config, options, e);
  return 0;
}

}  // namespace tessera::run
