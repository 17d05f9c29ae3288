// A configuration as the compiler wants it, resolved once: how ranks are arranged, which stage has
// which parameter, the buckets, the optimizer. Convention: whoever compiles several plans resolves
// first and hands the spec down; nothing below reads a schedule or cuts a model again.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "transforms/transforms.h"

namespace tessera::run {

struct StepSpec {
  config::Config config;
  ir::DType real = ir::DType::f32;  // of parameters and scalars: f64 for f64, else f32
  transforms::Layout layout;
  ir::Mesh mesh;                      // of all ranks
  std::vector<std::int64_t> blocks;   // of each stage; empty: there is one
  std::map<std::string, int> stages;  // of each parameter and buffer; empty without ranks of stages
  std::optional<transforms::Schedule> schedule;  // that a file gave
  std::vector<transforms::Bucket> buckets;  // the same for every goal, so that plans share weights
  transforms::Optimizer optimizer;
  transforms::Compression compression;
  std::optional<ir::DType> low;  // of mixed precision: bf16 or f16
  bool fp8 = false;              // products of the blocks in eight bits, beside bf16
  bool infers = false;           // nothing is trained here: evaluation is in eight bits as well
  ir::LossScale loss_scale;      // f16 only

  void share_by(const std::vector<double>& shares);  // other shares of a batch per dp rank
};

// Error(usage) where stages or a schedule's file do not fit.
StepSpec resolve(const config::Config& config);

}  // namespace tessera::run
