// From a forward program to an ONNX graph.
// Convention: the program is written for a batch of `any_batch` samples, and a dim of that size is
// the batch, whatever its size. Parameters are constants; what only constants go into is computed
// here. Images of convolutions are channels-first, as ONNX has them: a value is turned where it has
// to be, and stays turned as long as nobody minds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/program.h"
#include "onnx/graph.h"

namespace tessera::onnx {

// A prime that is no dim of any model.
inline constexpr std::int64_t any_batch = 1000003;

struct LowerOptions {
  // How matrices and filters are stored; the graph computes in f32.
  Element weights = Element::f32;
  // The input is [batch, channels, height, width] as other frameworks have it; else as the program
  // does.
  bool channels_first_input = true;
};

// `values`: the elements of a parameter in our layout, by its input's name. The program reads one
// batch, `images`, and its output `logits` is the graph's. Error(usage) on an op that a forward
// program of ours does not have.
Graph lower(const ir::Program& program,
            const std::function<std::vector<float>(const std::string& name)>& values,
            const LowerOptions& options);

}  // namespace tessera::onnx
