#include "ir/builder.h"

#include "base/check.h"
#include "ir/placement.h"
#include "ir/signature.h"

namespace tessera::ir {

Builder::Builder(Program start) : program_(std::move(start)) {
  for (const Value& value : program_.values) used_.emplace(value.name, 1);
}

Builder::Scope::Scope(Builder& b, std::string_view name) : builder_(b), before_(b.scope_) {
  b.scope_ = before_.empty() ? std::string(name) : before_ + "." + std::string(name);
}
Builder::Scope::~Scope() { builder_.scope_ = before_; }

void Builder::enter(const Eqn& eqn) {
  scope_ = eqn.scope;
  phase_ = eqn.phase;
  stage_ = eqn.stage;
  micro_ = eqn.micro;
}

// A name that is taken gets ~2, ~3, ...: a count of that name alone, so that other equations never
// shift it.
std::string Builder::unique(const std::string& name) {
  if (used_.emplace(name, 1).second) return name;
  for (;;) {
    std::string next = name + "~" + std::to_string(++used_[name]);
    if (used_.emplace(next, 1).second) return next;
  }
}

Var Builder::fresh(const std::string& name, Type type) {
  program_.values.push_back({unique(name), std::move(type)});
  return static_cast<Var>(program_.values.size()) - 1;
}

void Builder::rename(Var v, const std::string& name) {
  std::string& current = program_.values[static_cast<std::size_t>(v)].name;
  used_.erase(current);
  current = unique(name);
}

Var Builder::input(Input::Kind kind, const std::string& name, Type type,
                   std::vector<std::string> dims, Role role, std::string of) {
  const Var v = fresh(name, std::move(type));
  program_.inputs.push_back({.kind = kind,
                             .var = v,
                             .name = name,
                             .dims = std::move(dims),
                             .role = role,
                             .of = std::move(of)});
  return v;
}

Var Builder::input(const Input& like, Type type) {
  const Var v = input(like.kind, like.name, std::move(type), like.dims, like.role, like.of);
  program_.inputs.back().home = like.home;
  program_.inputs.back().piece = like.piece;
  return v;
}

void Builder::output(const std::string& name, Var v, const std::string& updates, Role role,
                     std::string of) {
  program_.outputs.push_back(
      {.name = name, .var = v, .updates = updates, .role = role, .of = std::move(of)});
}

void Builder::output(const Output& like, Var v) {
  output(like.name, v, like.updates, like.role, like.of);
}

Eqn Builder::here(Op op, Attrs attrs, std::vector<Var> in) const {
  return {.op = op,
          .attrs = std::move(attrs),
          .in = std::move(in),
          .out = {},
          .scope = scope_,
          .phase = phase_,
          .stage = stage_,
          .micro = micro_};
}

template <class NameOf>
const Eqn& Builder::append(Eqn eqn, std::vector<Type> types, const NameOf& name_of) {
  eqn.out.reserve(types.size());
  for (std::size_t i = 0; i < types.size(); ++i) {
    const std::string& name = name_of(i);
    eqn.out.push_back(name == "_" ? none : fresh(name, std::move(types[i])));
  }
  program_.eqns.push_back(std::move(eqn));
  return program_.eqns.back();
}

std::vector<Var> Builder::emit_named(Op op, Attrs attrs, std::vector<Var> in,
                                     const std::vector<std::string>& names) {
  Eqn eqn = here(op, std::move(attrs), std::move(in));
  std::vector<Type> types;
  try {
    types = infer(op, eqn.attrs, program_.types(eqn.in));
  } catch (Error& error) {
    throw error.in("[" + scope_ + "] " + std::string(name(op)));
  }
  const std::string plain(name(op));
  const Eqn& made = append(
      std::move(eqn), std::move(types),
      [&](std::size_t i) -> const std::string& { return i < names.size() ? names[i] : plain; });
  infer_places(made);
  return made.out;
}

// In a placed program results follow their operands; whoever writes collectives says more.
void Builder::infer_places(const Eqn& eqn) {
  if (moves(eqn.attrs)) return;
  for (int axis = 0; axis < static_cast<int>(program_.mesh.axes.size()); ++axis)
    if (const auto places = propagate(program_, eqn, axis))
      for (std::size_t i = 0; i < eqn.out.size(); ++i)
        if (eqn.out[i] != none)
          set_place(program_.values[static_cast<std::size_t>(eqn.out[i])].type, program_.mesh, axis,
                    (*places)[i]);
}

std::vector<Var> Builder::emit(Op op, Attrs attrs, std::vector<Var> in,
                               const std::vector<std::string>& hints) {
  Eqn eqn = here(op, std::move(attrs), std::move(in));
  std::vector<Type> types = infer(op, eqn.attrs, program_.types(eqn.in));
  const std::string prefix = scope_.empty() ? "" : scope_ + ".";
  const Eqn& made = append(std::move(eqn), std::move(types), [&](std::size_t i) {
    const std::string hint =
        i < hints.size() && !hints[i].empty() ? hints[i] : std::string(name(op));
    return hint == "_" ? hint : prefix + hint;
  });
  infer_places(made);
  return made.out;
}

Var Builder::emit1(Op op, Attrs attrs, std::vector<Var> in, const std::string& name) {
  return emit(op, std::move(attrs), std::move(in), {name})[0];
}

std::string Builder::same(Var x, int operands) const {
  const std::string letters = alphabet(type(x).rank());
  std::string sig = letters;
  for (int i = 1; i < operands; ++i) sig += "," + letters;
  return sig + "->" + letters;
}

Rewriter::Rewriter(const Program& program) : Rewriter(program, true) {}

Rewriter::Rewriter(const Program& program, bool copy_inputs)
    : from(program), map_(program.values.size(), none) {
  to.program().name = program.name;
  to.program().mesh = program.mesh;
  to.program().values.reserve(program.values.size());
  to.program().eqns.reserve(program.eqns.size());
  to.used_.reserve(program.values.size());
  if (copy_inputs)
    for (const Input& in : program.inputs) copy_input(in);
}

void Rewriter::copy_input(const Input& in) {
  const Var v = to.input(in, from.type(in.var));
  to.rename(v, from.name_of(in.var));
  set(in.var, v);
}

std::vector<Var> Rewriter::operator()(const std::vector<Var>& old) const {
  std::vector<Var> now;
  now.reserve(old.size());
  for (Var v : old) now.push_back((*this)(v));
  return now;
}

void Rewriter::copy(const Eqn& eqn) { copy_on(eqn, (*this)(eqn.in)); }

std::vector<Var> Rewriter::copy_on(const Eqn& eqn, std::vector<Var> in) {
  bool same = in.size() == eqn.in.size();
  for (std::size_t i = 0; i < in.size() && same; ++i) {
    const Var old = eqn.in[i], now = in[i];
    same = old != none && now != none && from.type(old).dtype == to.type(now).dtype &&
           from.type(old).shape == to.type(now).shape;
  }
  if (!same) return copy_with(eqn, eqn.attrs, std::move(in));
  enter(eqn);
  std::vector<Type> types = from.types(eqn.out);
  const std::string absent = "_";
  const std::vector<Var>& out =
      to.append({.op = eqn.op,
                 .attrs = eqn.attrs,
                 .in = std::move(in),
                 .out = {},
                 .scope = eqn.scope,
                 .phase = eqn.phase,
                 .stage = eqn.stage,
                 .micro = eqn.micro},
                std::move(types),
                [&](std::size_t i) -> const std::string& {
                  return eqn.out[i] == none ? absent : from.name_of(eqn.out[i]);
                })
          .out;
  for (std::size_t i = 0; i < out.size(); ++i)
    if (eqn.out[i] != none) set(eqn.out[i], out[i]);
  return out;
}

std::vector<Var> Rewriter::copy_with(const Eqn& eqn, Attrs attrs, std::vector<Var> in) {
  enter(eqn);
  std::vector<std::string> names;
  for (Var v : eqn.out) names.push_back(v == none ? "_" : from.name_of(v));
  std::vector<Var> out = to.emit_named(eqn.op, std::move(attrs), std::move(in), names);
  for (std::size_t i = 0; i < eqn.out.size(); ++i)
    if (eqn.out[i] != none) {
      set(eqn.out[i], out[i]);
      to.program().values[static_cast<std::size_t>(out[i])].type.at = from.type(eqn.out[i]).at;
    }
  return out;
}

Program Rewriter::finish() {
  for (const Output& out : from.outputs) to.output(out, (*this)(out.var));
  return to.take();
}

}  // namespace tessera::ir
