// explain and models: what would run, without running it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "config/print.h"
#include "exec/executor.h"
#include "models/model.h"
#include "report/console.h"
#include "run/compile.h"
#include "run/run.h"
#include "run/session.h"

namespace tessera::run {

using nlohmann::ordered_json;

int explain(const config::Config& config, const ExplainOptions& options) {
  const auto executor = exec::make_cpu_executor(static_cast<int>(config.run.threads));
  transforms::RunOptions passes;
  passes.dump_dir = options.dump_passes;
  passes.disabled = {options.disabled.begin(), options.disabled.end()};
  const bool train = options.goal == "train";
  const auto micro =
      train ? Session::micro_batches(config.batch.global, config.batch.accumulate) : std::vector<std::int64_t>{config.batch.global};
  const Compiled c = compile(config, train ? Goal::train : Goal::predict, micro, executor->workspace_rule(), passes);
  const plan::Memory& m = c.plan.memory;
  if (options.json) {
    ordered_json list = ordered_json::array();
    for (const transforms::PassReport& p : c.passes)
      list.push_back({{"name", p.name},
                      {"ms", p.ms},
                      {"eqns_before", p.eqns_before},
                      {"eqns_after", p.eqns_after},
                      {"disabled", p.disabled},
                      {"preserves_numerics", p.preserves_numerics}});
    ordered_json out = {{"goal", options.goal},
                        {"model", config.model.name},
                        {"dtype", config.precision.dtype},
                        {"batch", config.batch.global},
                        {"threads", config.run.threads},
                        {"steps", c.plan.steps.size()},
                        {"flops", c.plan.cost.flops},
                        {"bytes", c.plan.cost.bytes},
                        {"comm_bytes", 0},
                        {"peak_bytes", c.plan.peak_bytes()},
                        {"arena_bytes", c.plan.arena_bytes},
                        {"memory",
                         {{"weights", m.weights},
                          {"gradients", m.gradients},
                          {"optimizer", m.optimizer},
                          {"activations", m.activations},
                          {"workspace", m.workspace}}},
                        {"passes", list}};
    if (options.program) out["program"] = ir::print(c.plan.program);
    fmt::print("{}\n", out.dump(2));
    return 0;
  }
  if (options.program) fmt::print("{}\n", ir::print(c.plan.program));
  fmt::print("{}", plan::print(c.plan, options.plan));
  fmt::print("peak {} bytes per rank, exact   communication 0 bytes per step (one rank)\n", report::with_commas(c.plan.peak_bytes()));
  fmt::print("\n{:16} {:>9} {:>16}\n", "pass", "ms", "equations");
  for (const transforms::PassReport& p : c.passes)
    fmt::print("{:16} {:>9.2f} {:>7} -> {:<6}{}\n", p.name, p.ms, p.eqns_before, p.eqns_after,
               p.disabled             ? " disabled"
               : p.preserves_numerics ? ""
                                      : " rounding may change");
  if (!options.dump_passes.empty()) fmt::print("programs after each pass are in {}\n", options.dump_passes);
  return 0;
}

int list_models(bool json) {
  ordered_json all = ordered_json::array();
  if (!json) fmt::print("{:18} {:>10} {:>10} {:>10}  {}\n", "name", "image", "params", "GFLOP", "what");
  for (const models::Preset& row : models::presets()) {
    std::int64_t params = 0;
    for (const models::Param& p : models::parameters(row.config)) params += p.buffer ? 0 : ir::elements(p.shape);
    config::Config config;
    config.model = row.config;
    const double flops = compile(config, Goal::predict, {1}, [](auto&&...) { return std::int64_t{0}; }).plan.cost.flops;
    const models::ModelConfig& m = row.config;
    if (json)
      all.push_back({{"name", row.name},
                     {"family", m.family},
                     {"image", {m.image_h, m.image_w}},
                     {"channels", m.channels},
                     {"classes", m.classes},
                     {"params", params},
                     {"flops", flops},
                     {"note", row.note}});
    else
      fmt::print("{:18} {:>10} {:>10} {:>10.3f}  {}\n", row.name, fmt::format("{}x{}x{}", m.image_h, m.image_w, m.channels),
                 report::millions(params), flops * 1e-9, row.note);
  }
  if (json)
    fmt::print("{}\n", all.dump(2));
  else
    fmt::print("params and GFLOP (2 x multiply-adds) are for one image; every dimension can be changed: --set model.depth=4\n");
  return 0;
}

}  // namespace tessera::run
