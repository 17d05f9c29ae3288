// Program -> Plan for one rank.
#include <algorithm>

#include "base/check.h"
#include "plan/plan.h"

namespace tessera::plan {
namespace {

using namespace ir;

std::size_t at(Var v) { return static_cast<std::size_t>(v); }

// Which values are gradients on their way to the update: buckets, and what they become when ranks and micro-batches are added up.
std::vector<bool> gradients_of(const Program& p) {
  std::vector<bool> out(p.values.size());
  for (const Eqn& e : p.eqns) {
    if (e.phase != Phase::update || e.out[0] == none || p.type(e.out[0]).rank() == 0) continue;
    const bool hands_on = e.op == Op::mark || e.op == Op::all_reduce || e.op == Op::reduce_scatter || e.op == Op::compressed_reduce ||
                          e.op == Op::add || e.op == Op::mul || e.op == Op::slice;
    out[at(e.out[0])] = e.op == Op::pack || (hands_on && out[at(e.in[0])]);
  }
  for (const Output& o : p.outputs)
    if (o.name.starts_with("grad.")) out[at(o.var)] = true;
  return out;
}

bool cuts(const Eqn& e) {
  const Compressed* compressed = std::get_if<Compressed>(&e.attrs);
  return e.op == Op::reduce_scatter || (compressed && compressed->dim >= 0);
}

// The most of them at once.
Gradients count_gradients(const Program& p, const Assignment& a, const std::vector<bool>& gradient) {
  std::vector<bool> to_cut(a.intervals.size());
  for (const Eqn& e : p.eqns)
    if (cuts(e) && e.phase == Phase::update && a.values[at(e.in[0])].interval >= 0)
      to_cut[static_cast<std::size_t>(a.values[at(e.in[0])].interval)] = true;
  const auto most = [&](bool cut) {
    std::vector<std::int64_t> change(p.eqns.size() + 3);  // at each equation, from -1 to the end
    for (std::size_t i = 0; i < a.owner.size(); ++i) {
      if (!gradient[at(a.owner[i])] || to_cut[i] != cut) continue;
      change[static_cast<std::size_t>(a.intervals[i].first + 1)] += a.intervals[i].bytes;
      change[static_cast<std::size_t>(a.intervals[i].last + 2)] -= a.intervals[i].bytes;
    }
    std::int64_t now = 0, out = 0;
    for (const std::int64_t c : change) out = std::max(out, now += c);
    return out;
  };
  return {most(false), most(true)};
}

// What is live in the arena at the step where the most is, by kind.
Memory by_kind(const Plan& plan, const Assignment& a, const Layout& layout, std::size_t first_workspace,
               const std::vector<bool>& gradients) {
  Memory m;
  for (const Buffer& b : plan.persistent) (b.kind == Input::param ? m.weights : m.optimizer) += b.bytes;
  for (std::size_t i = 0; i < a.intervals.size(); ++i) {
    const Interval& v = a.intervals[i];
    if (v.first > layout.peak_step || v.last < layout.peak_step) continue;
    if (i >= first_workspace)
      m.workspace += v.bytes;
    else if (gradients[at(a.owner[i])])
      m.gradients += v.bytes;
    else
      m.activations += v.bytes;
  }
  // What the layout could not close up belongs to the activations too: the sum is the arena.
  m.activations += layout.bytes - layout.live;
  return m;
}

}  // namespace

std::int64_t Plan::persistent_bytes() const {
  std::int64_t n = 0;
  for (const Buffer& b : persistent) n += b.bytes;
  return n;
}
const Binding* Plan::input(std::string_view name) const {
  const auto it = std::find_if(inputs.begin(), inputs.end(), [&](const Binding& b) { return b.name == name; });
  return it == inputs.end() ? nullptr : &*it;
}
const Binding* Plan::output(std::string_view name) const {
  const auto it = std::find_if(outputs.begin(), outputs.end(), [&](const Binding& b) { return b.name == name; });
  return it == outputs.end() ? nullptr : &*it;
}

Plan lower(const Program& global, int rank, const WorkspaceRule& workspace) {
  Plan plan;
  plan.program = localise(global, rank);
  plan.rank = rank;
  const Program& program = plan.program;
  Assignment a = assign(program);
  const std::size_t first_workspace = a.intervals.size();
  std::vector<int> workspace_of(program.eqns.size(), -1);

  // Views do nothing, and neither does a stack whose operands already lie in it.
  auto is_step = [&](const Eqn& e) {
    if (const OpDef& row = def(e.op); row.view) {
      const std::vector<Type> in = program.types(e.in);
      for (std::size_t r = 0; r < e.out.size(); ++r)
        if (e.out[r] != none && row.view(e.attrs, in, static_cast<int>(r)) < 0) return true;
      return false;
    }
    if (e.op != Op::stack) return true;
    const Storage& whole = a.values[at(e.out[0])];
    for (std::size_t k = 0; k < e.in.size(); ++k) {
      const Storage& s = a.values[at(e.in[k])];
      if (s.base != whole.base || s.interval != whole.interval ||
          s.offset != whole.offset + static_cast<std::int64_t>(k) * program.type(e.in[k]).bytes())
        return true;
    }
    return false;
  };
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    const std::int64_t bytes = is_step(e) ? workspace(e.op, e.attrs, program.types(e.in), program.types(e.out)) : 0;
    if (bytes == 0) continue;
    workspace_of[i] = static_cast<int>(a.intervals.size());
    a.intervals.push_back({aligned(bytes), static_cast<int>(i), static_cast<int>(i)});
  }
  const Layout layout = lay_out(a.intervals);
  plan.arena_bytes = layout.bytes;
  plan.live_bytes = layout.live;
  plan.persistent = a.persistent;

  auto slot = [&](Var v) {
    if (v == none || a.values[at(v)].base < 0) return Slot{};
    const Storage& s = a.values[at(v)];
    return Slot{s.base, s.offset + (s.interval < 0 ? 0 : layout.offsets[static_cast<std::size_t>(s.interval)]), program.type(v)};
  };
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    if (e.phase != Phase::recompute) plan.cost.flops += cost(e.op, e.attrs, program.types(e.in), program.types(e.out)).flops;
    plan.cost.bytes += cost(e.op, e.attrs, program.types(e.in), program.types(e.out)).bytes;
    if (!is_step(e)) continue;
    Step step{e.op, e.attrs, {}, {}, {}, 0, {}, static_cast<int>(i)};
    for (Var v : e.in) step.in.push_back(slot(v));
    for (Var v : e.out) step.out.push_back(slot(v));
    if (workspace_of[i] >= 0) {
      const auto w = static_cast<std::size_t>(workspace_of[i]);
      step.workspace = {0, layout.offsets[w], {DType::u8, {a.intervals[w].bytes}, {}}};
    }
    plan.steps.push_back(std::move(step));
  }
  for (const Input& in : program.inputs) plan.inputs.push_back({in.name, in.kind, slot(in.var)});
  for (const Output& o : program.outputs) {
    Slot from = slot(o.var);
    if (!o.updates.empty()) {
      const Slot to = slot(program.input(o.updates)->var);
      if (to.base != from.base || to.offset != from.offset) plan.steps.push_back({Op::mark, Mark{"donate"}, {from}, {to}, {}, 0, {}, -1});
      from = to;
    }
    plan.outputs.push_back({o.name, Input::batch, from});
  }
  const std::vector<bool> gradients = gradients_of(program);
  plan.memory = by_kind(plan, a, layout, first_workspace, gradients);
  plan.gradients = count_gradients(program, a, gradients);
  verify(plan);
  return plan;
}

}  // namespace tessera::plan
