// Identities, equal equations of one phase, dead code. Never changes a bit of any result.
#include <algorithm>
#include <numeric>
#include <unordered_set>

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

// The work of an equation, without the names of its results.
struct Work {
  const Program* program;
  const Eqn* eqn;
  std::vector<Var> in;  // each the first value that is the same

  std::size_t hash() const {
    std::size_t h = static_cast<std::size_t>(eqn->op);
    const auto mix = [&](auto number) {
      h = (h ^ static_cast<std::size_t>(number)) * 0x9e3779b97f4a7c15u;
      h ^= h >> 32;
    };
    mix(eqn->phase);
    mix(eqn->stage);
    for (const Var v : in) mix(v);
    // Attributes are mixed in only where they tell apart the many equations that read one value.
    if (const View* view = std::get_if<View>(&eqn->attrs)) mix(view->offset);
    if (const Slice* slice = std::get_if<Slice>(&eqn->attrs)) mix(slice->start);
    return h;
  }
  // Numbers of attributes are the same when their texts are: 0 and -0 are not.
  bool operator==(const Work& other) const {
    return eqn->op == other.eqn->op && eqn->phase == other.eqn->phase &&
           eqn->stage == other.eqn->stage && in == other.in && eqn->attrs == other.eqn->attrs &&
           places() == other.places() && print(eqn->attrs) == print(other.eqn->attrs);
  }

 private:
  std::vector<Place> places() const {
    std::vector<Place> all;
    for (const Var v : eqn->out)
      if (v != none) all.insert(all.end(), program->type(v).at.begin(), program->type(v).at.end());
    return all;
  }
};
struct WorkHash {
  std::size_t operator()(const Work& work) const { return work.hash(); }
};

// The findings of a pass over the equations: which values are others again, which equations make
// nothing else, and reshapes of reshapes.
struct Repeated {
  std::vector<Var> same;    // by value: the first one that is the same
  std::vector<bool> gone;   // by equation
  std::vector<Var> source;  // by equation: of what a reshape reads another shape, or none
  bool any = false;
};

Repeated find_repeated(const Program& program) {
  const Uses uses(program);
  Repeated out{std::vector<Var>(program.values.size()), std::vector<bool>(program.eqns.size()),
               std::vector<Var>(program.eqns.size(), none)};
  std::iota(out.same.begin(), out.same.end(), 0);
  std::unordered_set<Work, WorkHash> seen;
  seen.reserve(program.eqns.size());
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    if (const Var x = repeats(program, uses, e); x != none) {
      out.same[at(e.out[0])] = out.same[at(x)];
      out.any = out.gone[i] = true;
      continue;
    }
    Work work{&program, &e, e.in};
    for (Var& v : work.in)
      if (v != none) v = out.same[at(v)];
    if (e.op == Op::reshape)
      if (const Eqn* inner = uses.made_by(e.in[0], Op::reshape)) {
        work.in[0] = out.source[i] = out.same[at(inner->in[0])];
        out.any = true;
      }
    // A value that crosses ranks or rests away is brought where it is needed: a copy kept in
    // between is what sharding and offload avoid.
    if (e.op == Op::mark || e.op == Op::copy || moves(e.attrs)) continue;
    const auto [first, fresh] = seen.insert(std::move(work));
    if (fresh) continue;
    bool covered = true;
    for (std::size_t k = 0; k < e.out.size(); ++k)
      covered &= e.out[k] == none || first->eqn->out[k] != none;
    if (!covered) continue;
    for (std::size_t k = 0; k < e.out.size(); ++k)
      if (e.out[k] != none) out.same[at(e.out[k])] = out.same[at(first->eqn->out[k])];
    out.any = out.gone[i] = true;
  }
  return out;
}

Program without(const Program& program, const Repeated& repeated) {
  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    if (repeated.gone[i]) {
      for (const Var v : e.out)
        if (v != none) r.set(v, r(repeated.same[at(v)]));
      continue;
    }
    std::vector<Var> in = r(e.in);
    if (repeated.source[i] != none) in[0] = r(repeated.source[i]);
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
  Program now = remove_dead(without(program, find_repeated(program)));
  // An identity can uncover another: until nothing shrinks any more.
  for (std::size_t before = program.eqns.size(); now.eqns.size() < before;) {
    before = now.eqns.size();
    if (const Repeated repeated = find_repeated(now); repeated.any)
      now = remove_dead(without(now, repeated));
  }
  return now;
}

}  // namespace tessera::transforms
