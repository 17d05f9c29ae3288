// The kernels of attention_grad for head width 32; those of small windows keep the gradient of the
// bias in registers.
#include "exec/cuda/attention_short_gradient.cuh"

namespace tessera::exec::cuda::brief {

void launch_gradient_32(const Call& call, const Gradient& a, int tokens, unsigned grid) {
  with_blocks<32>(tokens, [&](auto blocks) {
    if constexpr (blocks <= 4)
      if (a.partial) return launch_gradient<blocks, 32, true>(call, a, grid);
    launch_gradient<blocks, 32, false>(call, a, grid);
  });
}

}  // namespace tessera::exec::cuda::brief
