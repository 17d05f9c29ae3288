// Mixed precision: the heavy ops run in a low precision around f32 master weights.
// Low: contractions, attention and activations. Kept in f32: parameters, statistics, losses, sums
// of samples, parameter gradients, updates. A convolution rounds its filters' gradient once, as
// PyTorch's autocast does; a contraction gives it in f32.
#include <algorithm>
#include <map>
#include <string_view>

#include "base/check.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::transforms {
namespace {

using namespace ir;

// Which operands of an equation are cast down, by its op's row. Empty: the op stays in f32.
std::vector<bool> low_operands(const Eqn& e) {
  const std::string_view letters = def(e.op).low;
  std::vector<bool> low;
  if (letters.empty()) return low;
  for (std::size_t i = 0; i < e.in.size(); ++i)
    low.push_back(letters[std::min(i, letters.size() - 1)] == 'l');
  return low;
}

// The residual stream and its gradient: what passes through marks "residual" and is added to on the
// way. Rounding it after every block would cost more accuracy than all products together. A stream
// that no layer norm reads is normalised block by block (ResNet) and stays low, as in autocast.
std::vector<bool> residual_stream(const Program& program) {
  std::vector<bool> stream(program.values.size(), false);
  auto at = [&](Var v) -> std::vector<bool>::reference {
    return stream[static_cast<std::size_t>(v)];
  };
  for (const Eqn& e : program.eqns)
    if (e.op == Op::mark && std::get<Mark>(e.attrs).label == "residual")
      at(e.in[0]) = at(e.out[0]) = true;
  for (const Eqn& e : program.eqns) {
    if (e.op == Op::add && program.type(e.in[0]).shape == program.type(e.in[1]).shape &&
        (at(e.in[0]) || at(e.in[1])))
      at(e.out[0]) = true;
    if ((e.op == Op::slice || e.op == Op::pad) && at(e.in[0])) at(e.out[0]) = true;
  }
  for (const Eqn& e : program.eqns)
    if (e.op == Op::layer_norm && at(e.in[0])) return stream;
  return std::vector<bool>(program.values.size(), false);
}

// Ops that the residual stream passes through stay as wide as it is.
bool on_stream(const Eqn& e, const std::vector<bool>& stream) {
  auto in_stream = [&](Var v) { return v != none && stream[static_cast<std::size_t>(v)]; };
  switch (e.op) {
    case Op::mark:
    case Op::add:
    case Op::slice:
    case Op::pad:
      return in_stream(e.out[0]);
    case Op::layer_norm:
      return in_stream(e.in[0]);
    case Op::layer_norm_grad:
      return in_stream(e.in[1]);
    default:
      return false;
  }
}

}  // namespace

Program precision(const Program& program, DType low) {
  CHECK(is_low(low), "mixed precision knows bf16 and f16");
  // Values must come out in f32 that are outputs or that f32 ops alone read, and so on through the
  // cheap ops that make them.
  std::vector<bool> wide(program.values.size(), false), narrow(program.values.size(), false);
  auto keep_wide = [&](Var v) {
    return v != none && wide[static_cast<std::size_t>(v)] && !narrow[static_cast<std::size_t>(v)];
  };
  auto read_low_only = [&](Var v) {
    return narrow[static_cast<std::size_t>(v)] && !wide[static_cast<std::size_t>(v)];
  };
  const std::vector<bool> stream = residual_stream(program);
  auto stays_f32 = [&](const Eqn& e) {
    const bool cheap =
        e.op == Op::add || e.op == Op::mul || e.op == Op::scale || e.op == Op::broadcast;
    return low_operands(e).empty() || (cheap && keep_wide(e.out[0])) || on_stream(e, stream);
  };
  // A sum that is kept in f32 reads its operand as it comes: per-sample losses are never rounded on
  // the way.
  auto as_it_comes = [&](const Eqn& e) { return e.op == Op::sum && keep_wide(e.out[0]); };
  for (const Output& o : program.outputs) wide[static_cast<std::size_t>(o.var)] = true;
  for (auto e = program.eqns.rbegin(); e != program.eqns.rend(); ++e) {
    const std::vector<bool> down = low_operands(*e);
    const bool stays = stays_f32(*e);
    if (as_it_comes(*e)) continue;
    for (std::size_t i = 0; i < e->in.size(); ++i)
      if (e->in[i] != none)
        (stays || !down[i] ? wide : narrow)[static_cast<std::size_t>(e->in[i])] = true;
  }

  Rewriter r(program);
  std::map<std::pair<Var, DType>, Var> casts;
  auto as = [&](Var v, DType dtype, const Eqn& e) {
    if (v == none || !is_float(r.to.type(v).dtype) || r.to.type(v).dtype == dtype) return v;
    const auto [it, fresh] = casts.try_emplace({v, dtype}, none);
    if (fresh) {
      r.to.set_scope(e.scope);
      it->second = r.to.emit_named(Op::cast, Cast{dtype}, {v},
                                   {r.to.name_of(v) + "." + std::string(name(dtype))})[0];
    }
    return it->second;
  };
  std::vector<const Eqn*> maker(program.values.size(), nullptr);
  for (const Eqn& e : program.eqns) {
    for (Var v : e.out)
      if (v != none) maker[static_cast<std::size_t>(v)] = &e;
    r.enter(e);
    const std::vector<bool> down = low_operands(e);
    const bool stays = stays_f32(e);
    Attrs attrs = e.attrs;
    std::vector<Var> in = r(e.in);
    if (!as_it_comes(e))
      for (std::size_t i = 0; i < in.size(); ++i)
        in[i] = as(in[i], stays || !down[i] ? DType::f32 : low, e);
    if (!stays && keep_wide(e.out[0])) {
      if (Contract* c = std::get_if<Contract>(&attrs)) c->out = DType::f32;
      if (Sum* s = std::get_if<Sum>(&attrs); s && r.to.type(in[0]).dtype == low)
        s->out = DType::f32;
    }
    if (Constant* c = std::get_if<Constant>(&attrs);
        c && !keep_wide(e.out[0]) && is_float(c->dtype))
      c->dtype = low;
    // Numbers that only low ops read come out low at once; the rounding is the cast's.
    if (Normalise* n = std::get_if<Normalise>(&attrs); n && read_low_only(e.out[0])) n->to = low;
    if (Augment* a = std::get_if<Augment>(&attrs); a && read_low_only(e.out[0])) a->to = low;
    r.copy_with(e, attrs, in);
  }
  for (const Output& o : program.outputs) {
    Eqn tail =
        maker[static_cast<std::size_t>(o.var)] ? *maker[static_cast<std::size_t>(o.var)] : Eqn{};
    tail.scope.clear();
    r.enter(tail);
    r.to.set_phase(Phase::backward);
    r.set(o.var, as(r(o.var), program.type(o.var).dtype, tail));
  }
  return r.finish();
}

}  // namespace tessera::transforms
