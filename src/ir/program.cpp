#include "ir/program.h"

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <unordered_set>

#include "base/check.h"
#include "ir/placement.h"

namespace tessera::ir {

std::vector<Type> Program::types(const std::vector<Var>& vars) const {
  std::vector<Type> out;
  out.reserve(vars.size());
  for (Var v : vars) out.push_back(v == none ? Type{DType::u8, {0}, {}} : type(v));
  return out;
}

const Input* Program::input(std::string_view wanted) const {
  for (const Input& in : inputs)
    if (in.name == wanted) return &in;
  return nullptr;
}

const Input* Program::input(Role role, std::string_view of) const {
  for (const Input& in : inputs)
    if (in.role == role && in.of == of) return &in;
  return nullptr;
}

std::string_view name(Role role) {
  static constexpr std::string_view names[] = {"",
#define X(name, whose) #name,
                                               TESSERA_ROLES(X)
#undef X
  };
  return names[static_cast<std::size_t>(role)];
}

std::optional<Role> parse_role(std::string_view text) {
#define X(name, whose) \
  if (text == #name) return Role::name;
  TESSERA_ROLES(X)
#undef X
  return std::nullopt;
}

constexpr std::string_view homes[] = {"device", "host", "file"};

std::string_view name(Home home) { return homes[static_cast<std::size_t>(home)]; }

std::optional<Home> parse_home(std::string_view text) {
  for (std::size_t i = 0; i < std::size(homes); ++i)
    if (text == homes[i]) return static_cast<Home>(i);
  return std::nullopt;
}

bool by_element(const Eqn& e) {
  const std::string text = signature(e.op, e.attrs, static_cast<int>(e.in.size()));
  const std::size_t arrow = text.find("->");
  if (arrow == std::string::npos || arrow + 2 + 2 * e.out.size() - 1 != text.size()) return false;
  return text.find_first_not_of("*,") == arrow &&
         text.find_first_not_of("*,", arrow + 2) == std::string::npos;
}

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '~' || c == '\'' || c == '/';
}

namespace {

// Names must survive the text form; its three keywords would be read as lines of another kind.
bool is_name(const std::string& s) {
  return !s.empty() && s != "_" && s != "input" && s != "output" && s != "program" &&
         std::all_of(s.begin(), s.end(), is_name_char);
}

// Everything that must hold of one equation, given what is defined before it. `types` is room for
// those of its operands, the same for all equations.
void verify_eqn(const Program& p, const Eqn& eqn, std::vector<bool>& defined,
                std::vector<Type>& types) {
  const auto count = static_cast<Var>(p.values.size());
  for (Var v : eqn.in) {
    CHECK(v != none, "an operand is absent; optional operands come with an attribute");
    CHECK(v >= 0 && v < count, "an operand is not a value of this program");
    CHECK(defined[static_cast<std::size_t>(v)], p.name_of(v) + " is used before it is defined");
  }
  if (types.size() < eqn.in.size()) types.resize(eqn.in.size());
  for (std::size_t i = 0; i < eqn.in.size(); ++i) types[i] = p.type(eqn.in[i]);
  const std::vector<Type> want = infer(eqn.op, eqn.attrs, std::span(types.data(), eqn.in.size()));
  CHECK(want.size() == eqn.out.size(),
        std::string(name(eqn.op)) + " has " + std::to_string(want.size()) +
            " results, the equation names " + std::to_string(eqn.out.size()));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const Var v = eqn.out[i];
    if (v == none) continue;
    CHECK(v >= 0 && v < count && !defined[static_cast<std::size_t>(v)], "a value is defined twice");
    const Type& got = p.type(v);
    CHECK(got.dtype == want[i].dtype && got.shape == want[i].shape,
          p.name_of(v) + " is declared " + std::string(name(got.dtype)) + to_string(got.shape) +
              " but " + std::string(name(eqn.op)) + " gives " + std::string(name(want[i].dtype)) +
              to_string(want[i].shape));
    defined[static_cast<std::size_t>(v)] = true;
  }
  check_places(p, eqn);
}

}  // namespace

void verify(const Program& p) {
  std::vector<bool> defined(p.values.size(), false);
  std::vector<Type> types;
  std::unordered_set<std::string_view> names, inputs, outputs, updated;
  std::set<std::pair<Role, std::string>> roles;
  names.reserve(p.values.size());
  for (const Value& value : p.values) {
    CHECK(is_name(value.name), "'" + value.name + "' is not a name");
    CHECK(names.insert(value.name).second, "the name " + value.name + " stands for two values");
    CHECK(value.type.at.empty() || value.type.at.size() == p.mesh.axes.size(),
          value.name + " has a placement for another mesh");
    for (const Place& place : value.type.at)
      CHECK(place.kind != Place::S || (place.dim >= 0 && place.dim < value.type.rank()),
            value.name + " is sharded on a dim that it lacks");
    for (std::size_t i = 0; i < value.type.at.size(); ++i) {
      const Place& place = value.type.at[i];
      CHECK(place.kind != Place::O || (place.dim >= 0 && place.dim < p.mesh.axes[i].size),
            value.name + " is only on a rank that is none");
      CHECK(p.mesh.axes[i].kind == Axis::stage ? place.kind != Place::S : place.kind != Place::O,
            value.name + " is sharded on an axis of stages, or on one rank of another axis");
    }
    value.type.elements();  // CHECKs the extents
  }
  for (const Input& in : p.inputs) {
    CHECK(in.var >= 0 && static_cast<std::size_t>(in.var) < p.values.size(),
          "input " + in.name + " is not a value of this program");
    CHECK(!defined[static_cast<std::size_t>(in.var)] && inputs.insert(in.name).second,
          "input " + in.name + " stands twice");
    CHECK(in.dims.empty() || in.dims.size() == p.type(in.var).shape.size(),
          "input " + in.name + " names a wrong number of dims");
    CHECK(in.role == Role::none || roles.emplace(in.role, in.of).second,
          "input " + in.name + " is " + std::string(name(in.role)) + " of " + in.of +
              ", and so is another");
    CHECK(in.of.empty() != of_something(in.role),
          "input " + in.name + " is a role of nothing, or of something without a role");
    CHECK(in.home == Home::device ||
              ((in.kind == Input::param || in.kind == Input::state) && in.piece > 0),
          "input " + in.name +
              " rests away from the device, and does not stay there, or moves in " +
              std::to_string(in.piece) + " bytes");
    defined[static_cast<std::size_t>(in.var)] = true;
  }
  for (const Eqn& eqn : p.eqns) {
    try {
      verify_eqn(p, eqn, defined, types);
    } catch (Error& error) {
      throw error.in("in `" + print(p, eqn) + "`");
    }
  }
  for (const Output& out : p.outputs) {
    CHECK(out.var >= 0 && static_cast<std::size_t>(out.var) < p.values.size() &&
              defined[static_cast<std::size_t>(out.var)],
          "output " + out.name + " is never defined");
    CHECK(outputs.insert(out.name).second, "output " + out.name + " stands twice");
    CHECK(out.of.empty() != of_something(out.role),
          "output " + out.name + " is a role of nothing, or of something without a role");
    if (out.updates.empty()) continue;
    const Input* target = p.input(out.updates);
    CHECK(target, "output " + out.name + " updates '" + out.updates + "', which is no input");
    CHECK(updated.insert(out.updates).second, "input " + out.updates + " is updated twice");
    CHECK(p.type(target->var) == p.type(out.var),
          "output " + out.name + " and the input it updates differ in type");
  }
}

Cost cost(const Program& p) {
  Cost total;
  for (const Eqn& eqn : p.eqns) {
    const Cost c = cost(eqn.op, eqn.attrs, p.types(eqn.in), p.types(eqn.out));
    total.flops += c.flops;
    total.bytes += c.bytes;
  }
  return total;
}

}  // namespace tessera::ir
