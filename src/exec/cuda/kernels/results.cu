#include "exec/cuda/kernels/results.h"

#include <cuda_runtime.h>

#include <algorithm>

namespace tessera::exec::cuda {
namespace {

constexpr int most = 32;  // in one launch
struct Launch {
  Result at[most];
};

// A block to each result. Words of 16 bytes cross the bus fastest.
__global__ void gather(Launch results, std::byte* host) {
  const Result result = results.at[blockIdx.x];
  std::byte* const to = host + result.at;
  const std::int64_t words = reinterpret_cast<std::uintptr_t>(result.from) % sizeof(int4) == 0
                                 ? result.bytes / static_cast<std::int64_t>(sizeof(int4))
                                 : 0;
  const auto* const from = reinterpret_cast<const int4*>(result.from);
  for (std::int64_t i = threadIdx.x; i < words; i += blockDim.x)
    reinterpret_cast<int4*>(to)[i] = from[i];
  for (std::int64_t i = words * sizeof(int4) + threadIdx.x; i < result.bytes; i += blockDim.x)
    to[i] = result.from[i];
}

}  // namespace

void gather_results(std::span<const Result> results, std::byte* to, cudaStream_t stream) {
  for (std::size_t first = 0; first < results.size(); first += most) {
    const std::size_t count = std::min<std::size_t>(most, results.size() - first);
    Launch some{};
    std::copy_n(results.data() + first, count, some.at);
    gather<<<static_cast<unsigned>(count), 256, 0, stream>>>(some, to);
    launched("gather_results");
  }
}

}  // namespace tessera::exec::cuda
