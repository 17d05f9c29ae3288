// The kernels of short attention in f16, both directions.
#include "exec/cuda/attention/attention_short_forward.cuh"
#include "exec/cuda/attention/attention_short_gradient.cuh"

namespace tessera::exec::cuda::brief {

void forward_f16(const Call& call, const AttentionSizes& n) { forward<F16>(call, n); }

void gradient_f16(const Call& call, const Gradient<F16>& a, int d, int tokens, unsigned grid) {
  if (d == 64)
    return with_blocks<F16, 64>(
        tokens, [&](auto blocks) { launch_gradient<F16, blocks, 64, false>(call, a, grid); });
  with_blocks<F16, 32>(tokens, [&](auto blocks) {
    if constexpr (blocks <= 4)
      if (a.partial) return launch_gradient<F16, blocks, 32, true>(call, a, grid);
    launch_gradient<F16, blocks, 32, false>(call, a, grid);
  });
}

}  // namespace tessera::exec::cuda::brief
