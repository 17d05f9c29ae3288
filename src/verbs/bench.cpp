// Throughput of what really runs: whole inference and training plans, on one rank or on the ranks
// of a layout, and every distinct equation of a training step, against the machine's peak.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/rng.h"
#include "base/say.h"
#include "checkpoint/weights_open.h"
#include "comm/heartbeat.h"
#include "compile/stages.h"
#include "config/devices.h"
#include "measure/environment.h"
#include "ranks/ranks.h"
#include "report/console.h"
#include "report/document.h"
#include "report/metrics.h"
#include "session/init.h"
#include "session/session.h"
#include "verbs/bench_ops.h"
#include "verbs/bench_ranks.h"
#include "verbs/verbs.h"

namespace tessera::run {
namespace {

using nlohmann::ordered_json;

// The group that an equation counts towards, from its scope: inside numbered blocks the part of the
// block ("blocks.3.mlp" -> "mlp", "layer1.0.downsample.0" -> "downsample", "layer1.0" itself ->
// "block"), elsewhere the outermost name ("stem.conv1" -> "stem").
std::string scope_group(const std::string& scope) {
  std::vector<std::string> parts;
  std::istringstream words(scope);
  for (std::string word; std::getline(words, word, '.');) parts.push_back(word);
  const auto number = [](const std::string& word) {
    return word.find_first_not_of("0123456789") == std::string::npos;
  };
  if (parts.empty()) return "other";
  if (parts.size() == 1 || !number(parts[1])) return parts[0];
  while (parts.size() > 1 && number(parts.back())) parts.pop_back();
  return parts.size() > 1 ? parts.back() : "block";
}

constexpr const char* messages =
    "comm";  // the group of what goes between ranks, and of waiting for it

const ir::Eqn* origin(const plan::Plan& plan, const plan::Step& step) {
  return step.eqn < 0 ? nullptr : &plan.program.eqns[static_cast<std::size_t>(step.eqn)];
}

// `once` runs the plan, with marks or without. It is run `repeats` times or, when 0, for two
// seconds and at least five times; a quarter as often with marks. A run begins when all ranks are
// there, and takes as long as the slowest of them.
TimedRuns measure(const std::function<exec::Timeline(bool marks)>& once, std::size_t steps,
                  std::int64_t repeats, const Ranks& ranks) {
  TimedRuns found;
  double spent = 0;
  while (repeats > 0 ? static_cast<std::int64_t>(found.wall_ms.size()) < repeats
                     : found.wall_ms.size() < 5 || (spent < 2000 && found.wall_ms.size() < 1000)) {
    ranks.barrier();
    const auto asked = std::chrono::steady_clock::now();
    const double wall_ms = once(false).wall_ms;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - asked;
    found.wall_ms.push_back(ranks.most(wall_ms));
    found.call_ms.push_back(ranks.most(took.count()));
    spent += found.wall_ms.back();
  }
  const std::size_t marked = repeats > 0 ? static_cast<std::size_t>(repeats)
                                         : std::max<std::size_t>(5, found.wall_ms.size() / 4);
  while (found.step_ms.size() < marked) {
    ranks.barrier();
    std::vector<double>& step_ms = found.step_ms.emplace_back(steps);
    // A step counts the time that this rank's own thread spent on it: on a message, to hand it over
    // and to wait for it.
    for (const exec::Timeline::Span& span : once(true).spans)
      if (span.stream == 0 && span.kind != exec::Timeline::poll)
        step_ms[static_cast<std::size_t>(span.step)] += span.end - span.start;
  }
  return found;
}

void print_groups(const ordered_json& ops) {
  std::map<std::string, std::array<double, 2>> groups;  // ms, share
  std::vector<std::string> order;
  for (const ordered_json& op : ops) {
    const std::string g = op["group"];
    if (!groups.contains(g)) order.push_back(g);
    groups[g][0] += op["ms"].get<double>();
    groups[g][1] += op["share"].get<double>();
  }
  if (const auto comm = std::find(order.begin(), order.end(), messages); comm != order.end())
    std::rotate(comm, comm + 1, order.end());
  say(stdout, "{:20} {:>10} {:>7}\n", "group", "ms", "share");
  for (const std::string& g : order)
    say(stdout, "{:20} {:>10.2f} {:>6.1f}%\n", g == messages ? "messages and waiting" : g,
        groups[g][0], groups[g][1] * 100);
}

// The equations of this rank's plan, in order, each with the part of the model that it counts
// towards; then what is left of the median run.
ordered_json ops_of(const plan::Plan& plan, const TimedRuns& found, double median_ms,
                    bool several_ranks) {
  ordered_json ops = ordered_json::array();
  double sum = 0;
  for (std::size_t i = plan.prepared; i < plan.steps.size(); ++i) {
    const plan::Step& step = plan.steps[i];
    const ir::Eqn* eqn = origin(plan, step);
    if (!eqn) continue;
    const double ms = median_step(found, i);
    std::string name = std::string(ir::name(eqn->op));
    for (ir::Var v : eqn->out)
      if (v != ir::none) {
        name = plan.program.name_of(v);
        break;
      }
    ops.push_back({{"name", name},
                   {"op", ir::name(eqn->op)},
                   {"group", plan::crosses_ranks(step.op) ? messages : scope_group(eqn->scope)},
                   {"ms", ms},
                   {"gflops", step_cost(step).flops / std::max(ms, 1e-6) * 1e-6}});
    sum += ms;
  }
  // With several ranks the rest includes the time until the slowest is done.
  if (const double rest = median_ms - sum; rest > 0)
    ops.push_back({{"name", "rest"},
                   {"op", "rest"},
                   {"group", several_ranks ? messages : "other"},
                   {"ms", rest},
                   {"gflops", 0.0}});
  for (ordered_json& op : ops)
    op["share"] =
        op["ms"].get<double>() / std::max(median_ms, sum);  // medians of parts can add up to more
  return ops;
}

// The measurements, on the first rank.
struct BenchResult {
  const config::Config& config;
  const BenchOptions& options;
  const std::vector<RankUse>& used;
  RankUses uses;
  ordered_json ops;
  report::Quantiles ms, call_ms;
  std::size_t runs = 0;
  Peak peak;
  double difference = 0;  // of logits, from those of one rank

  double gflops() const { return uses.flops / ms.median * 1e-6; }
  double images_per_s() const { return static_cast<double>(options.batch) / ms.median * 1e3; }
};

ordered_json spread_json(const report::Quantiles& q) {
  return {{"median", q.median}, {"min", q.min}, {"max", q.max}};
}

void print_bench_json(const BenchResult& r) {
  ordered_json document = {
      {"model", r.config.model.name},     {"what", r.options.what},
      {"batch", r.options.batch},         {"dtype", r.config.precision.dtype},
      {"threads", r.config.run.threads},  {"device", r.config.run.device},
      {"layout", layout_json(r.config)},  {"runs", r.runs},
      {"ms", spread_json(r.ms)},          {"call_ms", spread_json(r.call_ms)},
      {"images_per_s", r.images_per_s()}, {"gflops", r.gflops()},
      {"peak_gflops", r.peak.all_gflops}, {"peak_dtype", r.peak.dtype},
      {"peak_bytes", r.uses.peak_bytes},  {"comm_bytes", traffic_json(r.uses.traffic)},
      {"ranks", ranks_json(r.used)}};
  if (!r.peak.doubt.empty()) document["peak_doubt"] = r.peak.doubt;
  if (r.options.check) document["logits_difference"] = r.difference;
  document["ops"] = r.ops;
  report::print_document(document);
}

void print_bench_text(const BenchResult& r) {
  print_groups(r.ops);
  report::say_sentence(
      "{} {} batch {} {} {}: median {:.2f} ms (min {:.2f}, max {:.2f}, {} runs)  {} img/s  "
      "{:.1f} GFLOP/s = {:.0f}% of the measured {} peak, {:.0f}\n",
      r.options.what, r.config.model.name, r.options.batch, r.config.precision.dtype,
      layout_heading(r.config), r.ms.median, r.ms.min, r.ms.max, r.runs,
      report::per_second(r.images_per_s()), r.gflops(), r.gflops() / r.peak.all_gflops * 100,
      r.peak.dtype, r.peak.all_gflops);
  if (r.options.what == "infer" && r.config.run.device != "cpu")
    report::say_sentence("from pixels on the host to logits there: median {:.3f} ms (min {:.3f})\n",
                         r.call_ms.median, r.call_ms.min);
  if (!r.peak.doubt.empty())
    report::say_sentence("the measured peak may be wrong: {}\n", r.peak.doubt);
  if (r.used.size() > 1)
    report::say_sentence("{}\n", use_line(r.used, r.options.what == "infer" ? "batch" : "step"));
  if (r.options.check)
    say(stdout, "logits differ from those of one rank by {:.2e} of the largest\n", r.difference);
}

}  // namespace

void take_model(config::Config& config, const std::string& weights) {
  const OpenedWeights opened = open_weights(weights);
  config.model = opened.model;
  if (!opened.quantised.as.empty()) config.precision.quantise = opened.quantised.as;
}

int bench(const config::Config& given, const BenchOptions& options, comm::Comm* world) {
  const Ranks ranks(world);
  config::Config config = given;
  config.batch = {options.batch,
                  (options.batch + config.batch.accumulate - 1) / config.batch.accumulate,
                  config.batch.accumulate};
  if (options.check)
    config.model.head_init = "normal";  // a head of zeros would hide every difference
  const bool infer = options.what == "infer";
  settle_stages(config, world);
  measure_cards(config, ranks);
  Session session(config, {}, world, infer ? Use::inference : Use::training);
  const models::ModelConfig& m = config.model;
  const std::vector<std::uint8_t> images = random_pixels(m, options.batch);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(options.batch));
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] =
        static_cast<std::int32_t>(random_bits(Key{2}, i) % static_cast<std::uint64_t>(m.classes));
  const plan::Plan* found = nullptr;
  ranks.together([&] {
    comm::Heartbeat::doing("compiling");
    if (options.weights.empty()) {
      session.load(initial_weights(static_cast<std::uint64_t>(config.run.seed)));
    } else {
      const OpenedWeights weights = open_weights(options.weights);
      session.load(weights.source, weights.quantised);
    }
    found = &session
                 .compiled({infer ? Goal::predict : Goal::train, options.batch, Weights::live,
                            ImageForm::pixels})
                 .plan;
  });
  const plan::Plan& plan = *found;
  // Inputs are written anew each time, as every run of a training or of a service does.
  std::int64_t step = 0;
  std::vector<double> logits;
  auto once = [&](bool marks) {
    exec::Timeline timeline;
    if (infer) {
      logits = session.predict(images, options.batch, &timeline, marks);
    } else {
      session.set_step(step);
      timeline = session.submit({images, labels, 1e-4, ++step, 0}, marks).wait().timeline;
    }
    return timeline;
  };
  comm::Heartbeat::doing("measuring");
  const comm::Traffic before = session.traffic();
  once(false);  // warms up
  const std::vector<RankUse> used =
      gather_use(ranks, {plan.peak_bytes(), plan.cost.flops, session.traffic() - before});
  const TimedRuns measured = measure(once, plan.steps.size(), options.repeats, ranks);
  if (options.what == "ops") {
    bench_ops(plan, measured, config, options);
    return 0;
  }
  const Peak peak_of_ranks = peak_on(config::in_short(config), multiplies_in(config), ranks,
                                     static_cast<int>(config.run.threads));
  double difference = 0;
  ranks.together([&] {
    if (options.check && ranks.first())
      difference = difference_from_one_rank(config, images, logits);
  });
  if (!ranks.first()) return 0;
  const report::Quantiles q = report::quantiles(measured.wall_ms);
  const BenchResult result = {.config = config,
                              .options = options,
                              .used = used,
                              .uses = sum_up(used),
                              .ops = ops_of(plan, measured, q.median, ranks.size() > 1),
                              .ms = q,
                              .call_ms = report::quantiles(measured.call_ms),
                              .runs = measured.wall_ms.size(),
                              .peak = peak_of_ranks,
                              .difference = difference};
  options.json ? print_bench_json(result) : print_bench_text(result);
  return 0;
}

}  // namespace tessera::run
