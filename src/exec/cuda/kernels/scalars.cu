#include <cuda_runtime.h>

#include <algorithm>

#include "exec/cuda/kernels/scalars.h"

namespace tessera::exec::cuda {
namespace {

constexpr int most = 32;  // in one launch
struct Sources {
  Scalar at[most];
};

__global__ void gather(Sources from, int count, std::byte* to) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= count) return;
  for (int b = 0; b < from.at[i].bytes; ++b) to[i * scalar_bytes + b] = from.at[i].from[b];
}

}  // namespace

void gather_scalars(std::span<const Scalar> scalars, std::byte* to, cudaStream_t stream) {
  for (std::size_t first = 0; first < scalars.size(); first += most) {
    const std::size_t count = std::min<std::size_t>(most, scalars.size() - first);
    Sources sources{};
    for (std::size_t i = 0; i < count; ++i) sources.at[i] = scalars[first + i];
    gather<<<1, most, 0, stream>>>(sources, static_cast<int>(count), to + first * scalar_bytes);
    launched("gather_scalars");
  }
}

}  // namespace tessera::exec::cuda
