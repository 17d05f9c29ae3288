// Parts that both directions of long attention share: the heads of a call, the part of the work
// that a block has, and how 64 tokens at a time arrive in shared memory. A block owns 128 tokens of
// one head, a warp 32 of them, so that what it reads of another token serves two tiles; it walks
// over the tokens of the other side, which arrive in one half of its memory while those before are
// worked on in the other.
#pragma once

#include <limits>

#include "exec/cuda/attention/attention_short.cuh"

namespace tessera::exec::cuda::lengthy {

using brief::ln_2;
using brief::log2_e;
using mma::Word;

inline constexpr int warps = 4, threads = warps * 32, warp_tokens = 32;
inline constexpr int own_tokens = warps * warp_tokens;  // that a block owns
inline constexpr int step_tokens = 64;                  // that arrive at a time

constexpr int step_bytes(int d) { return step_tokens * d * 2; }
inline int tiles_of(int tokens) { return (tokens + own_tokens - 1) / own_tokens; }

// An addend of one head's scores [t,s], and what of it belongs to a query and a key.
struct Added {
  const float *bias, *mask;  // null: there is none
  int t, s;

  __device__ __forceinline__ bool any() const { return bias || mask; }
  // Times log2(e); 0 where there is no query or no key.
  __device__ __forceinline__ float at(int query, int key) const {
    if (query >= t || key >= s) return 0;
    const std::int64_t i = static_cast<std::int64_t>(query) * s + key;
    return ((bias ? bias[i] : 0.0f) + (mask ? mask[i] : 0.0f)) * log2_e;
  }
};

template <class T>
struct Heads {
  const T *q, *k, *v;
  const float *bias, *mask;
  std::int64_t windows;
  float scale;
  int t, s, h;

  // Elements from the first to the token `first` of a head that has `tokens`.
  __device__ std::int64_t at(std::int64_t ib, int ih, int tokens, int first, int d) const {
    return ((ib * tokens + first) * h + ih) * d;
  }
  __device__ Added added(std::int64_t ib, int ih) const {
    const std::int64_t scores = static_cast<std::int64_t>(t) * s;
    return {bias ? bias + ih * scores : nullptr, mask ? mask + ib % windows * scores : nullptr, t,
            s};
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
          .windows = more.windows,
          .scale = static_cast<float>(call.attr<ir::Attention>().scale),
          .t = n.t,
          .s = n.s,
          .h = n.h};
}

// Blocks are numbered by tile, head, batch, so that neighbours read the same keys or queries.
struct Place {
  std::int64_t ib;
  int ih, first;  // first: of the warp's tokens

  __device__ Place(int tokens, int h) {
    const unsigned tiles = static_cast<unsigned>((tokens + own_tokens - 1) / own_tokens),
                   head = blockIdx.x / tiles;
    ib = head / static_cast<unsigned>(h);
    ih = static_cast<int>(head % static_cast<unsigned>(h));
    first = static_cast<int>(blockIdx.x % tiles) * own_tokens +
            static_cast<int>(threadIdx.x / 32) * warp_tokens;
  }
  __device__ int block_first() const {
    return first - static_cast<int>(threadIdx.x / 32) * warp_tokens;
  }
};

// Starts copying `rows` rows that lie `stride` elements apart; those from `count` on become 0. A
// thread has one chunk of every `apart`-th row, whose place in the tile follows from the first.
template <int rows, int d, class T>
__device__ __forceinline__ void copy_rows(mma::Tile<d> tile, const T* x, std::int64_t stride,
                                          int count) {
  constexpr int chunks = d / 8, apart = threads / chunks;
  static_assert(apart % 8 == 0 && rows % apart == 0);
  const int row = static_cast<int>(threadIdx.x) / chunks,
            chunk = static_cast<int>(threadIdx.x) % chunks;
  const Word to = tile.at(static_cast<unsigned>(row), static_cast<unsigned>(chunk));
  const T* from = x + row * stride + chunk * 8;
#pragma unroll
  for (int i = 0; i < rows; i += apart) {
    const bool there = row + i < count;
    mma::copy_16(to + static_cast<Word>(i * tile.row_bytes), there ? from + i * stride : x, there);
  }
}

// 32 rows as left factors of two tiles; rows from `rows` on are 0.
template <int d, class T>
__device__ __forceinline__ void load_own(Word (&a)[2][d / 16][4], const T* x, std::int64_t stride,
                                         int rows) {
#pragma unroll
  for (int m = 0; m < 2; ++m) mma::load_left<d>(a[m], x + 16 * m * stride, stride, rows - 16 * m);
}

inline bool has_kernel(const AttentionSizes& n, ir::DType dtype, const Limits& limits) {
  return ir::is_low(dtype) && limits.arch >= 80 && (n.d == 32 || n.d == 64) && !n.cuts() &&
         std::min(n.t, n.s) > 0 && n.heads() > 0 &&
         n.heads() * tiles_of(std::max(n.t, n.s)) < (std::int64_t{1} << 31);
}

// Calls visit(d, adds), both as constants. Heads of 64 in bf16 have a kernel that adds nothing to
// scores and takes no scale but a positive one; elsewhere one kernel does for both: what is rare
// costs time, not every build.
template <class T, class Visit>
void with_kernel(const Heads<T>& at, int d, Visit&& visit) {
  using std::integral_constant;
  if (d == 32) return visit(integral_constant<int, 32>{}, std::true_type{});
  if constexpr (std::is_same_v<T, Bf16>)
    if (!at.bias && !at.mask && at.scale > 0)
      return visit(integral_constant<int, 64>{}, std::false_type{});
  visit(integral_constant<int, 64>{}, std::true_type{});
}

}  // namespace tessera::exec::cuda::lengthy
