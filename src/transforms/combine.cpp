// Order and size of what crosses ranks. combine: small messages that are ready together travel
// together, so that a step has one small reduction per axis, not one per scalar. early: what a
// gradient bucket needs is done as soon as the bucket is complete.
#include <algorithm>
#include <map>
#include <set>

#include "base/index.h"
#include "ir/builder.h"
#include "transforms/transforms.h"
#include "transforms/uses.h"

namespace tessera::transforms {
namespace {

using namespace ir;

constexpr std::int64_t small = 16384;  // elements: beyond this a copy costs more than a message

// Messages of one kind that can be sent just before the first reader of any of them.
struct Bundle {
  std::vector<int> members;  // indices of equations
  int reader = -1;           // none yet
};

std::string kind_of(const Program& p, const Eqn& e) {
  const Type& t = p.type(e.out[0]);
  std::string key = std::string(name(e.op)) + std::get<Collective>(e.attrs).axis +
                    to_string(t.shape) + std::to_string(static_cast<int>(t.dtype)) +
                    std::to_string(static_cast<int>(e.phase));
  for (const Place& place : t.at)
    key += "@" + std::to_string(place.kind) + std::to_string(place.dim);
  return key;
}

// Small sums, and statistics of local batch norms.
bool travels_together(const Program& p, const Uses& uses, const Eqn& e) {
  if (e.op == Op::all_reduce) return p.type(e.out[0]).elements() <= small;
  const int maker = e.op == Op::all_gather ? uses.made_at(e.in[0]) : -1;
  return maker >= 0 && p.eqns[at(maker)].op == Op::moments;
}

// In the order of their first members.
std::vector<Bundle> find_bundles(const Program& p, const Uses& uses) {
  std::vector<Bundle> all;
  std::map<std::string, std::vector<std::size_t>> by_kind;
  std::vector<int> ready(
      p.values.size(), -1);  // before which equation a value can be there at the earliest, less one
  std::vector<std::vector<std::size_t>> read_by(p.eqns.size());
  for (std::size_t i = 0; i < p.eqns.size(); ++i) {
    const Eqn& e = p.eqns[i];
    const int now = static_cast<int>(i);
    for (const std::size_t b : read_by[i])
      if (all[b].reader < 0) {
        all[b].reader = now;
        for (const int m : all[b].members) ready[at(p.eqns[at(m)].out[0])] = now;
      }
    for (Var v : e.out)
      if (v != none) ready[at(v)] = now;
    if (!travels_together(p, uses, e)) continue;
    // Late ones join whoever still waits for a reader, or had one only after they could have been
    // there.
    std::vector<std::size_t>& list = by_kind[kind_of(p, e)];
    const auto fits = [&](std::size_t b) {
      return all[b].reader < 0 || all[b].reader > ready[at(e.in[0])];
    };
    auto found = std::find_if(list.begin(), list.end(), fits);
    if (found == list.end()) {
      all.emplace_back();
      list.push_back(all.size() - 1);
      found = std::prev(list.end());
    }
    all[*found].members.push_back(now);
    if (all[*found].reader >= 0) ready[at(e.out[0])] = all[*found].reader;
    for (const int reader : uses.readers[at(e.out[0])]) read_by[at(reader)].push_back(*found);
  }
  return all;
}

void send_together(Rewriter& r, const Program& program, const Bundle& bundle) {
  const Eqn& e = program.eqns[at(bundle.members[0])];
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
  Collective attrs = std::get<Collective>(e.attrs);
  if (attrs.dim >= 0) ++attrs.dim;
  const Var sum = r.to.emit_named(e.op, attrs, {stack}, {name})[0];
  stacked(sum, program.type(e.out[0]));
  const std::vector<Var> out = r.to.emit_named(Op::unstack, None{}, {sum}, names);
  for (std::size_t k = 0; k < out.size(); ++k) {
    const Var old = program.eqns[at(bundle.members[k])].out[0];
    r.to.program().values[at(out[k])].type.at = program.type(old).at;
    r.set(old, out[k]);
  }
}

}  // namespace

Program combine(const Program& program) {
  const Uses uses(program);
  const std::vector<Bundle> bundles = find_bundles(program, uses);
  std::set<int> members;
  std::map<int, std::vector<const Bundle*>> before;  // equation -> what is done just before it
  for (const Bundle& bundle : bundles) {
    if (bundle.members.size() < 2) continue;
    members.insert(bundle.members.begin(), bundle.members.end());
    before[bundle.reader >= 0 ? bundle.reader : bundle.members.back()].push_back(&bundle);
  }
  Rewriter r(program);
  for (int i = 0; i < static_cast<int>(program.eqns.size()); ++i) {
    if (const auto found = before.find(i); found != before.end())
      for (const Bundle* bundle : found->second) send_together(r, program, *bundle);
    if (!members.contains(i)) r.copy(program.eqns[at(i)]);
  }
  return r.finish();
}

// A value that another stage waits for is sent first: per equation the transfer, or -1, that its
// last steps lead to.
static std::vector<int> sent_after(const Program& program) {
  constexpr int last_steps = 3;
  const Uses uses(program);
  std::vector<int> out(program.eqns.size(), -1);
  for (std::size_t j = 0; j < program.eqns.size(); ++j) {
    if (program.eqns[j].op != Op::transfer) continue;
    const int maker = uses.made_at(program.eqns[j].in[0]);
    out[at(maker)] = static_cast<int>(j);
    for (Var v : program.eqns[at(maker)].in)
      if (const int before = uses.made_at(v); before >= maker - last_steps && before >= 0)
        out[at(before)] = static_cast<int>(j);
  }
  return out;
}

Program hoist_reductions(const Program& program) {
  // An equation's time: where it stands, or, if it may move, just after the last of its operands.
  using Time = std::pair<int, int>;
  std::vector<Time> made(program.values.size(), {-1, 0}), when(program.eqns.size());
  const std::vector<int> sent = sent_after(program);
  const Input* unscale = program.input(Role::unscale, "");  // by which gradients are multiplied
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    Time& t = when[i] = {static_cast<int>(i), 0};
    Time ready = {std::max(t.first, sent[i]), 0};
    const bool low_rank = e.op == Op::contract || e.op == Op::orthogonalise;
    const bool bucket = (e.op == Op::add || e.op == Op::scale ||
                         (e.op == Op::mul && unscale && e.in[1] == unscale->var)) &&
                        program.type(e.out[0]).rank() > 0;
    if (e.phase == Phase::update &&
        (e.op == Op::pack || e.op == Op::alarm || e.op == Op::view || e.op == Op::mark ||
         (ir::moves(e.attrs) && e.op != Op::all_to_all) || low_rank || bucket)) {
      t = {-1, 0};
      for (Var v : e.in) t = std::max(t, made[at(v)]);
      ++t.second;
      ready = t;
    }
    for (Var v : e.out)
      if (v != none) made[at(v)] = ready;
  }
  std::vector<std::size_t> order(program.eqns.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return when[a] < when[b]; });
  Program out = program;
  for (std::size_t i = 0; i < order.size(); ++i) out.eqns[i] = program.eqns[order[i]];
  return out;
}

}  // namespace tessera::transforms
