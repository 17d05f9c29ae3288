#include "ir/verify.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <set>
#include <span>
#include <string_view>

#include "base/check.h"
#include "ir/placement.h"

namespace tessera::ir {
namespace {

// Names must survive the text form; its three keywords would be read as lines of another kind.
bool is_name(const std::string& s) {
  return !s.empty() && s != "_" && s != "input" && s != "output" && s != "program" &&
         std::all_of(s.begin(), s.end(), is_name_char);
}

// Values or equations by a name, of which at most so many are put in. It keeps views of the names.
class Names {
 public:
  explicit Names(std::size_t most) : slots_(std::bit_ceil(2 * most + 2)) {}

  bool insert(std::string_view name, const Eqn* eqn = nullptr) {  // false: it is there already
    Slot& slot = find(name);
    if (slot.taken) return false;
    slot = {name, eqn, true};
    return true;
  }
  const Eqn* operator[](std::string_view name) { return find(name).eqn; }  // null: not there

 private:
  struct Slot {
    std::string_view name{};
    const Eqn* eqn = nullptr;
    bool taken = false;
  };
  Slot& find(std::string_view name) {
    std::size_t at = std::hash<std::string_view>()(name);
    for (;; ++at) {
      Slot& slot = slots_[at & (slots_.size() - 1)];
      if (!slot.taken || slot.name == name) return slot;
    }
  }
  std::vector<Slot> slots_;  // a power of two of them, half of them free
};

// The first result that is there.
Var first_result(const Eqn& eqn) {
  for (const Var v : eqn.out)
    if (v != none) return v;
  return none;
}

// The equations of a program that has been verified, over the mesh of the one that is looked at.
class Verified {
 public:
  Verified(const Program* before, const Mesh& mesh)
      : before_(before && before->mesh == mesh ? before : nullptr),
        by_result_(before_ ? before_->eqns.size() : 0) {
    if (!before_) return;
    for (const Eqn& eqn : before_->eqns)
      if (const Var v = first_result(eqn); v != none) by_result_.insert(before_->name_of(v), &eqn);
  }

  // Whether an equation of the same op, attributes and types is there: what holds of the types of
  // one holds of the other. It is looked for by the name of its result, which passes keep.
  bool has(const Program& p, const Eqn& eqn) {
    const Var v = first_result(eqn);
    const Eqn* other = before_ && v != none ? by_result_[p.name_of(v)] : nullptr;
    return other && other->op == eqn.op && same_types(p, eqn.in, other->in) &&
           same_types(p, eqn.out, other->out) && other->attrs == eqn.attrs;
  }

 private:
  bool same_types(const Program& p, const std::vector<Var>& a, const std::vector<Var>& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](Var x, Var y) {
      return x == none || y == none ? x == y : p.type(x) == before_->type(y);
    });
  }
  const Program* before_;
  Names by_result_;
};

// Checks the types of one equation. `types` is room for those of its operands, the same for all
// equations.
void verify_types(const Program& p, const Eqn& eqn, std::vector<Type>& types) {
  if (types.size() < eqn.in.size()) types.resize(eqn.in.size());
  for (std::size_t i = 0; i < eqn.in.size(); ++i) types[i] = p.type(eqn.in[i]);
  const std::vector<Type> want = infer(eqn.op, eqn.attrs, std::span(types.data(), eqn.in.size()));
  CHECK(want.size() == eqn.out.size(),
        std::string(name(eqn.op)) + " has " + std::to_string(want.size()) +
            " results, the equation names " + std::to_string(eqn.out.size()));
  for (std::size_t i = 0; i < want.size(); ++i) {
    const Var v = eqn.out[i];
    if (v == none) continue;
    const Type& got = p.type(v);
    CHECK(got.dtype == want[i].dtype && got.shape == want[i].shape,
          p.name_of(v) + " is declared " + std::string(name(got.dtype)) + to_string(got.shape) +
              " but " + std::string(name(eqn.op)) + " gives " + std::string(name(want[i].dtype)) +
              to_string(want[i].shape));
  }
  check_places(p, eqn);
}

// Everything that must hold of one equation, given what is defined before it.
void verify_eqn(const Program& p, const Eqn& eqn, std::vector<bool>& defined,
                std::vector<Type>& types, Verified& verified) {
  const auto count = static_cast<Var>(p.values.size());
  for (Var v : eqn.in) {
    CHECK(v != none, "an operand is absent; optional operands come with an attribute");
    CHECK(v >= 0 && v < count, "an operand is not a value of this program");
    CHECK(defined[static_cast<std::size_t>(v)], p.name_of(v) + " is used before it is defined");
  }
  for (Var v : eqn.out) {
    if (v == none) continue;
    CHECK(v >= 0 && v < count && !defined[static_cast<std::size_t>(v)], "a value is defined twice");
    defined[static_cast<std::size_t>(v)] = true;
  }
  if (!verified.has(p, eqn)) verify_types(p, eqn, types);
}

// `before`: what has been verified already, or null.
void verify_all(const Program& p, const Program* before) {
  std::vector<bool> defined(p.values.size(), false);
  std::vector<Type> types;
  Names names(p.values.size()), inputs(p.inputs.size()), outputs(p.outputs.size()),
      updated(p.outputs.size());
  std::set<std::pair<Role, std::string_view>> roles;
  Verified verified(before, p.mesh);
  for (const Value& value : p.values) {
    CHECK(is_name(value.name), "'" + value.name + "' is not a name");
    CHECK(names.insert(value.name), "the name " + value.name + " stands for two values");
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
    CHECK(!defined[static_cast<std::size_t>(in.var)] && inputs.insert(in.name),
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
      verify_eqn(p, eqn, defined, types, verified);
    } catch (Error& error) {
      throw error.in("in `" + print(p, eqn) + "`");
    }
  }
  for (const Output& out : p.outputs) {
    CHECK(out.var >= 0 && static_cast<std::size_t>(out.var) < p.values.size() &&
              defined[static_cast<std::size_t>(out.var)],
          "output " + out.name + " is never defined");
    CHECK(outputs.insert(out.name), "output " + out.name + " stands twice");
    CHECK(out.of.empty() != of_something(out.role),
          "output " + out.name + " is a role of nothing, or of something without a role");
    if (out.updates.empty()) continue;
    const Input* target = p.input(out.updates);
    CHECK(target, "output " + out.name + " updates '" + out.updates + "', which is no input");
    CHECK(updated.insert(out.updates), "input " + out.updates + " is updated twice");
    CHECK(p.type(target->var) == p.type(out.var),
          "output " + out.name + " and the input it updates differ in type");
  }
}

}  // namespace

void verify(const Program& program) { verify_all(program, nullptr); }

void verify(const Program& program, const Program& before) { verify_all(program, &before); }

}  // namespace tessera::ir
