// attention of short sequences: what fits, and the kernels of bf16.
#include "exec/cuda/attention/attention_short_forward.cuh"

namespace tessera::exec::cuda {

namespace brief {

void forward_bf16(const Call& call, const AttentionSizes& n) { forward<Bf16>(call, n); }

}  // namespace brief

bool short_attention_fits(const AttentionSizes& n, ir::DType dtype, const Limits& limits) {
  if (!brief::has_kernel(n, dtype, limits)) return false;
  if (n.cuts() && !brief::is_window(n)) return false;
  // The largest of the head width, since a bias may ask for it.
  return brief::forward_bytes(16, n.d) <= limits.shared_per_block;
}

void short_attention(const Call& call) {
  const AttentionSizes n = attention_sizes(call);
  call.in[0].dtype == ir::DType::f16 ? brief::forward_f16(call, n) : brief::forward_bf16(call, n);
}

}  // namespace tessera::exec::cuda
