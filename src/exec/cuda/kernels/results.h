// The small results that a run leaves, gathered into pinned memory of the host by one kernel, so
// that whoever waits for the run finds them there.
#pragma once

#include <cstdint>
#include <span>

#include "exec/cuda/handles.h"

namespace tessera::exec::cuda {

struct Result {
  const std::byte* from = nullptr;  // on the card
  std::int64_t bytes = 0, at = 0;   // the second: its place on the host
};
// Each goes to `to` + at; `to` is pinned.
void gather_results(std::span<const Result> results, std::byte* to, cudaStream_t stream);

}  // namespace tessera::exec::cuda
