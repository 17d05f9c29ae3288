// Writes programs: equations are appended with inferred types and names that come from scopes.
// Convention: helper methods are named after the op; shape legend b batch, t token, c channel, h
// head, d head dim.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "ir/program.h"

namespace tessera::ir {

class Builder {
 public:
  Builder() = default;
  explicit Builder(Program start);  // go on writing an existing program

  // RAII: names and equations made inside carry "outer.inner".
  class Scope {
   public:
    Scope(Builder& b, std::string_view name);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Builder& builder_;
    std::string before_;
  };
  [[nodiscard]] Scope scope(std::string_view name) { return Scope(*this, name); }
  void set_scope(std::string scope) { scope_ = std::move(scope); }
  const std::string& current_scope() const { return scope_; }
  void set_phase(Phase phase) { phase_ = phase; }
  void set_stage(int stage) { stage_ = stage; }
  void set_micro(int micro) { micro_ = micro; }
  void enter(
      const Eqn& eqn);  // what follows has this equation's scope, phase, stage and micro-batch

  Var input(Input::Kind kind, const std::string& name, Type type,
            std::vector<std::string> dims = {}, Role role = Role::none, std::string of = {});
  Var input(const Input& like, Type type);  // another program's
  void output(const std::string& name, Var v, const std::string& updates = {},
              Role role = Role::none, std::string of = {});
  void output(const Output& like, Var v);

  // Appends an equation. `names` are hints for the results, joined to the scope; without a hint the
  // op's name serves.
  std::vector<Var> emit(Op op, Attrs attrs, std::vector<Var> in,
                        const std::vector<std::string>& names = {});
  Var emit1(Op op, Attrs attrs, std::vector<Var> in, const std::string& name = {});
  // As emit, but results get exactly these names (made unique), not joined to the scope.
  std::vector<Var> emit_named(Op op, Attrs attrs, std::vector<Var> in,
                              const std::vector<std::string>& names);

  Var contract(const std::string& sig, Var x, Var w, const std::string& name = {}) {
    return emit1(Op::contract, Contract{sig, {}, {}}, {x, w}, name);
  }
  Var add(const std::string& sig, Var a, Var b, const std::string& name = {}) {
    return emit1(Op::add, Sig{sig}, {a, b}, name);
  }
  Var add(Var a, Var b, const std::string& name = {}) { return add(same(a, 2), a, b, name); }
  Var mul(const std::string& sig, Var a, Var b, const std::string& name = {}) {
    return emit1(Op::mul, Sig{sig}, {a, b}, name);
  }
  Var scale(Var x, double factor, const std::string& name = {}) {
    return emit1(Op::scale, Scale{factor}, {x}, name);
  }
  Var sum(const std::string& sig, Var x, const std::string& name = {}) {
    return emit1(Op::sum, Sum{sig, {}}, {x}, name);
  }
  Var cast(Var x, DType to) { return emit1(Op::cast, Cast{to}, {x}); }
  Var mark(const std::string& label, Var x, const std::string& name = {}, int dim = -1) {
    return emit1(Op::mark, Mark{label, dim}, {x}, name);
  }
  Var reshape(Var x, Shape shape) { return emit1(Op::reshape, Reshape{std::move(shape)}, {x}); }
  Var constant(double value, DType dtype, Shape shape = {}) {
    return emit1(Op::constant, Constant{value, dtype, std::move(shape)}, {});
  }

  void rename(Var v, const std::string& name);  // made unique like every name

  const Type& type(Var v) const { return program_.type(v); }
  const std::string& name_of(Var v) const { return program_.name_of(v); }
  // "abc,abc->abc" for the rank of x and n operands.
  std::string same(Var x, int operands) const;

  Program& program() { return program_; }
  const Program& program() const { return program_; }
  Program take() { return std::move(program_); }

 private:
  friend class Rewriter;
  // An equation in the current scope, phase, stage and micro-batch, without results.
  Eqn here(Op op, Attrs attrs, std::vector<Var> in) const;
  // Appends an equation whose results have these types, each named `name_of(i)`; "_" is absent.
  template <class NameOf>
  const Eqn& append(Eqn eqn, std::vector<Type> types, const NameOf& name_of);
  std::string unique(const std::string& name);
  Var fresh(const std::string& name, Type type);
  void infer_places(const Eqn& eqn);

  Program program_;
  std::unordered_map<std::string, int> used_;
  std::string scope_;
  Phase phase_ = Phase::forward;
  int stage_ = 0, micro_ = 0;
};

// Copies a program equation by equation into a new one; a pass overrides what it rewrites. Types
// are inferred anew where an operand has become another, and by the verifier after the pass.
class Rewriter {
 public:
  explicit Rewriter(const Program& from);  // inputs are copied
  Rewriter(const Program& from, bool copy_inputs);

  Var operator()(Var old) const { return old == none ? none : map_[static_cast<std::size_t>(old)]; }
  std::vector<Var> operator()(const std::vector<Var>& old) const;
  void set(Var old, Var now) { map_[static_cast<std::size_t>(old)] = now; }
  void copy_input(const Input& input);
  void copy(const Eqn& eqn);  // same op on mapped operands
  // Same op and attributes on these operands; `eqn` is the program's own, or lacks some results.
  std::vector<Var> copy_on(const Eqn& eqn, std::vector<Var> in);
  std::vector<Var> copy_with(const Eqn& eqn, Attrs attrs,
                             std::vector<Var> in);  // results keep their names and are mapped
  void enter(const Eqn& eqn) { to.enter(eqn); }
  Program finish();  // outputs mapped

  const Program& from;
  Builder to;

 private:
  std::vector<Var> map_;
};

}  // namespace tessera::ir
