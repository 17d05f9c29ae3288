// Weights one layer ahead: G0 C0 G1 C1 G2 C2 becomes G0 G1 C0 G2 C1 C2. Nothing but the order
// changes; one more layer is whole at a time.
#include <map>

#include "transforms/transforms.h"

namespace tessera::transforms {

using namespace ir;

Program prefetch(const Program& program) {
  std::vector<bool> kept(program.values.size());  // rests on the ranks from step to step
  for (const Input& in : program.inputs)
    kept[static_cast<std::size_t>(in.var)] = in.kind == Input::param || in.kind == Input::state;
  const int pp = program.mesh.find("pp");
  std::map<int, std::vector<std::size_t>> gathers;  // of each stage: it has an order of its own
  for (std::size_t i = 0; i < program.eqns.size(); ++i)
    if (const Eqn& e = program.eqns[i];
        e.op == Op::all_gather && kept[static_cast<std::size_t>(e.in[0])])
      gathers[pp < 0 ? -1 : place_on(program.type(e.in[0]), pp).dim].push_back(i);
  std::map<std::size_t, std::vector<std::size_t>> instead;  // of the gather that stood there
  for (const auto& [stage, list] : gathers)
    for (std::size_t k = 0; k < list.size(); ++k) {
      std::vector<std::size_t>& now = instead[list[k]];
      if (k == 0) now.push_back(list[0]);
      if (k + 1 < list.size()) now.push_back(list[k + 1]);
    }
  Program out = program;
  out.eqns.clear();
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const auto found = instead.find(i);
    for (const std::size_t k : found == instead.end() ? std::vector<std::size_t>{i} : found->second)
      out.eqns.push_back(program.eqns[k]);
  }
  return out;
}

}  // namespace tessera::transforms
