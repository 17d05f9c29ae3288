// Where the optimizer's state and the weights of ZeRO 3 rest between the equations that need them.
// State is only ever read by the update, which the plan cuts into pieces. Weights are copied to the
// device where they are used, and again where they are used again; place() writes these copies.
#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::transforms {

using namespace ir;

Program offload(const Program& program, Home home, std::int64_t piece) {
  CHECK(home != Home::device && piece > 0, "offload says where to, and how much at a time");
  Program out = program;
  for (Input& in : out.inputs)
    if (in.role == Role::first_moment || in.role == Role::second_moment) {
      in.home = home;
      in.piece = piece;
    }
  return out;
}

Program rest_weights(const Program& program, Home home, std::int64_t piece) {
  CHECK(home != Home::device && piece > 0, "weights rest somewhere, and come so much at a time");
  Program out = program;
  for (Input& in : out.inputs) {
    const bool cut = std::find(in.dims.begin(), in.dims.end(), "bucket") != in.dims.end();
    if (in.role == Role::weights && cut) {
      in.home = home;
      in.piece = piece;
    }
  }
  return out;
}

Program bring_updates(const Program& program) {
  std::map<Var, Var> here;  // inputs that rest away: none, or what was copied of them
  for (const Input& in : program.inputs)
    if (in.home != Home::device) here[in.var] = none;
  std::set<Var> goes_back;
  for (const Output& o : program.outputs)
    if (!o.updates.empty() && here.contains(program.input(o.updates)->var)) goes_back.insert(o.var);
  Rewriter r(program);
  for (const Eqn& e : program.eqns) {
    if (e.phase != Phase::update || by_element(e)) {
      r.copy(e);
      continue;
    }
    r.enter(e);
    std::vector<Var> in = r(e.in);
    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto found = here.find(e.in[i]);
      if (found == here.end()) continue;
      if (found->second == none)
        found->second =
            r.to.emit_named(Op::copy, None{}, {in[i]}, {program.name_of(e.in[i]) + "/here"})[0];
      in[i] = found->second;
    }
    r.copy_on(e, std::move(in));
    for (const Var v : e.out)
      if (goes_back.contains(v))
        r.set(v, r.to.emit_named(Op::copy, None{}, {r(v)}, {program.name_of(v) + "/back"})[0]);
  }
  return r.finish();
}

}  // namespace tessera::transforms
