// Names of the steps of a plan, for profilers and for people.
#pragma once

#include <string>
#include <string_view>

#include "plan/plan.h"

namespace tessera::exec::cuda {

inline std::string_view scope_of(const plan::Plan& plan, const plan::Step& step) {
  if (step.eqn < 0) return "copy";
  return plan.program.eqns[static_cast<std::size_t>(step.eqn)].scope;
}
inline std::string name_of(const plan::Plan& plan, const plan::Step& step) {
  if (step.eqn < 0) return "";
  const ir::Eqn& eqn = plan.program.eqns[static_cast<std::size_t>(step.eqn)];
  const ir::Var first = eqn.out.empty() ? ir::none : eqn.out[0];
  return first == ir::none ? eqn.scope : plan.program.name_of(first);
}

}  // namespace tessera::exec::cuda
