// One rank's program: every value with the shape that this rank holds, attributes to match, no
// mesh. What a placement only says (this rank's part, zeros elsewhere) becomes slice, pad and
// constant; what crosses ranks says how large everybody's part is. Convention: the shapes that the
// local equations infer must be those that the placement promised; both are computed, and compared.
#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "ir/builder.h"
#include "ir/part.h"
#include "plan/plan.h"

namespace tessera::plan {
namespace {

using namespace ir;

class Localiser {
 public:
  Localiser(const Program& program, int rank)
      : p_(program), rank_(rank), map_(program.values.size(), none) {
    b_.program().name = program.name;
  }

  Program run() {
    for (const Input& in : p_.inputs) {
      if (!is_here(p_.type(in.var), p_.mesh, rank_)) continue;
      map_[at(in.var)] = b_.input(in, {p_.type(in.var).dtype, shape(in.var), {}});
      b_.rename(map_[at(in.var)], p_.name_of(in.var));
    }
    for (const Eqn& e : p_.eqns) {
      b_.enter(e);
      try {
        localise(e);
      } catch (Error& error) {
        throw error.in("in `" + print(p_, e) + "` for rank " + std::to_string(rank_));
      }
    }
    for (const Output& o : p_.outputs)
      if (map_[at(o.var)] != none) b_.output(o, map_[at(o.var)]);
    return b_.take();
  }

 private:
  std::vector<Range> ranges(Var v) const { return local_ranges(p_.type(v), p_.mesh, rank_); }
  Shape shape(Var v) const { return local_shape(p_.type(v), p_.mesh, rank_); }
  std::vector<Var> operands(const Eqn& e) const {
    std::vector<Var> in;
    for (Var v : e.in) in.push_back(map_[at(v)]);
    return in;
  }

  bool here(const std::vector<Var>& list) const {
    return std::all_of(list.begin(), list.end(),
                       [&](Var v) { return v == none || is_here(p_.type(v), p_.mesh, rank_); });
  }

  void localise(const Eqn& e) {
    if (e.op == Op::transfer) return transfer(e);
    if (!here(e.out) || (e.op != Op::widen && !here(e.in))) return;  // another stage's
    switch (e.op) {
      case Op::own:
        return own(e);
      case Op::once:
        return once(e);
      case Op::widen:
        if (std::get<Collective>(e.attrs).dim < 0)  // of one stage
          return define(e, here(e.in) ? map_[at(e.in[0])] : zeros(e.out[0], p_.name_of(e.out[0])));
        return define(
            e, widen(e, std::get<Collective>(e.attrs).dim, map_[at(e.in[0])], ranges(e.in[0])));
      case Op::slice:
        return slice(e);
      default:
        break;
    }
    const std::vector<Var> out = b_.emit_named(e.op, attributes(e), operands(e), names(e));
    for (std::size_t i = 0; i < out.size(); ++i)
      if (e.out[i] != none) define_as(e.out[i], out[i]);
  }

  std::vector<std::string> names(const Eqn& e) const {
    std::vector<std::string> out;
    for (Var v : e.out) out.push_back(v == none ? "_" : p_.name_of(v));
    return out;
  }
  void define_as(Var global, Var local) {
    CHECK(b_.type(local).shape == shape(global),
          p_.name_of(global) + " is " + to_string(b_.type(local).shape) +
              " here, but its placement says " + to_string(shape(global)));
    map_[at(global)] = local;
  }
  void define(const Eqn& e, Var local) { define_as(e.out[0], local); }

  void transfer(const Eqn& e) {
    Message a = std::get<Message>(e.attrs);
    if (here(e.in)) b_.emit_named(Op::send, a, operands(e), {"_"});
    if (!here(e.out)) return;
    a.dtype = p_.type(e.out[0]).dtype;
    a.shape = shape(e.out[0]);
    define(e, b_.emit_named(Op::recv, a, {}, names(e))[0]);
  }

  void own(const Eqn& e) {
    const auto dim = at(std::get<Collective>(e.attrs).dim);
    const Range have = ranges(e.in[0])[dim], want = ranges(e.out[0])[dim];
    define(e, b_.emit_named(Op::slice,
                            Slice{static_cast<int>(dim), want.begin - have.begin, want.size},
                            operands(e), names(e))[0]);
  }

  bool first_on(const std::string& axis) const {
    return p_.mesh.coordinates(rank_)[at(p_.mesh.find(axis))] == 0;
  }
  Var zeros(Var like, const std::string& name) {
    return b_.emit_named(Op::constant, Constant{0, p_.type(like).dtype, shape(like)}, {},
                         {name})[0];
  }
  void once(const Eqn& e) {
    define(e, first_on(std::get<Collective>(e.attrs).axis) ? map_[at(e.in[0])]
                                                           : zeros(e.out[0], p_.name_of(e.out[0])));
  }

  // `part` covers `have` of a dim of the result: zeros around it.
  Var widen(const Eqn& e, int dim, Var part, const std::vector<Range>& have) {
    const Range want = ranges(e.out[0])[at(dim)], from = have[at(dim)];
    if (from.size == 0) return zeros(e.out[0], p_.name_of(e.out[0]));
    const Pad pad{dim, from.begin - want.begin, want.begin + want.size - from.begin - from.size};
    return pad.before + pad.after == 0 ? part : b_.emit_named(Op::pad, pad, {part}, names(e))[0];
  }

  // A slice of a dim that is cut: what lies in this rank's part, among zeros.
  void slice(const Eqn& e) {
    Slice a = std::get<Slice>(e.attrs);
    std::vector<Range> have = ranges(e.in[0]);
    const Range part = have[at(a.dim)];
    const std::int64_t begin = std::clamp(a.start, part.begin, part.begin + part.size),
                       end = std::clamp(a.start + a.size, part.begin, part.begin + part.size);
    const bool cut = part.size != p_.type(e.in[0]).shape[at(a.dim)];
    have[at(a.dim)] = {begin - a.start, end - begin};
    a = {a.dim, begin - part.begin, end - begin};
    if (!cut) return define(e, b_.emit_named(Op::slice, a, operands(e), names(e))[0]);
    const Var inside =
        end > begin ? b_.emit_named(Op::slice, a, operands(e), {p_.name_of(e.out[0]) + "/part"})[0]
                    : none;
    define(e, widen(e, a.dim, inside, have));
  }

  Attrs attributes(const Eqn& e) const {
    Attrs attrs = e.attrs;
    if (const auto local = def(e.op).local) local(attrs, Part{p_, e, rank_});
    return attrs;
  }

  const Program& p_;
  const int rank_;
  Builder b_;
  std::vector<Var> map_;
};

}  // namespace

Program localise(const Program& program, int rank) {
  if (program.mesh.axes.empty()) {
    Program same = program;
    for (Value& value : same.values) value.type.at.clear();
    return same;
  }
  return Localiser(program, rank).run();
}

}  // namespace tessera::plan
