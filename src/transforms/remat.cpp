// Recomputation: what the backward pass reads from the forward pass is computed again from the
// nearest kept mark, when it is first needed. Convention: a recomputed equation has phase
// recompute, so that it is never merged with the original nor counted as model FLOPs.
#include <algorithm>
#include <functional>

#include "base/check.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::transforms {

using namespace ir;

Program remat(const Program& program, int every) {
  if (every <= 0) return program;
  std::vector<int> maker(program.values.size(), -1);  // the forward equation that makes a value
  std::vector<bool> kept(program.values.size(),
                         false);  // inputs, kept marks, and what follows from parameters alone
  std::vector<bool> from_params(program.values.size(), false);
  for (const Input& in : program.inputs) {
    kept[static_cast<std::size_t>(in.var)] = true;
    from_params[static_cast<std::size_t>(in.var)] = in.kind == Input::param;
  }
  std::vector<int> last_read(program.values.size(),
                             0);  // the last stage that reads a value in the forward pass
  for (const Eqn& eqn : program.eqns)
    for (Var v : eqn.in)
      if (v != none && eqn.phase == Phase::forward)
        last_read[static_cast<std::size_t>(v)] =
            std::max(last_read[static_cast<std::size_t>(v)], eqn.stage);
  int marks = 0;
  std::vector<Var> since_mark;
  // Where a micro-batch's forward part ends: what follows its last mark (the head) is needed at
  // once, so keeping it is free.
  auto end_forward = [&] {
    for (Var v : since_mark) kept[static_cast<std::size_t>(v)] = true;
    since_mark.clear();
    marks = 0;
  };
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& eqn = program.eqns[i];
    if (eqn.phase != Phase::forward) {
      end_forward();
      continue;
    }
    const bool params_only =
        !eqn.in.empty() && std::all_of(eqn.in.begin(), eqn.in.end(), [&](Var v) {
          return v == none || from_params[static_cast<std::size_t>(v)];
        });
    const bool boundary = eqn.op == Op::mark && std::get<Mark>(eqn.attrs).label == "residual";
    if (boundary) since_mark.clear();
    const bool keep = params_only || (boundary && marks++ % every == 0);
    for (Var v : eqn.out)
      if (v != none) {
        const bool crosses = last_read[static_cast<std::size_t>(v)] > eqn.stage;
        if (crosses && boundary) marks = 1;  // counted anew from a stage's input
        maker[static_cast<std::size_t>(v)] = static_cast<int>(i);
        kept[static_cast<std::size_t>(v)] = keep || crosses;
        from_params[static_cast<std::size_t>(v)] = params_only;
        since_mark.push_back(v);
      }
  }
  end_forward();

  Rewriter r(program);
  std::vector<Var> again(program.values.size(), none);
  const std::function<Var(Var)> recompute = [&](Var v) -> Var {
    if (v == none) return none;
    const auto at = static_cast<std::size_t>(v);
    if (maker[at] < 0 || kept[at]) return r(v);
    if (again[at] != none) return again[at];
    const Eqn& eqn = program.eqns[static_cast<std::size_t>(maker[at])];
    std::vector<Var> in;
    for (Var operand : eqn.in) in.push_back(recompute(operand));
    std::vector<std::string> names;
    for (Var out : eqn.out) names.push_back(out == none ? "_" : "re." + program.name_of(out));
    r.enter(eqn);
    r.to.set_phase(Phase::recompute);
    const std::vector<Var> out = r.to.emit_named(eqn.op, eqn.attrs, in, names);
    for (std::size_t i = 0; i < out.size(); ++i)
      if (eqn.out[i] != none) again[static_cast<std::size_t>(eqn.out[i])] = out[i];
    return again[at];
  };
  for (const Eqn& eqn : program.eqns) {
    if (eqn.phase != Phase::backward) {
      r.copy(eqn);
      continue;
    }
    std::vector<Var> in;
    for (Var v : eqn.in) in.push_back(recompute(v));
    r.copy_on(eqn, std::move(in));
  }
  return r.finish();
}

}  // namespace tessera::transforms
