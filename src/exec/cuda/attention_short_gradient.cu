// attention_grad of short bf16 sequences: what fits, how the batch is cut into slices, and the
// kernels of head width 64.
#include "exec/cuda/attention_short_gradient.cuh"
#include "exec/cuda/slices.cuh"

namespace tessera::exec::cuda {

namespace brief {

void launch_gradient_64(const Call& call, const Gradient& a, int tokens, unsigned grid) {
  with_blocks<64>(tokens, [&](auto blocks) { launch_gradient<blocks, 64, false>(call, a, grid); });
}

}  // namespace brief

namespace {

int most_tokens(const AttentionSizes& n) { return std::max(n.t, n.s); }

std::int64_t gradient_bytes(const AttentionSizes& n) {
  std::int64_t bytes = 0;
  if (n.d == 32)
    brief::with_blocks<32>(most_tokens(n),
                           [&](auto blocks) { bytes = brief::GradientMemory<blocks, 32>::bytes; });
  else
    brief::with_blocks<64>(most_tokens(n),
                           [&](auto blocks) { bytes = brief::GradientMemory<blocks, 64>::bytes; });
  return bytes;
}

// Few enough slices for their sums to stay in the second-level cache, enough to fill the card.
BatchSlices short_slices(const AttentionSizes& n, bool bias, const Limits& limits) {
  if (!bias) return {.slices = n.b, .samples = 1};
  return batch_slices(n.b, n.h, most_tokens(n) <= 80 ? 12 : 2, limits);
}

}  // namespace

bool short_attention_grad_fits(const AttentionSizes& n, ir::DType dtype, const Limits& limits) {
  return brief::has_kernel(n, dtype, limits) && gradient_bytes(n) <= limits.shared_per_block;
}

std::int64_t short_attention_grad_bytes(const AttentionSizes& n, bool bias, const Limits& limits) {
  return bias ? short_slices(n, bias, limits).slices * n.h * n.t * n.s * 4 : 0;
}

void short_attention_grad(const Call& call) {
  const AttentionSizes n = attention_sizes(call.in[0].shape, call.in[1].shape);
  const bool bias = call.attr<ir::Attention>().bias && call.out.size() > 3 && call.out[3];
  const BatchSlices cut = short_slices(n, bias, call.context.limits);
  CHECK(call.workspace_bytes >= short_attention_grad_bytes(n, bias, call.context.limits),
        "attention_grad: workspace too small");
  const brief::Gradient a{.at = brief::heads_of(call, n, 6),
                          .o = call.in[3].as<Bf16>(),
                          .go = call.in[5].as<Bf16>(),
                          .lse = call.in[4].as<float>(),
                          .dq = call.out[0].as<Bf16>(),
                          .dk = call.out[1].as<Bf16>(),
                          .dv = call.out[2].as<Bf16>(),
                          .partial = bias ? call.scratch<float>() : nullptr,
                          .batch = n.b,
                          .samples = cut.samples};
  const auto grid = static_cast<unsigned>(cut.slices * n.h);
  const auto launch = n.d == 32 ? brief::launch_gradient_32 : brief::launch_gradient_64;
  launch(call, a, most_tokens(n), grid);
  if (!bias) return;
  const std::int64_t scores = call.out[3].elements();
  add_slices(call.scratch<const float>(), cut.slices, scores, scores, call.out[3].as<float>(),
             call.stream);
}

}  // namespace tessera::exec::cuda
