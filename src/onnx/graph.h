// An ONNX model as plain values, and its bytes. The format is Protocol Buffers (onnx.proto3, IR
// version 8, opset 17); the few messages that a graph needs are written here by hand.
// Convention: initializers that are equal share a name; every other name is given once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace tessera::onnx {

enum class Element { f32 = 1, u8 = 2, i64 = 7, f16 = 10, bf16 = 16 };  // TensorProto's numbers

using Dims = std::vector<std::int64_t>;

struct Initializer {
  std::string name;
  Element element = Element::f32;
  Dims dims;
  std::string bytes;  // little endian, row-major
};

using Attribute = std::variant<std::int64_t, float, Dims, std::string>;

struct Node {
  std::string op;
  std::vector<std::string> in, out;
  std::map<std::string, Attribute> attributes;
};

// Dims of -1 are the batch, whose size the reader chooses.
struct Port {
  std::string name;
  Element element = Element::f32;
  Dims dims;
};

struct Graph {
  std::string name;
  std::vector<Port> inputs, outputs;
  std::vector<Initializer> initializers;
  std::vector<Node> nodes;  // in an order in which they can run
};

inline constexpr int ir_version = 8, opset = 17;

struct About {
  std::string producer, version;
  std::map<std::string, std::string> metadata;
};

// The whole model file. Error(usage) where it would be larger than a protobuf message may be.
std::string serialise(const Graph& graph, const About& about);

}  // namespace tessera::onnx
