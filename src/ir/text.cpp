// Printing a program. The grammar is in docs/ir.md; reading it back is in parse.cpp.
#include <charconv>

#include "ir/program.h"

namespace tessera::ir {
namespace {

std::string text(bool v) { return v ? "true" : "false"; }
std::string text(int v) { return std::to_string(v); }
std::string text(std::int64_t v) { return std::to_string(v); }
std::string text(DType v) { return std::string(name(v)); }
std::string text(const std::optional<DType>& v) { return v ? text(*v) : "none"; }
std::string text(const std::string& v) { return "\"" + v + "\""; }
std::string text(double v) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), v).ptr);
}
template <class T>
std::string text(const std::vector<T>& list) {
  std::string out = "[";
  for (std::size_t i = 0; i < list.size(); ++i) out += (i ? "," : "") + text(list[i]);
  return out + "]";
}

}  // namespace

std::string print(const Attrs& attrs) {
  std::string out;
  std::visit(
      [&]<class A>(const A& a) {
        std::vector<std::string> defaults;
        const A standard{};
        A::fields(standard,
                  [&](const char*, const auto& value) { defaults.push_back(text(value)); });
        std::size_t i = 0;
        A::fields(a, [&](const char* key, const auto& value) {
          if (std::string shown = text(value); shown != defaults[i++])
            out += std::string(" ") + key + "=" + shown;
        });
      },
      attrs);
  return out;
}

namespace {

std::string type_text(const Mesh& mesh, const Type& type) {
  std::string out = std::string(name(type.dtype)) + to_string(type.shape), places;
  for (std::size_t i = 0; i < type.at.size(); ++i) {
    if (type.at[i].kind == Place::R) continue;
    const std::string where =
        type.at[i].kind == Place::P
            ? "P"
            : (type.at[i].kind == Place::S ? "S" : "@") + std::to_string(type.at[i].dim);
    places += (places.empty() ? "" : " ") + mesh.axes[i].name + ":" + where;
  }
  return places.empty() ? out : out + "{" + places + "}";
}

// The verifier prints broken equations too: what is no value shows as ?N.
bool known(const Program& p, Var v) {
  return v >= 0 && static_cast<std::size_t>(v) < p.values.size();
}
std::string operand(const Program& p, Var v) {
  return v == none ? "_" : known(p, v) ? p.name_of(v) : "?" + std::to_string(v);
}

std::string role_text(Role role, const std::string& of) {
  if (role == Role::none) return "";
  return " as " + std::string(name(role)) + (of_something(role) ? " of " + text(of) : "");
}

constexpr const char* kinds[] = {"batch", "param", "state", "scalar"};
constexpr const char* axis_kinds[] = {"data", "model", "sequence", "stage"};
constexpr const char* phases[] = {"", "~", "^", "%", "!"};

}  // namespace

std::string print(const Program& p, const Eqn& eqn) {
  std::string out;
  for (std::size_t i = 0; i < eqn.out.size(); ++i) {
    const Var v = eqn.out[i];
    out +=
        (i ? ", " : "") + operand(p, v) + (known(p, v) ? " : " + type_text(p.mesh, p.type(v)) : "");
  }
  out += " = " + std::string(name(eqn.op)) + print(eqn.attrs);
  for (Var v : eqn.in) out += " " + operand(p, v);
  std::string tail = phases[static_cast<int>(eqn.phase)] + eqn.scope;
  if (eqn.stage != 0 || eqn.micro != 0)
    tail +=
        (tail.empty() ? "@" : " @") + std::to_string(eqn.stage) + "." + std::to_string(eqn.micro);
  return tail.empty() ? out : out + "  # " + tail;
}

std::string print(const Program& p) {
  std::string out = "program " + p.name + " mesh(";
  for (std::size_t i = 0; i < p.mesh.axes.size(); ++i) {
    const Axis& axis = p.mesh.axes[i];
    out +=
        (i ? ", " : "") + axis.name + "=" + std::to_string(axis.size) + ":" + axis_kinds[axis.kind];
    for (const Shape& parts : axis.cuts) out += to_string(parts);
  }
  out += ")\n";
  for (const Input& in : p.inputs) {
    out += "  input " + p.name_of(in.var) + " : " + type_text(p.mesh, p.type(in.var)) + " " +
           kinds[in.kind] + " " + text(in.name);
    for (std::size_t i = 0; i < in.dims.size(); ++i) out += (i ? "," : " (") + in.dims[i];
    out += (in.dims.empty() ? "" : ")") + role_text(in.role, in.of);
    if (in.home != Home::device)
      out += " on " + std::string(name(in.home)) + " by " + std::to_string(in.piece);
    out += "\n";
  }
  for (const Eqn& eqn : p.eqns) out += "  " + print(p, eqn) + "\n";
  for (const Output& o : p.outputs)
    out += "  output " + text(o.name) + " = " + operand(p, o.var) +
           (o.updates.empty() ? "" : " updates " + text(o.updates)) + role_text(o.role, o.of) +
           "\n";
  return out;
}

}  // namespace tessera::ir
