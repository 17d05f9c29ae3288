#include "plan/prepare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/index.h"
#include "base/rng.h"
#include "plan/plan.h"
#include "plan/steps.h"

namespace tessera::plan {
namespace {

using namespace ir;

// A result that is larger than all that it is made of is kept where it is small: not a weight that
// is spread over a batch.
constexpr std::int64_t small_bytes = 4 << 20;

bool holds_weights(const Input& in) {
  if (in.home != Home::device) return false;
  switch (in.role) {
    case Role::weights:
    case Role::average:
    case Role::frozen:
    case Role::statistics:
    case Role::average_statistics:
      return true;
    default:
      return in.kind == Input::param;
  }
}

struct Finder {
  const Program& p;
  std::vector<bool> fixed;        // per Var: follows from weights alone
  std::vector<std::string> made;  // per Var: of what and how, for its name
  std::vector<Var> root;          // per Var: whose bytes a view shows

  explicit Finder(const Program& program)
      : p(program), fixed(p.values.size()), made(p.values.size()), root(p.values.size()) {
    for (std::size_t v = 0; v < root.size(); ++v) root[v] = static_cast<Var>(v);
    for (const Input& in : p.inputs)
      if (holds_weights(in)) {
        fixed[at(in.var)] = true;
        made[at(in.var)] = in.name;
      }
  }

  bool is_fixed(const Eqn& e) const {
    // A value that is only spread out takes as long to read as to make.
    if (crosses_ranks(e.op) || e.op == Op::mark || e.op == Op::copy || e.op == Op::broadcast ||
        e.op == Op::constant || e.out.empty())
      return false;
    std::int64_t read = 0, written = 0;
    for (const Var v : e.in) {
      if (v == none) continue;
      if (!fixed[at(v)]) return false;
      read += p.type(v).bytes();
    }
    for (const Var v : e.out)
      if (v != none) written += p.type(v).bytes();
    return written <= std::max(read, small_bytes);
  }

  void look_at(const Eqn& e) {
    if (is_view(p, e))
      for (const Var v : e.out)
        if (v != none) root[at(v)] = root[at(e.in[0])];
    if (!is_fixed(e)) return;
    std::string text = fmt::format("{}{}(", name(e.op), print(e.attrs));
    for (const Var v : e.in) text += (v == none ? "_" : made[at(v)]) + ",";
    for (std::size_t r = 0; r < e.out.size(); ++r) {
      const Var v = e.out[r];
      if (v == none) continue;
      const Type& type = p.type(v);
      fixed[at(v)] = true;
      // Long texts become numbers on the way, or those of deep chains would have no end.
      made[at(v)] = fmt::format(
          "{}#{:016x}", p.name_of(v),
          hash_name(fmt::format("{}){}{}{}", text, r, name(type.dtype), to_string(type.shape))));
    }
  }
};

}  // namespace

Prepared prepare(Program& program, const Target& target) {
  Prepared out;
  out.kept.resize(program.values.size());
  if (!target.packs || updates_something(program)) return out;
  Finder find(program);
  std::vector<bool> once(program.values.size());  // per Var: made by an equation that is fixed
  std::vector<bool> first;
  for (const Eqn& e : program.eqns) {
    find.look_at(e);
    first.push_back(find.is_fixed(e));
    for (const Var v : e.out)
      if (v != none) once[at(v)] = first.back();
  }
  const auto keep = [&](Var v) {
    if (v == none) return;
    const Var bytes = find.root[at(v)];
    if (once[at(bytes)]) out.kept[at(bytes)] = "prepared." + find.made[at(bytes)];
  };
  std::vector<Eqn> before, rest;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!first[i])
      for (const Var v : program.eqns[i].in) keep(v);
    (first[i] ? before : rest).push_back(std::move(program.eqns[i]));
  }
  for (const Output& o : program.outputs) keep(o.var);
  out.eqns = before.size();
  before.insert(before.end(), rest.begin(), rest.end());
  program.eqns = std::move(before);
  return out;
}

void set_aside(Plan& plan, const Target& target) {
  if (!target.packs || !target.reaches_host || updates_something(plan.program)) return;
  std::vector<bool> once(plan.persistent.size()), always(plan.persistent.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const auto note = [&](const Slot& slot, bool first) {
      if (slot.base > 0) (first ? once : always)[static_cast<std::size_t>(slot.base - 1)] = true;
    };
    for (std::size_t k = 0; k < step.in.size(); ++k)
      note(step.in[k], i < plan.prepared || (step.packed && step.packs == static_cast<int>(k)));
    for (const Slot& slot : step.out) note(slot, i < plan.prepared);
  }
  for (std::size_t b = 0; b < plan.persistent.size(); ++b) {
    Buffer& buffer = plan.persistent[b];
    if (!once[b] || always[b] || buffer.shared || buffer.home != Home::device) continue;
    buffer.home = Home::host;
    buffer.aside = true;
  }
}

}  // namespace tessera::plan
