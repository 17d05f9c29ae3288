// The passes that make a program of a goal from the model's equations, in their order.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "compile/compile.h"
#include "compile/spec.h"
#include "transforms/transforms.h"

namespace tessera::run {

// A program that the passes make: its goal and its micro-batches. `write` writes the model's
// equations for a micro-batch of so many samples.
struct ProgramRequest {
  const StepSpec& spec;
  const plan::Target& target;
  Goal goal = Goal::train;
  std::vector<std::int64_t> micro;
  Weights weights = Weights::live;
  std::function<ir::Program(std::int64_t)> write;

  bool differentiates() const { return goal == Goal::train || goal == Goal::gradients; }
  bool infers() const { return goal == Goal::evaluate || goal == Goal::predict; }
};

// The passes look at the request and at its spec while they run.
std::vector<transforms::Pass> passes_for(const ProgramRequest& request);

}  // namespace tessera::run
