// Model state of vit_tiny_cifar per rank under ZeRO: what the plan says, and what an executor takes
// for it.
#pragma once

#include <cstdint>

namespace tessera::test {

struct StateBytes {
  std::int64_t weights = 0, gradients = 0, optimizer = 0;  // as planned
  std::int64_t in_flight = 0;  // gradients: whole buckets still to be cut into parts
  std::int64_t allocated =
      0;  // persistent buffers of an executor, and the bytes of its arena that hold gradients
  std::int64_t planned() const { return weights + gradients + optimizer; }
};
StateBytes state_bytes(int stage, int ranks, int rank, bool as_it_runs = false);

double state_formula(int stage, int ranks);  // bytes per parameter
std::int64_t state_parameters();
std::int64_t state_largest_bucket(int stage);  // bytes

}  // namespace tessera::test
