// The plans that a training needs, in one list: training with its last, smaller batch, evaluation,
// and the recalibration of batch norm. Convention: explain, the check of memory before the start
// and the run itself all ask this list, so they state the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "config/config.h"

namespace tessera::run {

struct PlanKey {
  Goal goal = Goal::train;
  std::int64_t samples = 0;
  Weights weights = Weights::live;
  std::optional<ImageForm> form = {};  // none: image_form() of the configuration
  auto operator<=>(const PlanKey&) const = default;
};
std::string name_of(const PlanKey& key);  // "train 20", "evaluate 11 (average)"

// Epochs, steps and batch sizes of a training, from its configuration and the number of samples
// that it uses.
struct RunExtent {
  std::int64_t samples = 0, test = 0;  // of the training set as far as it is used; of the test set
  std::int64_t batch = 0;              // samples of a whole batch: no more than there are
  std::int64_t epoch_batches = 0, epoch_samples = 0;
  std::int64_t steps = 0;  // of the whole run
};
RunExtent extent_of(const config::Config& config, std::int64_t samples, std::int64_t test);

// `config` has batch.global = extent.batch. The first plan is that of a whole training batch; no
// plan stands there twice.
std::vector<PlanKey> plans_of_training(const config::Config& config, const RunExtent& extent);

// Images at a time while training: a micro-batch; with stages as many as keep them busy, but no
// more than a step has room for.
std::int64_t evaluation_batch(const config::Config& config);
// Batches of an epoch that a recalibration looks at, at most.
inline constexpr std::int64_t recalibration_batches = 20;

}  // namespace tessera::run
