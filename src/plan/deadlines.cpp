// When messages must have arrived. The order of the equations is the schedule
// (transforms/combine.cpp, prefetch.cpp, pipeline.cpp), only receives move; this says how long a
// message may be under way. Convention: only messages that need no putting in order travel beside
// other work.
#include <algorithm>
#include <tuple>

#include "base/index.h"
#include "plan/plan.h"

namespace tessera::plan {
namespace {

using namespace ir;

// The bytes of every rank's part lie together, so that they leave and arrive as they are.
bool flat(const Program& p, const Eqn& e) {
  if (e.op == Op::all_reduce || is_point_to_point(e.op)) return true;
  if (e.op != Op::all_gather && e.op != Op::reduce_scatter) return false;
  return own_part(std::get<Collective>(e.attrs),
                  p.type(e.op == Op::all_gather ? e.out[0] : e.in[0])) >= 0;
}

}  // namespace

// Never past another receive: what one rank sends to another arrives in the order in which it is
// asked for.
Program receive_early(const Program& p) {
  const auto turn = [](const Eqn& e) {
    return std::tuple(e.stage, e.micro, e.phase == Phase::forward, e.phase == Phase::weight);
  };
  std::vector<std::vector<Eqn>>
      turns;                 // the last one is open; receives in front of what they stood behind
  std::vector<Eqn> waiting;  // receives since the last equation of another kind
  const Eqn* last = nullptr;
  for (const Eqn& e : p.eqns) {
    if (e.op == Op::recv) {
      if (turns.empty()) turns.emplace_back();
      waiting.push_back(e);
      continue;
    }
    // Work of the update that is done in between belongs to the turn it follows.
    const bool same = last && (e.phase == Phase::update || turn(*last) == turn(e));
    if (!same || !waiting.empty()) {
      if (!turns.empty()) turns.back().insert(turns.back().begin(), waiting.begin(), waiting.end());
      waiting.clear();
      turns.emplace_back();
    }
    turns.back().push_back(e);
    if (!last || e.phase != Phase::update) last = &e;
  }
  Program out = p;
  out.eqns.clear();
  for (const std::vector<Eqn>& eqns : turns)
    out.eqns.insert(out.eqns.end(), eqns.begin(), eqns.end());
  out.eqns.insert(out.eqns.end(), waiting.begin(), waiting.end());
  return out;
}

// Copies of what rests away from the device, and copies that go back there.
static std::vector<bool> moved(const Program& p) {
  std::vector<bool> out(p.values.size());
  for (const Input& in : p.inputs)
    if (in.home != Home::device) out[at(in.var)] = true;
  for (const Output& o : p.outputs)
    if (!o.updates.empty() && p.input(o.updates)->home != Home::device) out[at(o.var)] = true;
  return out;
}

std::vector<int> deadlines(const Program& p, bool overlap) {
  const int end = static_cast<int>(p.eqns.size());
  const std::vector<bool> away = moved(p);
  int back = -1;  // the last copy that went back to where it rests
  std::vector<int> out(p.eqns.size());
  int cut = -1;   // the last gradient that was sent to be cut into parts
  int sent = -1;  // the last message to another stage
  std::vector<int> from(
      p.values.size(),
      -1);  // the message under way that a value is made of, itself or through views
  for (int i = 0; i < end; ++i) {
    const Eqn& e = p.eqns[at(i)];
    out[at(i)] = i;
    if (!overlap) continue;
    const OpDef& row = def(e.op);
    const std::vector<Type> types = p.types(e.in);
    for (std::size_t k = 0; k < e.in.size(); ++k) {
      const int message = e.in[k] == none ? -1 : from[at(e.in[k])];
      if (message < 0 || out[at(message)] < end)
        continue;  // nothing under way, or somebody waited for it before
      bool only_views = row.view && k == 0;
      for (std::size_t r = 0; r < e.out.size() && only_views; ++r)
        only_views = e.out[r] == none || row.view(e.attrs, types, static_cast<int>(r)) >= 0;
      if (!only_views) {
        out[at(message)] = i;
        continue;
      }
      for (Var v : e.out)
        if (v != none) from[at(v)] = message;
    }
    if (e.op == Op::copy && e.out[0] != none) {
      if (away[at(e.in[0])]) {
        out[at(i)] = end;
        from[at(e.out[0])] = i;
      } else if (away[at(e.out[0])]) {  // one is on its way while the next is made, not all
        if (back >= 0) out[at(back)] = i;
        out[at(i)] = end;
        back = i;
      }
    }
    if (!crosses_ranks(e.op) || !flat(p, e)) continue;
    out[at(i)] = end;
    if (e.op == Op::send) {  // what was sent is given back a turn later
      if (sent >= 0) out[at(sent)] = i;
      sent = i;
      continue;
    }
    from[at(e.out[0])] = i;
    // Gradients are cut to save memory: one whole bucket is under way while the next one is made,
    // not all of them.
    if (e.op != Op::reduce_scatter || e.phase != Phase::update) continue;
    if (cut >= 0) out[at(cut)] = std::min(out[at(cut)], i);
    cut = i;
  }
  return out;
}

}  // namespace tessera::plan
