// attention for any type, number of tokens and head width: a block makes 64 columns of 64 queries
// (f64: 32) and keeps a running maximum and sum of each (Milakov and Gimelshein 2018).
// Floor: 4 b h t s d operations.
#include <limits>

#include "exec/cuda/attention/attention_plain.cuh"

namespace tessera::exec::cuda {

namespace {

using namespace plain;

template <class T>
__global__ void __launch_bounds__(plain_threads)
    plain_forward(PlainHeads<T> at, const T* v, T* o, Wide<T>* lse, int tiles) {
  using W = Wide<T>;
  constexpr int tile = plain_tile<T>, m = tile / 16;
  __shared__ PlainShared<W, tile> shared;
  const PlainPlace place(at.chunks, tiles, at.h, tile);
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
  const int rows = min(tile, at.t - place.first);
  const W lowest = -std::numeric_limits<W>::infinity();
  const T* q = at.q + at.at_t(place.ib, place.ih, place.first);
  const W *bias = at.bias_of(place.ih), *mask = at.mask_of(place.ib);
  W out[m][4] = {}, top[m], sum[m] = {};
  for (W& e : top) e = lowest;

  for (int s0 = 0; s0 < at.s; s0 += tile) {
    const int keys = min(tile, at.s - s0);
    W p[m][m] = {};
    dot_tile(p, shared, q, rows, at.k + at.at_s(place.ib, place.ih, s0), keys, at.stride(), at.d);
#pragma unroll
    for (int i = 0; i < m; ++i) {
      const int it = place.first + y + 16 * i;
      W most = top[i], part = 0;
#pragma unroll
      for (int j = 0; j < m; ++j) {
        const bool there = y + 16 * i < rows && x + 16 * j < keys;
        const std::int64_t add = static_cast<std::int64_t>(it) * at.s + s0 + x + 16 * j;
        p[i][j] *= at.scale;
        if (bias && there) p[i][j] += bias[add];
        if (mask && there) p[i][j] += mask[add];
        if (!there) p[i][j] = lowest;
        most = max(most, p[i][j]);
      }
      most = row_max(most);
      const W base = most == lowest ? W(0) : most, factor = exp(top[i] - base);
      top[i] = most;
#pragma unroll
      for (int j = 0; j < m; ++j) {
        const W e = exp(p[i][j] - base);
        part += e;
        shared.p[y + 16 * i][x + 16 * j] = e;
      }
      sum[i] = sum[i] * factor + row_sum(part);
#pragma unroll
      for (int c = 0; c < 4; ++c) out[i][c] *= factor;
    }
    mix_tile(out, shared, v + at.at_s(place.ib, place.ih, s0), keys, at.stride(), place.column,
             at.d);
  }
  // No score above -inf: the quotients are 0 / 0, as by the definition; no key at all: 0.
  W factor[m];
#pragma unroll
  for (int i = 0; i < m; ++i) {
    if (sum[i] == W(0) && at.s > 0) sum[i] = std::numeric_limits<W>::quiet_NaN();
    factor[i] = at.s > 0 ? W(1) / sum[i] : W(0);
    const int it = place.first + y + 16 * i;
    if (lse && place.column == 0 && x == 0 && y + 16 * i < rows)
      lse[(place.ib * at.h + place.ih) * at.t + it] = top[i] + log(sum[i]);
  }
  if (o)
    store_rows(out, factor, o + at.at_t(place.ib, place.ih, place.first), at.stride(), rows,
               place.column, at.d);
}

}  // namespace

void plain_attention(const Call& call) {
  const AttentionSizes n = attention_sizes(call);
  if (n.heads() == 0 || n.t == 0) return;
  with_float(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const PlainHeads<T> at = plain_heads<T>(call, n, 3);
    const int tiles = (n.t + plain_tile<T> - 1) / plain_tile<T>;
    plain_forward<T><<<plain_grid<T>(n, tiles, at.chunks), plain_threads, 0, call.stream>>>(
        at, call.in[2].as<T>(), call.out[0].as<T>(),
        call.out.size() > 1 ? call.out[1].as<Wide<T>>() : nullptr, tiles);
    launched("attention plain");
  });
}

}  // namespace tessera::exec::cuda
