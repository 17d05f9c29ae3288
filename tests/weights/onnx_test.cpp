// ONNX: graphs of every family are sound (single assignment, everything defined before it is read,
// only operators of opset 17), hold the weights they were given, and are written as Protocol
// Buffers say. Numbers are compared with ONNX Runtime's by tools/prove_exports.py.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/check.h"
#include "checkpoint/weights_open.h"
#include "onnx/graph.h"
#include "onnx/lower.h"
#include "verbs/export_onnx.h"
#include "weights/fixture.h"

namespace tessera::run::onnx_test {
namespace {

using namespace test;

// One field of a message: its number, and its bytes or its value.
struct Field {
  std::uint64_t number = 0, value = 0;
  std::string bytes;
};
std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> out;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<std::uint64_t>(byte & 127) << shift;
      if (byte < 128) return value;
    }
  };
  while (at < message.size()) {
    const std::uint64_t key = varint();
    Field field{key >> 3, 0, {}};
    if ((key & 7) == 0) field.value = varint();
    if ((key & 7) == 5) {
      field.bytes = message.substr(at, 4);
      at += 4;
    }
    if ((key & 7) == 2) {
      const std::uint64_t size = varint();
      field.bytes = message.substr(at, size);
      at += size;
    }
    out.push_back(std::move(field));
  }
  return out;
}
std::vector<std::string> all(const std::vector<Field>& fields, std::uint64_t number) {
  std::vector<std::string> out;
  for (const Field& field : fields)
    if (field.number == number) out.push_back(field.bytes);
  return out;
}

models::ModelConfig tiny_resnet() {
  models::ModelConfig m = models::preset("resnet18_cifar");
  m.image_h = m.image_w = 16;
  m.width = 4;
  m.layers = {1, 1};
  m.stem = "imagenet";
  m.classes = 3;
  return m;
}

OpenedWeights opened(const Scratch& scratch, const models::ModelConfig& m) {
  save_weights(scratch / "w", m, numbers_of(m));
  return open_weights(scratch / "w");
}

// The names that a node's message reads and writes.
TEST(Onnx, GraphsOfEveryFamilyAreSound) {
  const Scratch scratch;
  models::ModelConfig mean = small_vit(), shifted = small_swin();
  mean.pool = "mean";
  const std::set<std::string> opset17 = {"Add",
                                         "BatchNormalization",
                                         "Cast",
                                         "Concat",
                                         "Conv",
                                         "Erf",
                                         "Expand",
                                         "Identity",
                                         "LayerNormalization",
                                         "MatMul",
                                         "MaxPool",
                                         "Mul",
                                         "Pad",
                                         "ReduceSum",
                                         "Relu",
                                         "Reshape",
                                         "Shape",
                                         "Slice",
                                         "Softmax",
                                         "Squeeze",
                                         "Sub",
                                         "Transpose"};
  for (const models::ModelConfig& m : {small_vit(), mean, shifted, tiny_resnet()})
    for (const OnnxOptions& options :
         {OnnxOptions{"f32", false}, OnnxOptions{"bf16", false}, OnnxOptions{"f16", true}}) {
      const auto model = fields_of(onnx_of(opened(scratch, m), options));
      EXPECT_EQ(model[0].number * 100 + model[0].value, 108u);  // IR version 8
      const auto operators = fields_of(all(model, 8).at(0));
      EXPECT_EQ(operators.at(1).value, 17u);
      const auto graph = fields_of(all(model, 7).at(0));
      std::set<std::string> known;
      std::size_t low = 0;
      for (const std::string& one : all(graph, 5)) {
        EXPECT_TRUE(known.insert(all(fields_of(one), 8).at(0)).second);
        std::size_t elements = 1, type = 0;
        for (const Field& f : fields_of(one)) {
          if (f.number == 1) elements *= f.value;
          if (f.number == 2) type = f.value;
        }
        const std::size_t size = type == 7 ? 8 : type == 1 ? 4 : 2;
        EXPECT_EQ(all(fields_of(one), 9).at(0).size(), elements * size);
        low += type == (options.dtype == "bf16" ? 16u : 10u);
      }
      EXPECT_EQ(low > 0, options.dtype != "f32");
      ASSERT_EQ(all(graph, 11).size(), 1u);
      known.insert(all(fields_of(all(graph, 11)[0]), 1).at(0));
      for (const std::string& node : all(graph, 1)) {
        const auto fields = fields_of(node);
        EXPECT_TRUE(opset17.contains(all(fields, 4).at(0))) << all(fields, 4).at(0);
        for (const std::string& name : all(fields, 1)) EXPECT_TRUE(known.contains(name)) << name;
        for (const std::string& name : all(fields, 2)) EXPECT_TRUE(known.insert(name).second);
      }
      EXPECT_TRUE(known.contains("logits"));
      EXPECT_EQ(all(fields_of(all(graph, 12).at(0)), 1).at(0), "logits");
    }
}

// The graph of a batch of any size: no constant of it holds the size that the program was written
// for.
TEST(Onnx, TheBatchIsOpen) {
  const Scratch scratch;
  for (const models::ModelConfig& m : {small_vit(), small_swin(), tiny_resnet()}) {
    const std::string bytes = onnx_of(opened(scratch, m), {});
    std::string sentinel(8, '\0');
    const std::int64_t size = onnx::any_batch;
    std::memcpy(sentinel.data(), &size, 8);
    EXPECT_EQ(bytes.find(sentinel), std::string::npos) << m.family;
    EXPECT_NE(bytes.find("batch"), std::string::npos);
  }
}

TEST(Onnx, MessagesByHand) {
  onnx::Graph graph;
  graph.name = "g";
  graph.inputs = {{"x", onnx::Element::f32, {-1, 300}}};
  graph.outputs = {{"y", onnx::Element::f32, {-1}}};
  graph.initializers = {{"w", onnx::Element::i64, {1}, std::string("\x05\0\0\0\0\0\0\0", 8)}};
  graph.nodes = {{"Softmax", {"x"}, {"y"}, {{"axis", std::int64_t{-1}}, {"f", 0.5F}}}};
  const std::string bytes = onnx::serialise(graph, {"p", "1", {}});
  const std::string node = std::string("\x0a\x01x\x12\x01y\x1a\x09Softmax_0\x22\x07Softmax", 26) +
                           std::string(
                               "\x2a\x14\x0a\x04"
                               "axis\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\xa0\x01\x02",
                               22) +
                           std::string(
                               "\x2a\x0b\x0a\x01"
                               "f\x15\0\0\0\x3f\xa0\x01\x01",
                               13);
  EXPECT_NE(bytes.find(node), std::string::npos);
  // [batch, 300] in the type of x.
  EXPECT_NE(bytes.find(std::string("\x0a\x07\x12\x05"
                                   "batch\x0a\x03\x08\xac\x02",
                                   14)),
            std::string::npos);
}

TEST(Onnx, WhatATypeCannotHoldIsRefused) {
  const Scratch scratch;
  const models::ModelConfig m = small_vit();
  save_weights(scratch / "w", m, [&](const std::string& name) {
    std::vector<double> out = numbers_of(m)(name);
    if (name == "heads.head.weight") out[3] = 70000;
    return out;
  });
  const OpenedWeights w = open_weights(scratch / "w");
  EXPECT_NO_THROW(onnx_of(w, {"bf16", false}));
  try {
    onnx_of(w, {"f16", false});
    ADD_FAILURE() << "70000 is infinite in f16";
  } catch (const Error& error) {
    EXPECT_NE(error.message.find("heads.head.weight"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera::run::onnx_test
