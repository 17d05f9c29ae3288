// Program -> Plan for one rank.
#include <algorithm>
#include <set>
#include <span>

#include "base/check.h"
#include "base/index.h"
#include "plan/offload.h"
#include "plan/plan.h"
#include "plan/prepare.h"
#include "plan/steps.h"

namespace tessera::plan {
namespace {

using namespace ir;

// Which values are gradients on their way to the update: buckets, and what they become when ranks
// and micro-batches are added up.
std::vector<bool> gradients_of(const Program& p) {
  std::vector<bool> out(p.values.size());
  for (const Eqn& e : p.eqns) {
    if (e.phase != Phase::update || e.out[0] == none || p.type(e.out[0]).rank() == 0) continue;
    out[at(e.out[0])] = e.op == Op::pack || (def(e.op).carries_gradient && out[at(e.in[0])]);
  }
  for (const Output& o : p.outputs)
    if (o.role == Role::gradient) out[at(o.var)] = true;
  return out;
}

bool cuts(const Eqn& e) {
  const Compressed* compressed = std::get_if<Compressed>(&e.attrs);
  return e.op == Op::reduce_scatter || (compressed && compressed->dim >= 0);
}

// The most of them at once.
Gradients count_gradients(const Program& p, const Assignment& a,
                          const std::vector<bool>& gradient) {
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

// Collects what the target cannot run: every op and element type once, with the first equation that
// needs it.
class MissingKernels {
 public:
  MissingKernels(const Program& program, const Target& target)
      : program_(program), target_(target) {}

  void look_at(const Eqn& e) {
    if (!target_.supports) return;
    for (const auto* list : {&e.in, &e.out})
      for (const Var v : *list) {
        if (v == none || target_.supports(e.op, program_.type(v).dtype)) continue;
        if (!seen_.emplace(e.op, program_.type(v).dtype).second) continue;
        found_.push_back("the device " + target_.device + " has no kernel for the op " +
                         std::string(name(e.op)) + " with elements of " +
                         std::string(name(program_.type(v).dtype)) + ", which `" +
                         print(program_, e) + "` needs");
      }
  }
  bool any() const { return !found_.empty(); }
  void refuse() const {
    if (found_.empty()) return;
    Error error(ErrorKind::usage, found_[0], program_.name,
                "choose another --dtype, or another --device");
    for (std::size_t i = 1; i < found_.size(); ++i) error.and_also(found_[i]);
    throw error;
  }

 private:
  const Program& program_;
  const Target& target_;
  std::set<std::pair<Op, DType>> seen_;
  std::vector<std::string> found_;
};

// The bytes that are live in the arena at the step where the most are, by kind.
Memory by_kind(const Plan& plan, const Assignment& a, const Arena& arena,
               std::size_t first_workspace, const std::vector<bool>& gradients) {
  Memory m;
  for (const Buffer& b : plan.persistent) {
    if (b.home != Home::device) continue;
    const Input* input = plan.program.input(b.name);
    const bool data = input && input->role == Role::pictures;  // they count as batches do
    (b.kind == Input::param ? m.weights : data ? m.activations : m.optimizer) += b.bytes;
  }
  for (std::size_t i = 0; i < a.intervals.size(); ++i) {
    if (!arena.at_peak(i, a.intervals[i])) continue;
    if (i >= first_workspace)
      m.workspace += a.intervals[i].bytes;
    else if (gradients[at(a.owner[i])])
      m.gradients += a.intervals[i].bytes;
    else
      m.activations += a.intervals[i].bytes;
  }
  // Gaps that the layout could not close belong to the activations too: the sum is the arena.
  m.activations += arena.bytes() - arena.live() + plan.outside_bytes();
  return m;
}

// Appends the room in which pieces come and go: its interval, or -1. The last ones may be on their
// way until the end.
int add_staging(const Pieces& pieces, Assignment& a, int end) {
  if (pieces.list().empty()) return -1;
  const int first = static_cast<int>(pieces.list().front().eqn);
  a.intervals.push_back({pieces.bytes(), first, end});
  return static_cast<int>(a.intervals.size()) - 1;
}

// Views do nothing, and neither does a stack whose operands already lie in it.
bool is_step(const Program& program, const Assignment& a, const Eqn& e) {
  if (def(e.op).view) return !is_view(program, e);
  if (e.op != Op::stack) return true;
  const Storage& whole = a.values[at(e.out[0])];
  for (std::size_t k = 0; k < e.in.size(); ++k) {
    const Storage& s = a.values[at(e.in[k])];
    if (s.base != whole.base || s.interval != whole.interval ||
        s.offset != whole.offset + static_cast<std::int64_t>(k) * program.type(e.in[k]).bytes())
      return true;
  }
  return false;
}

// Appends what kernels need beside their operands to the intervals: the interval of each equation,
// or -1. An op without a kernel on the target is refused.
std::vector<int> add_workspaces(const Program& program, Assignment& a, const Target& target) {
  std::vector<int> workspace_of(program.eqns.size(), -1);
  MissingKernels missing(program, target);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    if (!is_step(program, a, e)) continue;
    missing.look_at(e);
    if (missing.any() || !target.workspace) continue;
    const std::int64_t bytes =
        target.workspace(e.op, e.attrs, program.types(e.in), program.types(e.out));
    if (bytes == 0) continue;
    workspace_of[i] = static_cast<int>(a.intervals.size());
    a.intervals.push_back({target.aligned(bytes), static_cast<int>(i), static_cast<int>(i)});
  }
  missing.refuse();
  return workspace_of;
}

// Where inputs and outputs lie, and the copies that bring results there.
void write_outputs(Plan& plan, StepWriter& writer, const Target& target) {
  const Program& program = plan.program;
  for (const Input& in : program.inputs)
    plan.inputs.push_back({in.name, in.kind, writer.slot(in.var)});
  // First what leaves, then what stays: a buffer that is updated by a copy may be an output as it
  // was before.
  for (const Output& o : program.outputs) {
    Slot to = writer.slot(o.updates.empty() ? o.var : program.input(o.updates)->var);
    if (const Slot from = to; from && o.updates.empty()) {
      to.base = Slot::result;
      to.offset = plan.result_bytes;
      plan.result_bytes += target.aligned(to.type.bytes());
      writer.copy("result", from, to);
    }
    plan.outputs.push_back({o.name, Input::batch, to});
  }
  for (const Output& o : program.outputs) {
    if (o.updates.empty()) continue;
    const Slot from = writer.slot(o.var), to = writer.slot(program.input(o.updates)->var);
    if (to.base != from.base || to.offset != from.offset) writer.copy("donate", from, to);
  }
}

// Weights of a plan that changes none get a buffer for their packed form, where the target wants
// one. Plans that pack the same weights alike share it by its name. Steps that are made once read
// their weights as they are: executors pack behind them, what they made may be among it.
void add_packed(Plan& plan, const Target& target) {
  if (!target.packs || !target.packed || updates_something(plan.program)) return;
  const std::size_t given = plan.persistent.size();
  const auto stays = [&](const Slot& slot) {
    return slot.base > 0 && static_cast<std::size_t>(slot.base) <= given;
  };
  const auto name_of = [&](const Slot& slot) {
    const Buffer& source = plan.persistent[static_cast<std::size_t>(slot.base - 1)];
    return source.name + "+" + std::to_string(slot.offset);
  };
  for (Step& step : std::span(plan.steps).subspan(plan.prepared)) {
    std::vector<Type> in;
    for (const Slot& s : step.in) in.push_back(s.type);
    for (std::size_t i = 0; i < step.in.size() && !step.packed; ++i) {
      const Slot& from = step.in[i];
      if (!stays(from)) continue;
      const PackedForm form = target.packed(step.op, step.attrs, in, static_cast<int>(i));
      const auto operand = [&](int k) -> const Slot& {
        return step.in[static_cast<std::size_t>(k)];
      };
      if (form.bytes == 0 ||
          !std::ranges::all_of(form.with, [&](int k) { return stays(operand(k)); }))
        continue;
      std::string name = "packed." + name_of(from);
      for (const int k : form.with) name += "," + name_of(operand(k));
      const Buffer buffer{.name = name + " " + form.layout,
                          .kind = plan.persistent[static_cast<std::size_t>(from.base - 1)].kind,
                          .bytes = target.aligned(form.bytes)};
      auto found = std::find_if(plan.persistent.begin(), plan.persistent.end(),
                                [&](const Buffer& b) { return b.name == buffer.name; });
      if (found == plan.persistent.end())
        found = plan.persistent.insert(plan.persistent.end(), buffer);
      step.packed = {static_cast<int>(found - plan.persistent.begin()) + 1,
                     0,
                     {DType::u8, {buffer.bytes}, {}}};
      step.packs = static_cast<int>(i);
    }
  }
}

}  // namespace

std::int64_t Plan::bytes_on(Home home) const {
  std::int64_t n = 0;
  for (const Buffer& b : persistent)
    if (b.home == home) n += b.bytes;
  return n;
}
const Binding* Plan::input(std::string_view name) const {
  const auto it =
      std::find_if(inputs.begin(), inputs.end(), [&](const Binding& b) { return b.name == name; });
  return it == inputs.end() ? nullptr : &*it;
}
const Binding* Plan::output(std::string_view name) const {
  const auto it = std::find_if(outputs.begin(), outputs.end(),
                               [&](const Binding& b) { return b.name == name; });
  return it == outputs.end() ? nullptr : &*it;
}

Plan lower(const Program& global, int rank, const Target& target, bool overlap) {
  Plan plan;
  plan.program = localise(global, rank);
  if (overlap) plan.program = receive_early(plan.program);
  const Prepared prepared = prepare(plan.program, target);
  plan.rank = rank;
  const Program& program = plan.program;
  const std::vector<int> deadline_of = deadlines(program, overlap);
  Assignment a = assign(program, deadline_of, target, prepared.kept);
  const std::size_t first_workspace = a.intervals.size();
  const std::vector<int> workspace_of = add_workspaces(program, a, target);
  const Pieces pieces(program, a, target, overlap);
  const int staging = add_staging(pieces, a, static_cast<int>(program.eqns.size()));
  const Arena arena(program, a, workspace_of, target);
  plan.arena_bytes = arena.bytes();
  plan.shared_bytes = arena.shared_bytes;
  plan.live_bytes = arena.live();
  plan.persistent = a.persistent;
  plan.feed_bytes = a.feed_bytes;
  plan.copies = target.copies;

  StepWriter writer(plan, a, arena, pieces, staging);
  for (std::size_t i = 0; i < program.eqns.size(); ++i) {
    const Eqn& e = program.eqns[i];
    if (i >= prepared.eqns) {
      const Cost needs = cost(e.op, e.attrs, program.types(e.in), program.types(e.out));
      if (e.phase != Phase::recompute) plan.cost.flops += needs.flops;
      plan.cost.bytes += needs.bytes;
    }
    if (pieces.of(i))
      writer.in_pieces(i, workspace_of[i]);
    else if (is_step(program, a, e))
      writer.equation(i, workspace_of[i], deadline_of[i]);
    if (i + 1 == prepared.eqns) plan.prepared = plan.steps.size();
  }
  write_outputs(plan, writer, target);
  add_packed(plan, target);
  set_aside(plan, target);
  const std::vector<bool> gradients = gradients_of(program);
  plan.memory = by_kind(plan, a, arena, first_workspace, gradients);
  plan.gradients = count_gradients(program, a, gradients);
  verify(plan, target);
  return plan;
}

}  // namespace tessera::plan
