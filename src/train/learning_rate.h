// The learning rate as a function of the step: warm-up, then constant, step, cosine or one-cycle,
// and DeepSpeed's own three.
#pragma once

#include <cstdint>

#include "config/config.h"

namespace tessera::run {

// `step` counts from 1; `total` is the length of the run.
double learning_rate(const config::Config& config, std::int64_t step, std::int64_t total);

}  // namespace tessera::run
