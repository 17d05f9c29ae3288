// A program: typed inputs, equations in single assignment, named outputs. A plain value; passes
// take one and return another.
#pragma once

#include <string>
#include <vector>

#include "ir/op.h"
#include "ir/role.h"

namespace tessera::ir {

struct Value {
  std::string name;
  Type type;
  bool operator==(const Value&) const = default;
};

// Where a persistent input rests between the equations that need it: where the program runs, or
// away from there, in memory of the host or in a file.
enum class Home : std::uint8_t { device, host, file };
std::string_view name(Home home);
std::optional<Home> parse_home(std::string_view text);

struct Input {
  enum Kind { batch, param, state, scalar } kind = batch;
  Var var = none;
  std::string name;  // what a run binds: "images", "labels", "lr", a parameter's name, ...
  std::vector<std::string> dims;  // names of the dims of a parameter; may be empty
  Role role = Role::none;
  std::string of{};  // the bucket, or the parameter, that the role is about
  Home home = Home::device;
  std::int64_t piece = 0;  // away: the most bytes of it that come and go at a time
  bool operator==(const Input&) const = default;
};

struct Output {
  std::string name;
  Var var = none;
  std::string updates;  // the input whose storage it takes over (donation); may be empty
  Role role = Role::none;
  std::string of{};
  bool operator==(const Output&) const = default;
};

// weight: the part of a backward pass that nobody but the update waits for, where a schedule wants
// it apart.
enum class Phase : std::uint8_t { forward, backward, recompute, weight, update };

struct Eqn {
  Op op = Op::mark;
  Attrs attrs;
  std::vector<Var> in, out;
  std::string scope;  // "blocks.0.mlp"
  Phase phase = Phase::forward;
  int stage = 0, micro = 0;  // of the pipeline; the micro-batch of the step
  bool operator==(const Eqn&) const = default;
};

struct Program {
  std::string name = "program";
  Mesh mesh;
  std::vector<Value> values;  // indexed by Var
  std::vector<Input> inputs;
  std::vector<Eqn> eqns;
  std::vector<Output> outputs;
  bool operator==(const Program&) const = default;

  const Type& type(Var v) const { return values[static_cast<std::size_t>(v)].type; }
  const std::string& name_of(Var v) const { return values[static_cast<std::size_t>(v)].name; }
  std::vector<Type> types(
      const std::vector<Var>& vars) const;          // an absent operand or result has an empty type
  const Input* input(std::string_view name) const;  // null when absent
  const Input* input(Role role, std::string_view of) const;
};

// Whether every result has all dims of the operands, and every operand has them too or is a single
// number, by the signature: such an equation can be done in pieces.
bool by_element(const Eqn& eqn);

// Throws Error(internal) that names the equation: single assignment, defined before use, every type
// recomputed, names unique.
void verify(const Program& program);

// Characters that the text form writes without quotes: letters, digits and _ . ~ ' / (a name is at
// least one; _ alone means absent).
bool is_name_char(char c);

// The text form (grammar in docs/ir.md). parse(print(p)) == p up to the numbering of values;
// print(parse(s)) == s.
std::string print(const Program& program);
std::string print(const Program& program, const Eqn& eqn);
std::string print(const Attrs& attrs);  // " key=value" for every member that is not at its default
Program parse(std::string_view text);   // Error(usage) with line and column

// Sum over equations; `recomputed` ones are left out by the caller when it wants model FLOPs.
Cost cost(const Program& program);

}  // namespace tessera::ir
