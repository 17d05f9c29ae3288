// config -> Plan: the one place that wires the picture (model, transforms in order, plan).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/spec.h"
#include "config/config.h"
#include "models/model.h"
#include "plan/plan.h"
#include "transforms/transforms.h"

namespace tessera::run {

// The form of a batch's images: pixels u8, which the program normalises; numbers that whoever feeds
// it has normalised; pixels with draws, by which the program augments them; or the places of
// samples in the pictures that the device holds, with draws where there is something to augment.
enum class ImageForm { pixels, numbers, drawn, held };

// The purpose of a plan. Inputs are always images and (but for predict) labels and inv_count;
// outputs:
//   train        loss, correct, grad_norm, ok, and the updated weights and state
//   gradients    loss, correct, logits, grad.<parameter>; parameters are inputs of their own
//   evaluate     loss, correct, correct5, logits
//   predict      logits
//   recalibrate  the batch's statistics in place of the running ones; no labels
// Further inputs of train: targets where batches are mixed, weights where samples are weighted.
enum class Goal { train, gradients, evaluate, predict, recalibrate };

// Which weights a plan reads: those that are trained, or their moving average (with running
// statistics of its own).
enum class Weights { live, average };

struct Compiled {
  ir::Program program;  // of all ranks
  plan::Plan plan;      // of this one
  std::vector<transforms::PassReport> passes;
};

// As the batches of the configuration are: evaluation and prediction read pixels, training where
// its augmentations leave pixels or the device does them (input/augment.h), and gradients are those
// of given numbers.
ImageForm image_form(const config::Config& config, Goal goal);

// `micro`: samples of each micro-batch (several only for train). `form`: image_form() where it is
// not said.
Compiled compile(const StepSpec& spec, Goal goal, const std::vector<std::int64_t>& micro,
                 const plan::Target& target, const transforms::RunOptions& options = {},
                 Weights weights = Weights::live, int rank = 0, std::optional<ImageForm> form = {});
// The same for a configuration of which only this plan is made: it is resolved on the way.
inline Compiled compile(const config::Config& config, Goal goal,
                        const std::vector<std::int64_t>& micro, const plan::Target& target,
                        const transforms::RunOptions& options = {}, Weights weights = Weights::live,
                        int rank = 0, std::optional<ImageForm> form = {}) {
  return compile(resolve(config), goal, micro, target, options, weights, rank, form);
}

// The optimizer's group of a parameter under this configuration; nothing where it is frozen or a
// buffer.
std::optional<transforms::Group> group_of(const config::Config& config, const models::Param& param);

ir::Role role_of(Weights weights);  // of their buckets

// The persistent input that holds what is in no bucket: a buffer or a frozen parameter.
ir::Role state_role(const models::Param& param, Weights weights);
std::string state_name(const models::Param& param, Weights weights);

// The buckets of a model, by its groups, layout and stages.
std::vector<transforms::Bucket> model_buckets(const StepSpec& spec);
inline std::vector<transforms::Bucket> model_buckets(const config::Config& config) {
  return resolve(config).buckets;
}

ir::DType storage_dtype(const config::Config& config);

}  // namespace tessera::run
