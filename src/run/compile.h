// config -> Plan: the one place that wires the picture (model, transforms in order, plan).
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "plan/plan.h"
#include "transforms/transforms.h"

namespace tessera::run {

// What a plan is for. Inputs are always images and (but for predict) labels and inv_count; outputs:
//   train      loss, correct, grad_norm, ok, and the updated weights and state
//   gradients  loss, correct, logits, grad.<parameter>    (parameters are separate inputs, no buckets)
//   evaluate   loss, correct, correct5, logits
//   predict    logits
enum class Goal { train, gradients, evaluate, predict };

struct Compiled {
  plan::Plan plan;
  std::vector<transforms::PassReport> passes;
};

// `micro`: samples of each micro-batch (several only for train).
Compiled compile(const config::Config& config, Goal goal, const std::vector<std::int64_t>& micro, const plan::WorkspaceRule& workspace,
                 const transforms::RunOptions& options = {});

// The buckets of a model: the same for every goal, so that plans share weights.
std::vector<transforms::Bucket> model_buckets(const config::Config& config);

ir::DType storage_dtype(const config::Config& config);  // of parameters and scalars: f64 for f64, else f32

}  // namespace tessera::run
