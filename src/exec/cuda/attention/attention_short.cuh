// Parts that both directions of short attention share: the heads of a call and the sizes that
// kernels exist for. A block has one head: its tokens are padded to `blocks` blocks of 16, so that
// all scores of 16 queries lie in the registers of a warp.
#pragma once

#include "exec/cuda/attention/attention.h"
#include "exec/cuda/attention/tokens.cuh"
#include "exec/cuda/mma.cuh"

namespace tessera::exec::cuda::brief {

inline constexpr float log2_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

template <class T>
struct Heads {
  const T *q, *k, *v;
  const float *bias, *mask;
  std::int64_t windows;
  float scale;
  int t, s, h;
  Tokens tokens;

  __device__ std::int64_t at_t(std::int64_t ib, int ih, int d) const {
    return (ib * t * h + ih) * d;
  }
  __device__ std::int64_t at_s(std::int64_t ib, int ih, int d) const {
    return (ib * s * h + ih) * d;
  }
  // The addend of one head's scores: rows of s, null where there is none.
  __device__ const float* bias_of(int ih) const { return bias ? bias + ih * t * s : nullptr; }
  __device__ const float* mask_of(std::int64_t ib) const {
    return mask ? mask + ib % windows * t * s : nullptr;
  }
};
template <class T>
Heads<T> heads_of(const Call& call, const AttentionSizes& n, std::size_t extras) {
  const AttentionExtras more = attention_extras(call, extras);
  return {.q = call.in[0].as<T>(),
          .k = call.in[1].as<T>(),
          .v = call.in[2].as<T>(),
          .bias = more.bias.as<float>(),
          .mask = more.mask.as<float>(),
          .windows = n.cuts() ? n.windows : more.windows,
          .scale = static_cast<float>(call.attr<ir::Attention>().scale),
          .t = n.t,
          .s = n.s,
          .h = n.h,
          .tokens = n};
}

// Blocks of 16 tokens that kernels exist for: windows of 4 x 4, up to 8 x 8 and 12 x 12 with heads
// of 32; 64, 65, 197 and 256 tokens with heads of 64. f16 has fewer of them: what is rare costs
// time, not every build.
template <class T, int d, class Visit>
void with_blocks(int tokens, Visit&& visit) {
  using std::integral_constant;
  if constexpr (std::is_same_v<T, F16>) {
    constexpr int most_use = d == 32 ? 4 : 13;
    if (tokens <= most_use * 16) return visit(integral_constant<int, most_use>{});
  } else {
    constexpr int few = d == 32 ? 1 : 4, some = d == 32 ? 4 : 5, many = d == 32 ? 9 : 13;
    if (tokens <= few * 16) return visit(integral_constant<int, few>{});
    if (tokens <= some * 16) return visit(integral_constant<int, some>{});
    if (tokens <= many * 16) return visit(integral_constant<int, many>{});
  }
  visit(integral_constant<int, 16>{});
}
// Calls visit(T{}) with the low type of a call.
template <class Visit>
auto with_low(ir::DType dtype, Visit&& visit) {
  return dtype == ir::DType::f16 ? visit(F16{}) : visit(Bf16{});
}

inline bool has_kernel(const AttentionSizes& n, ir::DType dtype, const Limits& limits) {
  return ir::is_low(dtype) && limits.arch >= 80 && (n.d == 32 || n.d == 64) &&
         std::min(n.t, n.s) > 0 && std::max(n.t, n.s) <= 256 && n.heads() > 0 &&
         n.heads() < (std::int64_t{1} << 31);
}

}  // namespace tessera::exec::cuda::brief
