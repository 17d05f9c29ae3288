// attention_grad of short sequences: what fits, how the batch is cut into slices, and the kernels
// of bf16 heads of width 64.
#include "exec/cuda/attention/attention_short_gradient.cuh"
#include "exec/cuda/attention/attention_window.cuh"
#include "exec/cuda/attention/slices.cuh"

namespace tessera::exec::cuda {

namespace brief {

void gradient_bf16_64(const Call& call, const Gradient<Bf16>& a, int tokens, unsigned grid) {
  with_blocks<Bf16, 64>(
      tokens, [&](auto blocks) { launch_gradient<Bf16, blocks, 64, false>(call, a, grid); });
}

}  // namespace brief

namespace {

int most_tokens(const AttentionSizes& n) { return std::max(n.t, n.s); }

template <class T>
std::int64_t gradient_bytes(const AttentionSizes& n) {
  std::int64_t bytes = 0;
  if (n.d == 32)
    brief::with_blocks<T, 32>(
        most_tokens(n), [&](auto blocks) { bytes = brief::GradientMemory<blocks, 32>::bytes; });
  else
    brief::with_blocks<T, 64>(
        most_tokens(n), [&](auto blocks) { bytes = brief::GradientMemory<blocks, 64>::bytes; });
  return bytes;
}

// Few enough slices for their sums to stay in the second-level cache, enough to fill the card.
BatchSlices short_slices(const AttentionSizes& n, bool bias, const Limits& limits) {
  if (brief::has_window_gradient(n, limits)) return brief::window_slices(n, 12, limits);
  if (!bias) return {.slices = n.b, .samples = 1};
  return batch_slices(n.b, n.h, most_tokens(n) <= 80 ? 12 : 2, limits);
}

}  // namespace

bool short_attention_grad_fits(const AttentionSizes& n, ir::DType dtype, const Limits& limits) {
  if (!brief::has_kernel(n, dtype, limits)) return false;
  if (n.cuts() && !brief::has_window_gradient(n, limits)) return false;
  return brief::with_low(dtype, [&]<class T>(T) { return gradient_bytes<T>(n); }) <=
         limits.shared_per_block;
}

std::int64_t short_attention_grad_bytes(const AttentionSizes& n, bool bias, const Limits& limits) {
  return bias ? short_slices(n, bias, limits).slices * n.h * n.t * n.s * 4 : 0;
}

void short_attention_grad(const Call& call) {
  AttentionSizes n = attention_sizes(call);
  if (!n.cuts()) n.windows = attention_extras(call, 6).windows;
  const AttentionResults to = attention_results(call, n);
  const bool bias = static_cast<bool>(to.dbias);
  const BatchSlices cut = short_slices(n, bias, call.context.limits);
  CHECK(call.workspace_bytes >= short_attention_grad_bytes(n, bias, call.context.limits),
        "attention_grad: workspace too small");
  const auto grid = static_cast<unsigned>(cut.slices * n.h);
  brief::with_low(call.in[0].dtype, [&]<class T>(T) {
    const brief::Gradient<T> a{.at = brief::heads_of<T>(call, n, 6),
                               .o = call.in[3].as<T>(),
                               .go = call.in[5].as<T>(),
                               .lse = call.in[4].as<float>(),
                               .dq = reinterpret_cast<T*>(to.dq),
                               .dk = reinterpret_cast<T*>(to.dk),
                               .dv = reinterpret_cast<T*>(to.dv),
                               .row = static_cast<int>(to.row),
                               .partial = bias ? call.scratch<float>() : nullptr,
                               .batch = n.b,
                               .samples = cut.samples};
    if (brief::has_window_gradient(n, call.context.limits))
      brief::window_gradient(call, a, grid);
    else if (brief::has_wide_gradient(n, a.at.bias || a.at.mask, call.context.limits))
      brief::wide_gradient(call, a);
    else if constexpr (std::is_same_v<T, F16>)
      brief::gradient_f16(call, a, n.d, most_tokens(n), grid);
    else
      (n.d == 32 ? brief::gradient_bf16_32 : brief::gradient_bf16_64)(call, a, most_tokens(n),
                                                                      grid);
  });
  if (!bias) return;
  const std::int64_t scores = to.dbias.elements();
  add_slices(call.scratch<const float>(), cut.slices, scores, scores, to.dbias.as<float>(),
             call.stream);
}

}  // namespace tessera::exec::cuda
