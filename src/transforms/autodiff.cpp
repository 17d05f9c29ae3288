// Reverse-mode differentiation as a program transform: walk the equations backwards, let each op's
// vjp rule write equations.
#include <algorithm>

#include "base/check.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::transforms {

using namespace ir;

Program autodiff(const Program& program, Seed scaled) {
  const std::vector<Eqn> forward = program.eqns;
  Builder b(program);
  b.set_phase(Phase::backward);

  const auto loss = std::find_if(program.outputs.begin(), program.outputs.end(),
                                 [](const Output& o) { return o.name == "loss"; });
  CHECK(loss != program.outputs.end() && program.type(loss->var).shape.empty(),
        "autodiff needs a scalar output named loss");

  // Only what depends on a parameter needs a gradient.
  std::vector<bool> active(program.values.size(), false);
  for (const Input& in : program.inputs)
    active[static_cast<std::size_t>(in.var)] =
        in.kind == Input::param && is_float(program.type(in.var).dtype);
  for (const Eqn& eqn : forward)
    for (Var v : eqn.in)
      if (v != none && active[static_cast<std::size_t>(v)])
        for (Var out : eqn.out)
          if (out != none && is_float(program.type(out).dtype))
            active[static_cast<std::size_t>(out)] = true;

  std::vector<Var> grad(program.values.size(), none);
  auto constant = [&](double value, Var like) {
    b.set_scope("");
    return b.emit_named(Op::constant,
                        Constant{value, program.type(like).dtype, program.type(like).shape}, {},
                        {"d." + b.name_of(like)})[0];
  };
  grad[static_cast<std::size_t>(loss->var)] =
      scaled == Seed::input
          ? b.input(Input::scalar, "loss_scale", program.type(loss->var), {}, Role::loss_scale)
          : constant(scaled == Seed::number ? seed_number : 1.0, loss->var);

  for (auto eqn = forward.rbegin(); eqn != forward.rend(); ++eqn) {
    std::vector<Var> incoming;
    bool any = false;
    for (Var out : eqn->out) {
      incoming.push_back(out == none ? none : grad[static_cast<std::size_t>(out)]);
      any |= incoming.back() != none;
    }
    const bool needed = std::any_of(eqn->in.begin(), eqn->in.end(), [&](Var v) {
      return v != none && active[static_cast<std::size_t>(v)];
    });
    if (!any || !needed) continue;
    const OpDef& row = def(eqn->op);
    CHECK(row.vjp,
          std::string(name(eqn->op)) + " has no derivative, in `" + print(program, *eqn) + "`");
    b.set_scope(eqn->scope);
    b.set_stage(eqn->stage);
    const auto first_new = static_cast<Var>(b.program().values.size());
    const std::vector<Var> outgoing = row.vjp(b, *eqn, incoming);
    CHECK(outgoing.size() == eqn->in.size(),
          std::string(name(eqn->op)) + "'s derivative has one gradient per operand");
    for (std::size_t i = 0; i < outgoing.size(); ++i) {
      const Var x = eqn->in[i], g = outgoing[i];
      if (g == none || x == none || !active[static_cast<std::size_t>(x)]) continue;
      CHECK(b.type(g).shape == b.type(x).shape, "the gradient of " + b.name_of(x) +
                                                    " has another shape, in `" +
                                                    print(program, *eqn) + "`");
      if (g >= first_new) b.rename(g, "d." + b.name_of(x));
      Var& total = grad[static_cast<std::size_t>(x)];
      total = total == none
                  ? g
                  : b.emit_named(Op::add, Sig{b.same(g, 2)}, {total, g}, {"d." + b.name_of(x)})[0];
    }
  }
  for (const Input& in : program.inputs) {
    if (!active[static_cast<std::size_t>(in.var)]) continue;
    Var g = grad[static_cast<std::size_t>(in.var)];
    if (g == none) g = constant(0.0, in.var);  // a parameter that the loss does not see
    if (scaled == Seed::number) g = b.scale(g, 1.0 / seed_number, "unscaled." + in.name);
    b.output("grad." + in.name, g, {}, Role::gradient, in.name);
  }
  return b.take();
}

}  // namespace tessera::transforms
