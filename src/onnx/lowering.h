// The state of a program on its way to ONNX: what each value is called there, and how nodes and
// constants are added. One function per op family writes through it (lower_*.cpp).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "ir/program.h"
#include "onnx/lower.h"

namespace tessera::onnx {

struct Constant {
  ir::Shape shape;
  std::vector<float> values;
};

class Lowering {
 public:
  Lowering(const ir::Program& program, const LowerOptions& options);

  const ir::Shape& shape(ir::Var v) const { return program.type(v).shape; }

  // Constants.
  bool is_constant(ir::Var v) const { return at(v).constant.has_value(); }
  const Constant& constant(ir::Var v) const;
  void set_constant(ir::Var v, Constant value) { at(v).constant = std::move(value); }

  // The name of a value in the layout of the program, or of an image [b,h,w,c] as [b,c,h,w].
  std::string name(ir::Var v);
  std::string channels_first(ir::Var v);
  bool is_channels_first(ir::Var v) const { return !at(v).turned.empty(); }
  void set(ir::Var v, std::string name) { at(v).plain = std::move(name); }
  void set_channels_first(ir::Var v, std::string name) { at(v).turned = std::move(name); }

  // Adds a node of one result and returns its name.
  std::string node(const std::string& op, std::vector<std::string> in,
                   std::map<std::string, Attribute> attributes = {});
  // Matrices, filters: stored as LowerOptions says. Other parameters: f32.
  std::string weights(const std::string& hint, const Constant& value);
  std::string parameter(const std::string& hint, const Constant& value);
  std::string numbers(const Constant& value);  // always f32
  std::string number(double value) { return numbers({{}, {static_cast<float>(value)}}); }
  std::string whole(const Dims& values);  // a list of i64

  // Nodes that many ops need; each returns its argument where there is nothing to do.
  std::string reshape(const std::string& x, const ir::Shape& from, const ir::Shape& to);
  std::string transpose(const std::string& x, const std::vector<int>& perm);
  std::string slice(const std::string& x, int dim, std::int64_t start, std::int64_t end);
  std::string batch_size();  // a list of one

  const ir::Program& program;
  Graph graph;

 private:
  struct Value {
    std::string plain, turned;  // "": not there yet
    std::optional<Constant> constant;
  };
  Value& at(ir::Var v) { return values_[static_cast<std::size_t>(v)]; }
  const Value& at(ir::Var v) const { return values_[static_cast<std::size_t>(v)]; }
  std::string fresh(const std::string& hint);

  LowerOptions options_;
  std::vector<Value> values_;
  std::set<std::string> taken_;
  std::map<std::pair<Dims, std::string>, std::string> known_;  // dims and bytes of small constants
  std::string batch_;
};

// The elements of a constant with its dims in another order: dim i of the result is dim perm[i].
Constant permuted(const Constant& value, const std::vector<int>& perm);

// Writes the nodes of one equation; false: the family does not know the op.
bool lower_plain(Lowering& to, const ir::Eqn& eqn);
bool lower_contract(Lowering& to, const ir::Eqn& eqn);
bool lower_window(Lowering& to, const ir::Eqn& eqn);
bool lower_image(Lowering& to, const ir::Eqn& eqn);

}  // namespace tessera::onnx
