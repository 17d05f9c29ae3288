// Gradient accumulation: the micro-batches of one step side by side in one program, each as
// written, their outputs added in order.
#include <map>

#include "base/check.h"
#include "ir/builder.h"
#include "transforms/transforms.h"

namespace tessera::transforms {

using namespace ir;

namespace {

const Output* updating(const Program& program, const std::string& input) {
  for (const Output& o : program.outputs)
    if (o.updates == input) return &o;
  return nullptr;
}

}  // namespace

Program accumulate(const std::vector<Program>& parts, bool apart) {
  CHECK(!parts.empty(), "a step has at least one micro-batch");
  if (parts.size() == 1) return parts[0];
  Builder b;
  b.program().name = parts[0].name;
  b.program().mesh = parts[0].mesh;
  std::map<std::string, Var> shared;
  std::vector<Var> totals(parts[0].outputs.size(), none);  // per output
  std::vector<Output> apart_outputs;                       // those that are not added up
  std::int64_t position = 0;                               // of the micro-batch in the global batch
  for (std::size_t m = 0; m < parts.size(); ++m) {
    const Program& part = parts[m];
    const std::string tag = "." + std::to_string(m);
    std::vector<Var> map(part.values.size(), none);
    std::int64_t samples = 0;
    for (const Input& in : part.inputs) {
      Var& v = map[static_cast<std::size_t>(in.var)];
      if (in.kind == Input::batch) {
        Input one = in;
        one.name += tag;
        v = b.input(one, part.type(in.var));
        samples = part.type(in.var).shape[0];
      } else if (const Output* o = updating(parts[0], in.name); o && m > 0) {
        // Values that a micro-batch leaves behind (running statistics) are those that the next one
        // finds.
        v = totals[static_cast<std::size_t>(o - parts[0].outputs.data())];
      } else if (auto it = shared.find(in.name); it != shared.end()) {
        v = it->second;
      } else {
        v = shared[in.name] = b.input(in, part.type(in.var));
      }
    }
    // An output joins its total as soon as it is there, so that one micro-batch's gradients never
    // wait for each other.
    auto add_up = [&](Var v) {
      for (std::size_t i = 0; i < part.outputs.size(); ++i) {
        const Output& o = part.outputs[i];
        if (o.var != v) continue;
        const Var now = map[static_cast<std::size_t>(v)];
        b.set_scope("accumulate");
        if (apart && o.role == Role::gradient) {
          apart_outputs.push_back(
              {"grad#" + std::to_string(m) + "." + o.of, now, "", o.role, o.of});
          continue;
        }
        if (o.name == "logits") {
          apart_outputs.push_back({o.name + tag, now, ""});
          continue;
        }
        totals[i] =
            m == 0 || !o.updates.empty()
                ? now
                : b.emit_named(Op::add, Sig{b.same(now, 2)}, {totals[i], now}, {o.name + tag})[0];
      }
    };
    b.set_phase(Phase::backward);
    for (const Input& in : part.inputs) add_up(in.var);
    for (const Eqn& eqn : part.eqns) {
      b.enter(eqn);
      b.set_micro(static_cast<int>(m));
      Attrs attrs = eqn.attrs;
      if (Dropout* dropout = std::get_if<Dropout>(&attrs)) dropout->base += position;
      std::vector<Var> in;
      std::vector<std::string> names;
      for (Var v : eqn.in) in.push_back(v == none ? none : map[static_cast<std::size_t>(v)]);
      for (Var v : eqn.out) names.push_back(v == none ? "_" : part.name_of(v) + tag);
      const std::vector<Var> out = b.emit_named(eqn.op, std::move(attrs), std::move(in), names);
      for (std::size_t i = 0; i < out.size(); ++i)
        if (eqn.out[i] != none) map[static_cast<std::size_t>(eqn.out[i])] = out[i];
      for (Var v : eqn.out)
        if (v != none) add_up(v);
    }
    position += samples;
  }
  for (std::size_t i = 0; i < totals.size(); ++i)
    if (totals[i] != none) b.output(parts[0].outputs[i], totals[i]);
  for (const Output& o : apart_outputs) b.output(o, o.var);
  return b.take();
}

}  // namespace tessera::transforms
