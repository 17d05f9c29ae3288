// The single numbers that a run leaves, gathered into pinned memory of the host by one kernel, so
// that whoever waits for the run finds them there.
#pragma once

#include <span>
#include <vector>

#include "exec/cuda/handles.h"

namespace tessera::exec::cuda {

inline constexpr int scalar_bytes = 8;  // of each, whatever its type

struct Scalar {
  const std::byte* from = nullptr;  // on the card
  int bytes = 0;
};
// Number i goes to `to` + i * scalar_bytes; `to` is pinned.
void gather_scalars(std::span<const Scalar> scalars, std::byte* to, cudaStream_t stream);

}  // namespace tessera::exec::cuda
