// Identities, equal equations of one phase, dead code. Never changes a bit of any result.
#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "ir/builder.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

bool is_constant(const Uses& uses, Var v, double value) {
  const Eqn* eqn = uses.made_by(v, Op::constant);
  return eqn && std::get<Constant>(eqn->attrs).value == value;
}

// The operand that an equation merely repeats, or none.
Var repeats(const Program& p, const Uses& uses, const Eqn& e) {
  const Var x = e.in.empty() ? none : e.in[0];
  if (e.out.size() != 1 || x == none) return none;
  const bool same_type = e.out[0] != none && p.type(e.out[0]) == p.type(x);
  switch (e.op) {
    case Op::scale:
      return std::get<Scale>(e.attrs).factor == 1.0 ? x : none;
    case Op::mul:
      return is_constant(uses, e.in[1], 1.0) ? x : none;
    case Op::dropout:
      return std::get<Dropout>(e.attrs).rate == 0.0 ? x : none;
    case Op::transpose: {
      std::vector<int> identity(std::get<Transpose>(e.attrs).perm.size());
      std::iota(identity.begin(), identity.end(), 0);
      return std::get<Transpose>(e.attrs).perm == identity ? x : none;
    }
    case Op::cast:
      if (same_type) return x;
      // bf16 -> f32 -> bf16 loses nothing.
      if (const Eqn* inner = uses.made_by(x, Op::cast);
          inner && p.type(inner->in[0]) == p.type(e.out[0]) &&
          size_of(p.type(x).dtype) > size_of(p.type(e.out[0]).dtype) &&
          (is_float(p.type(x).dtype) || !is_float(p.type(e.out[0]).dtype)))
        return inner->in[0];
      return none;
    case Op::reshape:
    case Op::slice:
    case Op::pad:
    case Op::broadcast:
      return same_type ? x : none;
    case Op::concat:
      return e.in.size() == 1 ? x : none;
    default:
      return none;
  }
}

Program forward_pass(const Program& program) {
  const Uses uses(program);
  Rewriter r(program);
  std::unordered_map<std::string, const Eqn*> seen;
  for (const Eqn& e : program.eqns) {
    if (const Var x = repeats(program, uses, e); x != none) {
      r.set(e.out[0], r(x));
      continue;
    }
    std::vector<Var> in = r(e.in);
    if (e.op == Op::reshape)
      if (const Eqn* inner = uses.made_by(e.in[0], Op::reshape)) in[0] = r(inner->in[0]);
    std::string key = std::to_string(static_cast<int>(e.op)) + "|" +
                      std::to_string(static_cast<int>(e.phase)) + "|" + std::to_string(e.stage) +
                      print(e.attrs);
    for (Var v : in) key += " " + std::to_string(v);
    for (Var v : e.out)
      for (const Place& place : v == none ? Places{} : program.type(v).at)
        key += "@" + std::to_string(place.kind) + std::to_string(place.dim);
    // What crosses ranks or rests away is brought where it is needed: a copy kept in between is
    // what sharding and offload avoid.
    if (e.op != Op::mark && e.op != Op::copy && !moves(e.attrs)) {
      const auto [it, fresh] = seen.emplace(key, &e);
      if (!fresh) {
        bool covered = true;
        for (std::size_t i = 0; i < e.out.size(); ++i)
          covered &= e.out[i] == none || it->second->out[i] != none;
        if (covered) {
          for (std::size_t i = 0; i < e.out.size(); ++i)
            if (e.out[i] != none) r.set(e.out[i], r(it->second->out[i]));
          continue;
        }
      }
    }
    r.copy_on(e, std::move(in));
  }
  return r.finish();
}

Program remove_dead(Program program) {
  std::vector<bool> live(program.values.size(), false), keep(program.eqns.size(), false);
  for (const Output& o : program.outputs) live[at(o.var)] = true;
  for (std::size_t i = program.eqns.size(); i-- > 0;) {
    const Eqn& e = program.eqns[i];
    for (Var v : e.out) keep[i] = keep[i] || (v != none && live[at(v)]);
    if (keep[i])
      for (Var v : e.in)
        if (v != none) live[at(v)] = true;
  }
  // Parameters and state stay inputs even when nothing reads them: a run binds them by name.
  const auto stays = [&](const Input& in) {
    return in.kind == Input::param || in.kind == Input::state || live[at(in.var)];
  };
  const bool all_live = std::find(keep.begin(), keep.end(), false) == keep.end() &&
                        std::all_of(program.inputs.begin(), program.inputs.end(), stays) &&
                        std::all_of(program.eqns.begin(), program.eqns.end(), [&](const Eqn& e) {
                          return std::all_of(e.out.begin(), e.out.end(),
                                             [&](Var v) { return v == none || live[at(v)]; });
                        });
  if (all_live) return program;
  Rewriter r(program, false);
  for (const Input& in : program.inputs)
    if (stays(in)) r.copy_input(in);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    if (!keep[i]) continue;
    Eqn e = program.eqns[i];
    for (Var& v : e.out)
      if (v != none && !live[at(v)]) v = none;
    r.copy(e);
  }
  return r.finish();
}

}  // namespace

Program simplify(const Program& program) {
  Program now = remove_dead(forward_pass(program));
  // An identity can uncover another: until nothing shrinks any more.
  for (std::size_t before = program.eqns.size(); now.eqns.size() < before;) {
    before = now.eqns.size();
    now = remove_dead(forward_pass(now));
  }
  return now;
}

}  // namespace tessera::transforms
