// Weights one layer ahead: G0 C0 G1 C1 G2 C2 becomes G0 G1 C0 G2 C1 C2. Nothing but the order changes; one more layer is whole at a time.
#include "transforms/transforms.h"

namespace tessera::transforms {

using namespace ir;

Program prefetch(const Program& program) {
  std::vector<bool> kept(program.values.size());  // rests on the ranks from step to step
  for (const Input& in : program.inputs) kept[static_cast<std::size_t>(in.var)] = in.kind == Input::param || in.kind == Input::state;
  std::vector<std::size_t> gathers;
  for (std::size_t i = 0; i < program.eqns.size(); ++i)
    if (const Eqn& e = program.eqns[i]; e.op == Op::all_gather && kept[static_cast<std::size_t>(e.in[0])]) gathers.push_back(i);
  Program out = program;
  out.eqns.clear();
  std::size_t passed = 0;  // gathers whose old place lies behind
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    if (passed == gathers.size() || i != gathers[passed]) {
      out.eqns.push_back(program.eqns[i]);
      continue;
    }
    if (passed == 0) out.eqns.push_back(program.eqns[i]);
    if (++passed < gathers.size()) out.eqns.push_back(program.eqns[gathers[passed]]);
  }
  return out;
}

}  // namespace tessera::transforms
