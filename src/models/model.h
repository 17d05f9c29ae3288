// A model: a row in a registry, a plain description, its parameters by name, and a function that
// writes its forward program. Convention: parameters carry torchvision's names; their shapes are
// ours (natural rank), `torch_shape` and `torch_perm` say how to get there.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "models/config.h"

namespace tessera::models {

// How one parameter starts: distributed as torchvision does, drawn by parameter name and logical
// element.
struct Init {
  enum Kind { zeros, ones, normal, truncated_normal, uniform } kind = zeros;
  double scale = 0.0;  // standard deviation, or the bound of the uniform distribution
};

struct Param {
  std::string name;               // torchvision's
  ir::Shape shape;                // ours
  std::vector<std::string> dims;  // names of the dims: "heads", "mlp", ... (what strategies shard)
  Init init;
  bool decay = true;      // weight decay applies (docs/cli.md: not to 1-D tensors, class token,
                          // position embeddings, bias tables)
  ir::Shape torch_shape;  // as in torchvision's state dict
  std::vector<int> torch_perm;  // reshape(torch, split_shape) then transpose by this gives ours;
                                // empty: a plain reshape
  ir::Shape split_shape;        // torch_shape split to our rank, in torch order; empty: torch_shape
  bool buffer = false;  // running statistics: state that the forward pass updates, never trained
};

std::vector<Param> parameters(const ModelConfig& config);

// Whole numbers that torch's state dict holds beside the parameters and that follow from the
// description: written, never read.
struct DerivedTensor {
  std::string name;
  ir::Shape shape;
  std::vector<std::int64_t> values;
};
std::vector<DerivedTensor> derived_tensors(const ModelConfig& config);

// The purpose of a forward program.
struct Mode {
  bool random = false;            // dropout and drop-path draw
  bool batch_statistics = false;  // batch norm normalises by the batch and writes running
                                  // statistics as outputs that update their inputs
  double momentum = 0.1;          // of the running statistics
  std::int64_t groups = 1;  // contiguous parts of the batch that batch norm normalises each by
                            // itself: one per rank, or 1
};
using ParamOf = std::function<ir::Var(const std::string&)>;

// Writes the forward program: images [b,h,w,c] -> logits [b,classes]. `param` gives the variable of
// a parameter or buffer by name.
ir::Var forward(ir::Builder& b, const ModelConfig& config, ir::Var images, const Mode& mode,
                const ParamOf& param);

}  // namespace tessera::models
