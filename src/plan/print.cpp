#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/plan.h"

namespace tessera::plan {
namespace {

std::string where(const Plan& plan, const Slot& s) {
  if (!s) return "_";
  const std::string base = s.base == 0            ? "arena"
                           : s.base == Slot::feed ? "feed"
                           : s.base == Slot::result
                               ? "result"
                               : plan.persistent[static_cast<std::size_t>(s.base - 1)].name;
  return fmt::format("{}+{}", base, s.offset);
}

}  // namespace

std::string print(const Plan& plan) {
  std::string out;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    out += fmt::format("{:5} {:18}", i,
                       step.move == Move::fetch  ? "fetch"
                       : step.move == Move::stow ? "stow"
                                                 : ir::name(step.op));
    for (const Slot& s : step.out) out += " " + where(plan, s);
    out += " <-";
    for (const Slot& s : step.in) out += " " + where(plan, s);
    if (step.workspace) out += fmt::format("  workspace {}", step.workspace.type.bytes());
    if (step.packed) out += "  packed " + where(plan, step.packed);
    if (step.idle) out += "  idle";
    if (step.stream == 1) out += "  under way";
    if (!step.waits.empty()) out += fmt::format("  waits for {}", fmt::join(step.waits, " "));
    if (step.eqn >= 0) out += "  # " + plan.program.eqns[static_cast<std::size_t>(step.eqn)].scope;
    out += "\n";
  }
  return out;
}

}  // namespace tessera::plan
