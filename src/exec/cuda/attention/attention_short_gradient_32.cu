// The kernels of attention_grad for bf16 heads of width 32; those of small windows keep the
// gradient of the bias in registers.
#include "exec/cuda/attention/attention_short_gradient.cuh"

namespace tessera::exec::cuda::brief {

void gradient_bf16_32(const Call& call, const Gradient<Bf16>& a, int tokens, unsigned grid) {
  with_blocks<Bf16, 32>(tokens, [&](auto blocks) {
    if constexpr (blocks <= 4)
      if (a.partial) return launch_gradient<Bf16, blocks, 32, true>(call, a, grid);
    launch_gradient<Bf16, blocks, 32, false>(call, a, grid);
  });
}

}  // namespace tessera::exec::cuda::brief
