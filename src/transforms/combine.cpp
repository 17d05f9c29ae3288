// Order and size of what crosses ranks. combine: small all_reduces that are ready together travel together, so that a step has one small
// reduction per axis, not one per scalar. early: what a gradient bucket needs is done as soon as the bucket is complete.
#include <algorithm>
#include <map>

#include "ir/builder.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

constexpr std::int64_t small = 16384;  // elements: beyond this a copy costs more than a message

// All reduces of one kind between the first and the first reader of any of them.
struct Bundle {
  std::vector<int> members;  // indices of equations
  int last = 0;              // the latest of them: where the bundle goes
};

std::string kind_of(const Program& p, const Eqn& e) {
  const Type& t = p.type(e.out[0]);
  std::string key = std::get<Collective>(e.attrs).axis + to_string(t.shape) + std::to_string(static_cast<int>(t.dtype)) +
                    std::to_string(static_cast<int>(e.phase));
  for (const Place& place : t.at) key += "@" + std::to_string(place.kind) + std::to_string(place.dim);
  return key;
}

std::vector<Bundle> find_bundles(const Program& p, const Uses& uses) {
  std::vector<Bundle> done;
  std::map<std::string, Bundle> open;
  const auto close = [&](std::map<std::string, Bundle>::iterator it) {
    if (it->second.members.size() > 1) done.push_back(it->second);
    return open.erase(it);
  };
  for (std::size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& e = p.eqns[i];
    // Whoever reads a member ends its bundle.
    for (auto it = open.begin(); it != open.end();) {
      const bool reads = std::any_of(it->second.members.begin(), it->second.members.end(), [&](int m) {
        const auto& readers = uses.readers[at(p.eqns[at(m)].out[0])];
        return std::find(readers.begin(), readers.end(), static_cast<int>(i)) != readers.end();
      });
      it = reads ? close(it) : std::next(it);
    }
    if (e.op != Op::all_reduce || p.type(e.out[0]).elements() > small) continue;
    Bundle& bundle = open[kind_of(p, e)];
    bundle.members.push_back(static_cast<int>(i));
    bundle.last = static_cast<int>(i);
  }
  while (!open.empty()) close(open.begin());
  return done;
}

}  // namespace

Program combine(const Program& program) {
  const Uses uses(program);
  const std::vector<Bundle> bundles = find_bundles(program, uses);
  std::map<int, const Bundle*> member;
  for (const Bundle& bundle : bundles)
    for (const int m : bundle.members) member[m] = &bundle;
  Rewriter r(program);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    const auto found = member.find(static_cast<int>(i));
    if (found == member.end()) {
      r.copy(e);
      continue;
    }
    const Bundle& bundle = *found->second;
    if (static_cast<int>(i) != bundle.last) continue;
    r.enter(e);
    std::vector<Var> in;
    std::vector<std::string> names;
    for (const int m : bundle.members) {
      in.push_back(r(program.eqns[at(m)].in[0]));
      names.push_back(program.name_of(program.eqns[at(m)].out[0]));
    }
    // Places move up by one dim.
    const auto stacked = [&](Var v, const Type& one) {
      Type& t = r.to.program().values[at(v)].type;
      t.at = one.at;
      for (Place& place : t.at)
        if (place.kind == Place::S) ++place.dim;
    };
    const std::string name = names[0] + "/all";
    const Var stack = r.to.emit_named(Op::stack, None{}, in, {name})[0];
    stacked(stack, r.to.type(in[0]));
    const Var sum = r.to.emit_named(Op::all_reduce, e.attrs, {stack}, {name})[0];
    stacked(sum, program.type(e.out[0]));
    const std::vector<Var> out = r.to.emit_named(Op::unstack, None{}, {sum}, names);
    for (std::size_t k = 0; k < out.size(); ++k) {
      const Var old = program.eqns[at(bundle.members[k])].out[0];
      r.to.program().values[at(out[k])].type.at = program.type(old).at;
      r.set(old, out[k]);
    }
  }
  return r.finish();
}

Program early(const Program& program) {
  // An equation's time: where it stands, or, if it may move, just after the last of its operands.
  using Time = std::pair<int, int>;
  std::vector<Time> made(program.values.size(), {-1, 0}), when(program.eqns.size());
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    Time& t = when[i] = {static_cast<int>(i), 0};
    const bool moves = e.phase == Phase::update &&
                       (e.op == Op::pack || e.op == Op::mark || e.op == Op::reduce_scatter || e.op == Op::all_reduce || e.op == Op::own ||
                        e.op == Op::once || e.op == Op::widen || (e.op == Op::add && program.type(e.out[0]).rank() > 0));
    if (moves) {
      t = {-1, 0};
      for (Var v : e.in) t = std::max(t, made[at(v)]);
      ++t.second;
    }
    for (Var v : e.out)
      if (v != none) made[at(v)] = t;
  }
  std::vector<std::size_t> order(program.eqns.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return when[a] < when[b]; });
  Program out = program;
  for (std::size_t i = 0; i < order.size(); ++i) out.eqns[i] = program.eqns[order[i]];
  return out;
}

}  // namespace tessera::transforms
