// Weights one layer ahead: G0 C0 G1 C1 G2 C2 becomes G0 G1 C0 G2 C1 C2. Where they rest away from
// the device the copies of what is gathered stand one layer before the gathers, or where nothing is
// gathered one layer before the use. Nothing but the order changes; one more layer is whole at a
// time.
#include <map>
#include <set>

#include "transforms/transforms.h"

namespace tessera::transforms {
namespace {

using namespace ir;

using Positions = std::map<int, std::vector<std::size_t>>;  // of each stage, in its order

// Each of these equations stands where the one `ahead` before it stood, the first ones where the
// first stood.
Program earlier(const Program& program, const Positions& which, std::size_t ahead) {
  std::map<std::size_t, std::vector<std::size_t>> instead;  // of the one that stood there
  for (const auto& [stage, list] : which)
    for (std::size_t k = 0; k < list.size(); ++k) {
      std::vector<std::size_t>& now = instead[list[k]];
      for (std::size_t i = k == 0 ? 0 : k + ahead; i <= k + ahead && i < list.size(); ++i)
        now.push_back(list[i]);
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

}  // namespace

Program prefetch(const Program& program) {
  std::vector<bool> kept(program.values.size());  // rests on the ranks from step to step
  std::set<Var> away;
  for (const Input& in : program.inputs) {
    kept[static_cast<std::size_t>(in.var)] = in.kind == Input::param || in.kind == Input::state;
    if (in.home != Home::device) away.insert(in.var);
  }
  const int pp = program.mesh.find("pp");
  const auto stage_of = [&](const Eqn& e) {
    return pp < 0 ? -1 : place_on(program.type(e.in[0]), pp).dim;
  };
  const auto is_copy = [&](const Eqn& e) {
    return e.op == Op::copy && away.contains(e.in[0]) && e.phase != Phase::update;
  };
  bool gathers = false;
  Positions copies;
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    if (is_copy(e)) {
      copies[stage_of(e)].push_back(i);
      kept[static_cast<std::size_t>(e.out[0])] = true;
    }
    gathers |= e.op == Op::all_gather && kept[static_cast<std::size_t>(e.in[0])];
  }
  const Program copied = earlier(program, copies, gathers ? 2 : 1);
  Positions gathered;
  for (std::size_t i = 0; i < copied.eqns.size(); ++i)
    if (const Eqn& e = copied.eqns[i];
        e.op == Op::all_gather && kept[static_cast<std::size_t>(e.in[0])])
      gathered[stage_of(e)].push_back(i);
  return earlier(copied, gathered, 1);
}

}  // namespace tessera::transforms
