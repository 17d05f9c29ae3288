// The kernel of attention of short sequences, one block per head: keys and values in shared memory,
// the whole row of scores of 16 queries in a warp's registers, so the softmax is exact and in one
// pass. Floor: bytes of q, k, v and o; few warps per block, because more blocks hide the loads
// better.
#pragma once

#include <algorithm>
#include <limits>

#include "exec/cuda/attention/attention_window.cuh"

namespace tessera::exec::cuda::brief {

using mma::Word;

constexpr int forward_warps(int blocks) {
  return blocks == 1 ? 1 : blocks == 4 ? 2 : blocks == 5 ? 3 : 4;
}
// Blocks of a multiprocessor that the registers must allow.
constexpr int forward_residents(int blocks, int d) {
  if (blocks == 1) return 16;
  if (d == 32) return blocks == 4 ? 10 : blocks == 9 ? 4 : 3;
  return blocks == 4 ? 8 : blocks == 5 ? 5 : blocks == 13 ? 3 : 2;
}
constexpr int forward_bytes(int blocks, int d) { return 2 * blocks * 16 * d * 2; }

// log2(e) (scale q.k + bias + mask) of 16 queries from `first`; -inf where there is no key.
// `extras`: there may be a bias or a mask.
template <int blocks, bool extras, class T>
__device__ __forceinline__ void finish_scores(float (&score)[2 * blocks][4], const Heads<T>& at,
                                              const float* bias, const float* mask, int first) {
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
  const float factor = at.scale * log2_e;
#pragma unroll
  for (int n = 0; n < 2 * blocks; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int key = 8 * n + 2 * t + e % 2, query = first + g + e / 2 * 8;
      float x = score[n][e] * factor;
      if (extras && key < at.s && query < at.t) {
        if (bias) x += bias[query * at.s + key] * log2_e;
        if (mask) x += mask[query * at.s + key] * log2_e;
      }
      score[n][e] = key < at.s ? x : -std::numeric_limits<float>::infinity();
    }
}

// 2^(score - the row's maximum), the maximum and the sum; of rows g and g + 8.
template <int blocks>
__device__ __forceinline__ void exponentials(float (&score)[2 * blocks][4], float (&top)[2],
                                             float (&sum)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float most = -std::numeric_limits<float>::infinity(), total = 0;
#pragma unroll
    for (int n = 0; n < 2 * blocks; ++n)
      most = fmaxf(most, fmaxf(score[n][2 * half], score[n][2 * half + 1]));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
    most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
#pragma unroll
    for (int n = 0; n < 2 * blocks; ++n)
#pragma unroll
      for (int e = 2 * half; e < 2 * half + 2; ++e)
        total += score[n][e] = mma::power_of_2(score[n][e] - most);
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    total += __shfl_xor_sync(0xffffffffu, total, 2);
    top[half] = most;
    sum[half] = total;
  }
}

template <class T, int blocks, int d, bool extras>
__global__ void __launch_bounds__(forward_warps(blocks) * 32, forward_residents(blocks, d))
    short_forward(Heads<T> at, T* o, float* lse) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  const mma::Tile<d> keys{mma::shared_address(memory)},
      values{mma::shared_address(memory + forward_bytes(blocks, d) / 2)};
  const int ih = static_cast<int>(blockIdx.x % static_cast<unsigned>(at.h));
  const std::int64_t ib = blockIdx.x / static_cast<unsigned>(at.h);
  const int stride = at.h * d;
  keys.copy(at.k + at.at_s(ib, ih, d), stride, at.s, blocks * 16);
  values.copy(at.v + at.at_s(ib, ih, d), stride, at.s, blocks * 16);
  mma::wait_for_copies();
  __syncthreads();

  const float *bias = at.bias_of(ih), *mask = at.mask_of(ib);
  const Word key_place = keys.down(), value_place = values.across();
  const int warp = static_cast<int>(blockIdx.y) * forward_warps(blocks) + threadIdx.x / 32;
  for (int first = warp * 16; first < at.t;
       first += static_cast<int>(gridDim.y) * forward_warps(blocks) * 16) {
    const std::int64_t place = at.at_t(ib, ih, d) + static_cast<std::int64_t>(first) * stride;
    Word q[d / 16][4], r[4];
    mma::load_left<d>(q, at.q + place, stride, at.t - first);
    float score[2 * blocks][4] = {};
#pragma unroll
    for (int block = 0; block < blocks; ++block)
#pragma unroll
      for (int step = 0; step < d / 16; ++step) {
        mma::load_matrices(r, keys.moved(key_place, block * 16, step));
        mma::multiply<T>(score[2 * block], q[step], r[0], r[1]);
        mma::multiply<T>(score[2 * block + 1], q[step], r[2], r[3]);
      }
    float top[2], sum[2], out[d / 8][4] = {};
    finish_scores<blocks, extras>(score, at, bias, mask, first);
    exponentials<blocks>(score, top, sum);
#pragma unroll
    for (int block = 0; block < blocks; ++block) {
      const float(&low)[4] = score[2 * block], (&high)[4] = score[2 * block + 1];
      const Word p[4] = {mma::pack<T>(low[0], low[1]), mma::pack<T>(low[2], low[3]),
                         mma::pack<T>(high[0], high[1]), mma::pack<T>(high[2], high[3])};
#pragma unroll
      for (int step = 0; step < d / 16; ++step) {
        mma::load_transposed(r, values.moved(value_place, block * 16, step));
        mma::multiply<T>(out[2 * step], p, r[0], r[1]);
        mma::multiply<T>(out[2 * step + 1], p, r[2], r[3]);
      }
    }
    if (o) mma::store_rows<d>(out, 1 / sum[0], 1 / sum[1], o + place, stride, at.t - first);
    if (lse && mma::lane_id() % 4 == 0)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = first + mma::lane_id() / 4 + 8 * half;
        if (query < at.t)
          lse[(ib * at.h + ih) * at.t + query] = (top[half] + log2f(sum[half])) * ln_2;
      }
  }
#endif
}

template <class T, int blocks, int d, bool extras>
void launch_forward(const Call& call, const AttentionSizes& n) {
  constexpr int bytes = forward_bytes(blocks, d);
  if constexpr (bytes > 48 * 1024)
    must(cudaFuncSetAttribute(short_forward<T, blocks, d, extras>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
         "shared memory of attention");
  // Where heads leave multiprocessors without work, several blocks share the queries of one.
  constexpr int rows = forward_warps(blocks) * 16;
  const std::int64_t shares = std::clamp<std::int64_t>(
      call.context.limits.multiprocessors / std::max<std::int64_t>(1, n.heads()), 1,
      (n.t + rows - 1) / rows);
  const dim3 grid(static_cast<unsigned>(n.heads()), static_cast<unsigned>(shares));
  short_forward<T, blocks, d, extras><<<grid, forward_warps(blocks) * 32, bytes, call.stream>>>(
      heads_of<T>(call, n, 3), call.out[0].as<T>(),
      call.out.size() > 1 ? call.out[1].as<float>() : nullptr);
  launched("attention of short sequences");
}

// Calls visit(blocks, d), both as constants.
template <class T, class Visit>
void with_forward(const AttentionSizes& n, Visit&& visit) {
  using std::integral_constant;
  if (n.d == 32)
    with_blocks<T, 32>(n.s, [&](auto blocks) { visit(blocks, integral_constant<int, 32>{}); });
  else
    with_blocks<T, 64>(n.s, [&](auto blocks) { visit(blocks, integral_constant<int, 64>{}); });
}

// Heads of width 32 with 17 to 64 tokens, in a file of its own.
template <class T>
void window_attention(const Call& call, AttentionSizes n);

// Windows have a bias; a kernel without one for heads of 64, which leaves registers to the scores.
// Heads of 64 with a bias are rare: one size does for them, and in f16 one kernel for both.
template <class T>
void forward(const Call& call, const AttentionSizes& n) {
  const auto& attr = call.attr<ir::Attention>();
  const bool extras = attr.bias || attr.mask;
  if (is_window(n)) return window_attention<T>(call, n);
  if (std::is_same_v<T, Bf16> && n.d == 64 && extras)
    return launch_forward<T, 16, 64, true>(call, n);
  with_forward<T>(n, [&](auto blocks, auto d) {
    launch_forward<T, blocks, d, d == 32 || std::is_same_v<T, F16>>(call, n);
  });
}

void forward_bf16(const Call& call, const AttentionSizes& n);
void forward_f16(const Call& call, const AttentionSizes& n);

}  // namespace tessera::exec::cuda::brief
