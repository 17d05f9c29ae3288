// Weights that a verb runs as they are: what lies where --weights points, and how it is run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/weights_open.h"
#include "config/problem.h"
#include "ranks/ranks.h"
#include "session/session.h"
#include "verbs/verbs.h"

namespace tessera::run {

// The model is that of the weights, the rest is as flags and keys say.
struct Found {
  OpenedWeights weights;
  config::Config config;
  config::Given given;
  std::vector<std::string> notes;
};
Found find_weights(const WeightsOptions& options);
// Error(usage) where the device or the element type cannot run its weights quantised as "int8" or
// "fp8".
void check_runs_quantised(const Found& found, const std::string& as);

// The data becomes `data`, of which the test images are those that the run of the weights kept;
// Error(usage) when its images are no images of the model's. `weights`: for messages.
void use_data(Found& found, const std::string& data, const std::string& weights);

// A session with these weights, on every rank, for batches up to this size.
std::unique_ptr<Session> load_found(const Found& found, const Ranks& ranks, std::int64_t batch);

}  // namespace tessera::run
