#include "onnx/graph.h"

#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace tessera::onnx {
namespace {

// A message of Protocol Buffers: fields one after the other, each a number with its wire type.
class Message {
 public:
  void number(int field, std::int64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void real(int field, float value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>(bits >> (8 * i));
  }
  void text(int field, const std::string& value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  std::string take() { return std::move(bytes_); }

 private:
  void varint(std::uint64_t value) {
    for (; value > 127; value >>= 7) bytes_ += static_cast<char>((value & 127) | 128);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

Message of_attribute(const std::string& name, const Attribute& value) {
  // AttributeProto: name 1, f 2, i 3, s 4, ints 8, type 20.
  Message out;
  out.text(1, name);
  if (const auto* real = std::get_if<float>(&value)) {
    out.real(2, *real);
    out.number(20, 1);
  } else if (const auto* number = std::get_if<std::int64_t>(&value)) {
    out.number(3, *number);
    out.number(20, 2);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    out.text(4, *text);
    out.number(20, 3);
  } else {
    for (const std::int64_t one : std::get<Dims>(value)) out.number(8, one);
    out.number(20, 7);
  }
  return out;
}

Message of_node(const Node& node, std::size_t at) {
  // NodeProto: input 1, output 2, name 3, op_type 4, attribute 5.
  Message out;
  for (const std::string& name : node.in) out.text(1, name);
  for (const std::string& name : node.out) out.text(2, name);
  out.text(3, node.op + "_" + std::to_string(at));
  out.text(4, node.op);
  for (const auto& [name, value] : node.attributes) out.message(5, of_attribute(name, value));
  return out;
}

Message of_initializer(const Initializer& one) {
  // TensorProto: dims 1, data_type 2, name 8, raw_data 9.
  Message out;
  for (const std::int64_t dim : one.dims) out.number(1, dim);
  out.number(2, static_cast<std::int64_t>(one.element));
  out.text(8, one.name);
  out.text(9, one.bytes);
  return out;
}

Message of_port(const Port& port) {
  // ValueInfoProto: name 1, type 2. TypeProto: tensor_type 1 (elem_type 1, shape 2 (dim 1
  // (dim_value 1, dim_param 2))).
  Message shape, tensor, type, out;
  for (const std::int64_t dim : port.dims) {
    Message one;
    if (dim < 0)
      one.text(2, "batch");
    else
      one.number(1, dim);
    shape.message(1, one);
  }
  tensor.number(1, static_cast<std::int64_t>(port.element));
  tensor.message(2, shape);
  type.message(1, tensor);
  out.text(1, port.name);
  out.message(2, type);
  return out;
}

}  // namespace

std::string serialise(const Graph& graph, const About& about) {
  std::uint64_t bytes = 0;
  for (const Initializer& one : graph.initializers) bytes += one.bytes.size() + 1024;
  if (bytes > std::numeric_limits<std::int32_t>::max())
    throw Error(ErrorKind::usage,
                "the model's weights are larger than the 2 GiB that an ONNX file holds", "--onnx",
                "halve them with --dtype f16 or bf16, or export safetensors");
  // GraphProto: node 1, name 2, initializer 5, input 11, output 12.
  Message body;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) body.message(1, of_node(graph.nodes[i], i));
  body.text(2, graph.name);
  for (const Initializer& one : graph.initializers) body.message(5, of_initializer(one));
  for (const Port& port : graph.inputs) body.message(11, of_port(port));
  for (const Port& port : graph.outputs) body.message(12, of_port(port));
  // ModelProto: ir_version 1, producer_name 2, producer_version 3, graph 7, opset_import 8 (domain
  // 1, version 2), metadata_props 14 (key 1, value 2).
  Message model, operators;
  model.number(1, ir_version);
  model.text(2, about.producer);
  model.text(3, about.version);
  model.message(7, body);
  operators.text(1, "");
  operators.number(2, opset);
  model.message(8, operators);
  for (const auto& [key, value] : about.metadata) {
    Message entry;
    entry.text(1, key);
    entry.text(2, value);
    model.message(14, entry);
  }
  return model.take();
}

}  // namespace tessera::onnx
