#include "onnx/lower.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/half.h"
#include "onnx/lowering.h"

namespace tessera::onnx {
namespace {

constexpr std::size_t small_constant = 64;  // bytes: such are written once

std::string bytes_of(const std::vector<float>& values) {
  std::string out(values.size() * sizeof(float), '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

std::string low_bytes(const std::string& name, const std::vector<float>& values, Element element) {
  std::string out;
  out.reserve(values.size() * 2);
  for (const float value : values) {
    if (!std::isfinite(value) || (element == Element::f16 && std::abs(value) > 65504.0F))
      throw Error(ErrorKind::usage,
                  "the parameter " + name + " holds " + std::to_string(value) +
                      ", which that type cannot hold",
                  "--dtype", "export f32 or bf16");
    const std::uint16_t bits = element == Element::f16 ? to_half(value) : to_bf16(value);
    out += static_cast<char>(bits & 255);
    out += static_cast<char>(bits >> 8);
  }
  return out;
}

// Dims for ONNX: the batch is -1.
Dims open_dims(const ir::Shape& shape) {
  Dims out(shape.begin(), shape.end());
  for (std::int64_t& dim : out) {
    CHECK(dim == any_batch || dim % any_batch != 0, "the batch is a dim of its own");
    if (dim == any_batch) dim = -1;
  }
  CHECK(std::count(out.begin(), out.end(), -1) <= 1, "a value has one batch");
  return out;
}

}  // namespace

Constant permuted(const Constant& value, const std::vector<int>& perm) {
  const std::size_t rank = value.shape.size();
  CHECK(perm.size() == rank, "a permutation of all dims");
  std::vector<std::int64_t> strides(rank, 1), index(rank, 0);
  for (std::size_t i = rank; i-- > 1;) strides[i - 1] = strides[i] * value.shape[i];
  Constant out{{}, std::vector<float>(value.values.size())};
  for (const int dim : perm) out.shape.push_back(value.shape[static_cast<std::size_t>(dim)]);
  std::int64_t from = 0;
  for (float& element : out.values) {
    element = value.values[static_cast<std::size_t>(from)];
    for (std::size_t d = rank; d-- > 0;) {
      const std::int64_t stride = strides[static_cast<std::size_t>(perm[d])];
      from += stride;
      if (++index[d] < out.shape[d]) break;
      from -= stride * out.shape[d];
      index[d] = 0;
    }
  }
  return out;
}

Lowering::Lowering(const ir::Program& given, const LowerOptions& options)
    : program(given), options_(options), values_(given.values.size()) {
  graph.name = given.name;
}

const Constant& Lowering::constant(ir::Var v) const {
  CHECK(is_constant(v), program.name_of(v) + " follows from parameters alone");
  return *at(v).constant;
}

std::string Lowering::fresh(const std::string& hint) {
  std::string name = hint;
  for (int n = 1; !taken_.insert(name).second; ++n) name = hint + "_" + std::to_string(n);
  return name;
}

std::string Lowering::name(ir::Var v) {
  Value& value = at(v);
  if (!value.plain.empty()) return value.plain;
  if (value.constant) return value.plain = parameter(program.name_of(v), *value.constant);
  CHECK(!value.turned.empty(), program.name_of(v) + " was written before it is read");
  return value.plain = transpose(value.turned, {0, 2, 3, 1});
}

std::string Lowering::channels_first(ir::Var v) {
  CHECK(shape(v).size() == 4, "an image has four dims");
  Value& value = at(v);
  if (value.turned.empty()) value.turned = transpose(name(v), {0, 3, 1, 2});
  return value.turned;
}

std::string Lowering::node(const std::string& op, std::vector<std::string> in,
                           std::map<std::string, Attribute> attributes) {
  std::string lower = op;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  std::string out = fresh(lower);
  graph.nodes.push_back(
      {.op = op, .in = std::move(in), .out = {out}, .attributes = std::move(attributes)});
  return out;
}

std::string Lowering::numbers(const Constant& value) {
  const Dims dims(value.shape.begin(), value.shape.end());
  std::string bytes = bytes_of(value.values);
  if (bytes.size() > small_constant) {
    std::string name = fresh("constant");
    graph.initializers.push_back(
        {.name = name, .element = Element::f32, .dims = dims, .bytes = std::move(bytes)});
    return name;
  }
  std::string& name = known_[{dims, bytes}];
  if (name.empty()) {
    name = fresh("constant");
    graph.initializers.push_back(
        {.name = name, .element = Element::f32, .dims = dims, .bytes = std::move(bytes)});
  }
  return name;
}

std::string Lowering::parameter(const std::string& hint, const Constant& value) {
  std::string name = fresh(hint);
  const Dims dims(value.shape.begin(), value.shape.end());
  graph.initializers.push_back(
      {.name = name, .element = Element::f32, .dims = dims, .bytes = bytes_of(value.values)});
  return name;
}

std::string Lowering::weights(const std::string& hint, const Constant& value) {
  if (options_.weights == Element::f32) return parameter(hint, value);
  const Dims dims(value.shape.begin(), value.shape.end());
  const std::string name = fresh(hint);
  graph.initializers.push_back({.name = name,
                                .element = options_.weights,
                                .dims = dims,
                                .bytes = low_bytes(hint, value.values, options_.weights)});
  return node("Cast", {name}, {{"to", static_cast<std::int64_t>(Element::f32)}});
}

std::string Lowering::whole(const Dims& values) {
  std::string bytes(values.size() * sizeof(std::int64_t), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  // Lists of numbers and floats never share dims of this kind: -1 marks them.
  std::string& name = known_[{{-1, static_cast<std::int64_t>(values.size())}, bytes}];
  if (name.empty()) {
    name = fresh("list");
    graph.initializers.push_back({.name = name,
                                  .element = Element::i64,
                                  .dims = {static_cast<std::int64_t>(values.size())},
                                  .bytes = std::move(bytes)});
  }
  return name;
}

std::string Lowering::reshape(const std::string& x, const ir::Shape& from, const ir::Shape& to) {
  if (from == to) return x;
  return node("Reshape", {x, whole(open_dims(to))});
}

std::string Lowering::transpose(const std::string& x, const std::vector<int>& perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return x;
  return node("Transpose", {x}, {{"perm", Dims(perm.begin(), perm.end())}});
}

std::string Lowering::slice(const std::string& x, int dim, std::int64_t start, std::int64_t end) {
  return node("Slice", {x, whole({start}), whole({end}), whole({dim})});
}

std::string Lowering::batch_size() {
  if (batch_.empty())
    batch_ = node("Shape", {graph.inputs.at(0).name},
                  {{"start", std::int64_t{0}}, {"end", std::int64_t{1}}});
  return batch_;
}

Graph lower(const ir::Program& program,
            const std::function<std::vector<float>(const std::string& name)>& values,
            const LowerOptions& options) {
  Lowering to(program, options);
  for (const ir::Input& input : program.inputs) {
    const ir::Shape& shape = program.type(input.var).shape;
    if (input.kind != ir::Input::batch) {
      to.set_constant(input.var, {shape, values(input.name)});
      continue;
    }
    const bool pixels = program.type(input.var).dtype == ir::DType::u8;
    Dims dims = open_dims(shape);
    const bool turned = options.channels_first_input && !pixels && dims.size() == 4;
    if (turned) dims = {dims[0], dims[3], dims[1], dims[2]};
    to.graph.inputs.push_back({input.name, pixels ? Element::u8 : Element::f32, dims});
    turned ? to.set_channels_first(input.var, input.name) : to.set(input.var, input.name);
  }
  CHECK(to.graph.inputs.size() == 1, "a forward program reads one batch");
  for (const ir::Eqn& eqn : program.eqns)
    if (!lower_plain(to, eqn) && !lower_contract(to, eqn) && !lower_window(to, eqn) &&
        !lower_image(to, eqn))
      throw Error(ErrorKind::usage,
                  "the op " + std::string(ir::name(eqn.op)) + " of " + eqn.scope +
                      " has no form in ONNX here",
                  "--onnx", "export safetensors instead");
  for (const ir::Output& output : program.outputs) {
    to.graph.nodes.push_back(
        {.op = "Identity", .in = {to.name(output.var)}, .out = {output.name}, .attributes = {}});
    to.graph.outputs.push_back(
        {output.name, Element::f32, open_dims(program.type(output.var).shape)});
  }
  return std::move(to.graph);
}

}  // namespace tessera::onnx
