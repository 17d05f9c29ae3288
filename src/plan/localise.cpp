// One rank's program: every value with the shape that this rank holds, attributes to match, no
// mesh. What a placement only says (this rank's part, zeros elsewhere) becomes slice, pad and
// constant; what crosses ranks says how large everybody's part is. Convention: the shapes that the
// local equations infer must be those that the placement promised; both are computed, and compared.
#include <algorithm>

#include "base/check.h"
#include "base/index.h"
#include "ir/builder.h"
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

  // Extents along `dim` of every rank that shares this one's place on all other axes.
  Shape parts(Var v, const std::string& axis, int dim) const {
    Shape out;
    for (const int rank : p_.mesh.group(rank_, p_.mesh.find(axis)))
      out.push_back(local_shape(p_.type(v), p_.mesh, rank)[at(dim)]);
    return out;
  }

  Attrs attributes(const Eqn& e) const {
    Attrs attrs = e.attrs;
    const auto rows_of = [&](Var bucket) {
      return p_.type(bucket).rank() == 2 ? shape(bucket)[0] : 1;
    };
    std::visit(
        [&]<class A>(A& a) {
          if constexpr (std::is_same_v<A, Reshape> || std::is_same_v<A, Broadcast> ||
                        std::is_same_v<A, Constant>) {
            a.shape = shape(e.out[0]);
          } else if constexpr (std::is_same_v<A, View>) {
            a.shape = shape(e.out[0]);
            a.parts = rows_of(e.in[0]);
            if (a.parts == 1) a.dim = -1;
          } else if constexpr (std::is_same_v<A, Pack>) {
            a.parts = rows_of(e.out[0]);
          } else if constexpr (std::is_same_v<A, Dropout>) {
            localise_dropout(a, e.out[0]);
          } else if constexpr (std::is_same_v<A, BatchNorm>) {
            localise_norm(a, e);
          } else if constexpr (std::is_same_v<A, Segments>) {
            const Range range = ranges(e.in[0]).back();
            for (std::size_t i = 0; i < a.offsets.size(); ++i) {
              const std::int64_t begin = std::clamp(a.offsets[i] - range.begin, std::int64_t{0},
                                                    range.size),
                                 end = std::clamp(a.offsets[i] + a.sizes[i] - range.begin,
                                                  std::int64_t{0}, range.size);
              a.offsets[i] = begin, a.sizes[i] = end - begin;
            }
          } else if constexpr (std::is_same_v<A, Collective>) {
            a.index = p_.mesh.coordinates(rank_)[at(p_.mesh.find(a.axis))];
            const Op op = e.op;
            if (op == Op::all_gather) a.parts = parts(e.in[0], a.axis, a.dim);
            if (op == Op::reduce_scatter || op == Op::all_to_all)
              a.parts = parts(e.out[0], a.axis, a.dim);
            if (op == Op::all_to_all) a.from_parts = parts(e.in[0], a.axis, a.from);
          } else if constexpr (std::is_same_v<A, Compressed>) {
            localise_compressed(a, e);
          }
        },
        attrs);
    return attrs;
  }

  // The elements that each rank of the group adds up: its part of the result, or an even share
  // where all get everything.
  void localise_compressed(Compressed& a, const Eqn& e) const {
    CHECK(e.out[0] != none, "nobody reads what a compressed reduction adds up");
    const std::vector<int> group = p_.mesh.group(rank_, p_.mesh.find(a.axis));
    a.index = p_.mesh.coordinates(rank_)[at(p_.mesh.find(a.axis))];
    for (int i = 0; i < static_cast<int>(group.size()); ++i)
      a.parts.push_back(
          a.dim >= 0 ? elements(local_shape(p_.type(e.out[0]), p_.mesh, group[at(i)]))
                     : split(elements(shape(e.in[0])), static_cast<int>(group.size()), i).size);
  }

  // Drawn by position in the global batch and place in the whole sample.
  void localise_dropout(Dropout& a, Var v) const {
    const std::vector<Range> part = ranges(v);
    a.base += part[0].begin;
    bool whole = true;
    for (std::size_t i = 1; i < part.size(); ++i) whole &= part[i].size == p_.type(v).shape[i];
    if (whole) return;
    a.whole.assign(p_.type(v).shape.begin() + 1, p_.type(v).shape.end());
    a.start.clear();
    for (std::size_t i = 1; i < part.size(); ++i) a.start.push_back(part[i].begin);
  }

  // With a statistics group per rank this rank has one, over its own samples.
  void localise_norm(BatchNorm& a, const Eqn& e) const {
    if (a.groups == 1 || e.op == Op::running_stats) return;
    const Var sums = e.op == Op::moments      ? e.out[e.out[0] == none ? 1 : 0]
                     : e.op == Op::batch_norm ? e.in[1]
                                              : e.in[2];
    const Range mine = ranges(sums)[0], samples = ranges(e.in[0])[0];
    if (mine.size == a.groups) return;
    // The samples of this rank's groups must be its samples, group by group.
    for (int g = 0; g < mine.size; ++g) {
      const Range whole = split(p_.type(e.in[0]).shape[0], static_cast<int>(a.groups),
                                static_cast<int>(mine.begin) + g),
                  here = split(samples.size, static_cast<int>(mine.size), g);
      CHECK(whole.begin == samples.begin + here.begin && whole.size == here.size,
            "statistics groups are not cut where the batch is");
    }
    a.groups = mine.size;
    if (a.samples > 0) a.samples = samples.size;
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
