#include "plan/traffic.h"

#include <algorithm>

#include "base/index.h"
#include "ir/wire.h"

namespace tessera::plan {
namespace {

using namespace ir;

// Finds out what every value of a program is made of, as far as a reader of the table wants to
// know.
class Purposes {
 public:
  explicit Purposes(const Program& program)
      : p_(program), maker_(program.values.size()), param_(program.values.size()) {
    for (const Input& in : p_.inputs) param_[at(in.var)] = in.kind == Input::param;
    for (const Eqn& e : p_.eqns) {
      const bool params_only = !e.in.empty() && std::all_of(e.in.begin(), e.in.end(), [&](Var v) {
        return v != none && param_[at(v)];
      });
      for (Var v : e.out)
        if (v != none) {
          maker_[at(v)] = &e;
          param_[at(v)] = params_only;
        }
    }
  }

  std::string of(const Eqn& e) const {
    if (e.op == Op::recv) return "activations";
    const Eqn* from = maker_[at(e.in[0])];
    while (from && (from->op == Op::mark || from->op == Op::stack || from->op == Op::slice))
      from = maker_[at(from->in[0])];
    const bool joined = maker_[at(e.in[0])] && maker_[at(e.in[0])]->op == Op::stack;
    if (p_.type(e.in[0]).rank() == (joined ? 1 : 0)) return "scalars";
    // Deferred ones were added up over groups and micro-batches before.
    const Eqn* first = from;
    while (first && (first->op == Op::sum || first->op == Op::reshape || first->op == Op::add))
      first = maker_[at(first->in[0])];
    if (first && first->op == Op::moments) return "statistics";
    if (from && (from->op == Op::batch_norm_sums || from->op == Op::relu_grad_sums ||
                 from->op == Op::segment_sumsq))
      return "statistics";
    if (param_[at(e.in[0])]) return "weights";
    if (e.phase == Phase::update)
      return e.op == Op::all_gather && from && from->phase == Phase::update ? "weights"
                                                                            : "gradients";
    return "activations";
  }

 private:
  const Program& p_;
  std::vector<const Eqn*> maker_;
  std::vector<bool> param_;  // follows from parameters alone
};

// A message that a step hands over: itself, or the moves that a compressed reduction is made of.
struct Message {
  Op op;
  std::string axis;
  std::int64_t bytes = 0;
};
std::vector<Message> messages_of(const Step& step) {
  const Type& x = (step.op == Op::recv ? step.out : step.in)[0].type;
  const Compressed* a = std::get_if<Compressed>(&step.attrs);
  if (!a) return {{step.op, axis_of(step.attrs), x.bytes()}};
  const Wire wire = *parse_wire(a->wire);
  if (wire == Wire::topk)
    return {{Op::all_gather, a->axis, top_bytes(top_count(a->keep, x.elements()), x.dtype)}};
  std::int64_t parts = 0;
  for (const std::int64_t n : a->parts) parts += wire_bytes(wire, n);
  std::vector<Message> out = {{Op::all_to_all, a->axis, parts}};
  if (a->dim < 0)
    out.push_back(
        {Op::all_gather, a->axis, wire_bytes(wire, a->parts[static_cast<std::size_t>(a->index)])});
  return out;
}

}  // namespace

std::string_view name(Phase phase) {
  constexpr std::string_view names[] = {"forward", "backward", "recompute", "weight", "update"};
  return names[static_cast<std::size_t>(phase)];
}

std::vector<CommRow> communication(const Plan& plan) {
  const Purposes purposes(plan.program);
  std::vector<CommRow> rows;
  for (const Step& step : plan.steps) {
    if (!crosses_ranks(step.op)) continue;
    const Eqn& e = plan.program.eqns[static_cast<std::size_t>(step.eqn)];
    for (const Message& message : messages_of(step)) {
      const CommRow now{.phase = e.phase,
                        .op = message.op,
                        .axis = message.axis,
                        .what = purposes.of(e),
                        .count = 0,
                        .bytes = 0};
      auto row = std::find_if(rows.begin(), rows.end(), [&](const CommRow& r) {
        return r.phase == now.phase && r.op == now.op && r.axis == now.axis && r.what == now.what;
      });
      if (row == rows.end()) row = rows.insert(row, now);
      ++row->count;
      row->bytes += message.bytes;
    }
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const CommRow& a, const CommRow& b) { return a.phase < b.phase; });
  return rows;
}

AwayTraffic away_traffic(const Plan& plan, std::optional<Home> home) {
  AwayTraffic out;
  for (const Step& step : plan.steps) {
    if (step.move == Move::none) continue;
    const bool fetches = step.move == Move::fetch;
    if (home && plan.home_of(fetches ? step.in[0] : step.out[0]) != *home) continue;
    (fetches ? out.fetched : out.stowed) += step.in[0].type.bytes();
  }
  return out;
}

}  // namespace tessera::plan
