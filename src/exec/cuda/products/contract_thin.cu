// Products of which one factor has a few rows only: the logits of one picture, or the last block of
// a ViT, which only its class token goes through. A warp has one row of the other factor and sums
// up along it. Floor: bytes of that factor.
#include "exec/cuda/elements.cuh"
#include "exec/cuda/products/contract.h"

namespace tessera::exec::cuda {
namespace {

constexpr int thin_warps = 4, chunk = 8;  // of a block; numbers that a lane reads at once

template <class T, class Out, int rows>
__global__ void __launch_bounds__(thin_warps * 32) thin_kernel(ThinProduct p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * thin_warps + threadIdx.x / 32;
  if (n >= p.many) return;
  const T *few = static_cast<const T*>(p.few_rows),
          *many = static_cast<const T*>(p.many_rows) + n * p.many_row;
  float sum[rows] = {};
#pragma unroll 4
  for (std::int64_t i = lane * chunk; i < p.depth; i += 32 * chunk) {
    const auto w = *reinterpret_cast<const Pack<T, chunk>*>(many + i);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      if (r >= p.few) break;
      const auto x = *reinterpret_cast<const Pack<T, chunk>*>(few + r * p.few_row + i);
#pragma unroll
      for (int e = 0; e < chunk; ++e) sum[r] += widen(x.at[e]) * widen(w.at[e]);
    }
  }
  const float bias = p.bias ? widen(static_cast<const Out*>(p.bias)[n]) : 0.0f;
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const float total = warp_sum(sum[r]) + bias;
    if (lane == 0 && r < p.few)
      static_cast<Out*>(p.c)[r * p.c_few + n * p.c_many] = narrow<Out>(total);
  }
}

template <class T, class Out>
void launch_thin(const ThinProduct& p, cudaStream_t stream) {
  const auto launch = [&](auto kernel) {
    kernel<<<grid_for(p.many, thin_warps, 0x7fffffff), thin_warps * 32, 0, stream>>>(p);
  };
  p.few == 1 ? launch(thin_kernel<T, Out, 1>) : launch(thin_kernel<T, Out, most_thin_rows>);
  launched("contract of few rows");
}

}  // namespace

void multiply_thin(const ThinProduct& p, ir::DType factors, ir::DType result, cudaStream_t stream) {
  const auto with = [&]<class T>(T) {
    result == ir::DType::f32 ? launch_thin<T, float>(p, stream) : launch_thin<T, T>(p, stream);
  };
  factors == ir::DType::f16 ? with(F16{}) : with(Bf16{});
}

}  // namespace tessera::exec::cuda
