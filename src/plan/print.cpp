#include <fmt/format.h>

#include "plan/plan.h"

namespace tessera::plan {
namespace {

std::string where(const Plan& plan, const Slot& s) {
  if (!s) return "_";
  const std::string base = s.base == 0 ? "arena" : plan.persistent[static_cast<std::size_t>(s.base - 1)].name;
  return fmt::format("{}+{}", base, s.offset);
}

}  // namespace

std::string print(const Plan& plan, bool steps) {
  std::string out;
  if (steps)
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      out += fmt::format("{:5} {:18}", i, ir::name(step.op));
      for (const Slot& s : step.out) out += " " + where(plan, s);
      out += " <-";
      for (const Slot& s : step.in) out += " " + where(plan, s);
      if (step.workspace) out += fmt::format("  workspace {}", step.workspace.type.bytes());
      if (step.eqn >= 0) out += "  # " + plan.program.eqns[static_cast<std::size_t>(step.eqn)].scope;
      out += "\n";
    }
  const double mib = 1024.0 * 1024.0;
  const Memory& m = plan.memory;
  out += fmt::format("plan: {} steps, rank {}\n", plan.steps.size(), plan.rank);
  out +=
      fmt::format("memory  weights {:.1f}  grads {:.1f}  optim {:.1f}  activations {:.1f}  workspace {:.1f}  = {:.1f} MiB\n",
                  static_cast<double>(m.weights) / mib, static_cast<double>(m.gradients) / mib, static_cast<double>(m.optimizer) / mib,
                  static_cast<double>(m.activations) / mib, static_cast<double>(m.workspace) / mib, static_cast<double>(m.total()) / mib);
  out += fmt::format("arena {:.1f} MiB ({:.1f} MiB live at the peak)   {:.3f} GFLOP a step (recomputation not counted)\n",
                     static_cast<double>(plan.arena_bytes) / mib, static_cast<double>(plan.live_bytes) / mib, plan.cost.flops * 1e-9);
  return out;
}

}  // namespace tessera::plan
