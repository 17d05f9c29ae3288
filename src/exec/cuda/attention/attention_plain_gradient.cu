// attention_grad for any type, number of tokens and head width. P = exp(S - lse) is recomputed
// three times (for dk and dv, for dq, for dbias), so that every result has one owner and no sum
// needs an atomic operation: 9 products of t s d where 5 would do.
#include "exec/cuda/attention/attention_plain.cuh"
#include "exec/cuda/attention/slices.cuh"

namespace tessera::exec::cuda {

namespace {

using namespace plain;

// D[b,h,t] = sum_d do o, a warp for each row.
template <class T>
__global__ void __launch_bounds__(plain_threads)
    plain_totals(const T* go, const T* o, Wide<T>* total, std::int64_t rows, int t, int h, int d) {
  const std::int64_t row = grid_thread() / 32;  // of [b,t,h]
  if (row >= rows) return;
  Wide<T> sum = 0;
  for (int c = static_cast<int>(threadIdx.x) % 32; c < d; c += 32)
    sum += widen(go[row * d + c]) * widen(o[row * d + c]);
  sum = warp_sum(sum);
  const std::int64_t ih = row % h, it = row / h % t, ib = row / h / t;
  if (threadIdx.x % 32 == 0) total[(ib * h + ih) * t + it] = sum;
}

// A tile of P and of dS = P (do.v - D): rows are keys and columns queries, or the other way round.
template <class T>
struct PlainGrad {
  PlainHeads<T> at;
  const T *v, *go;
  const Wide<T>* total;

  template <bool keys_down, int tile, int m>
  __device__ void tiles(Wide<T> (&p)[m][m], Wide<T> (&ds)[m][m], PlainShared<Wide<T>, tile>& shared,
                        std::int64_t ib, int ih, int t0, int s0) const {
    using W = Wide<T>;
    const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
    const int queries = min(tile, at.t - t0), keys = min(tile, at.s - s0);
    const std::int64_t q_at = at.at_t(ib, ih, t0), k_at = at.at_s(ib, ih, s0);
#pragma unroll
    for (int i = 0; i < m; ++i)
#pragma unroll
      for (int j = 0; j < m; ++j) p[i][j] = ds[i][j] = 0;
    if constexpr (keys_down) {
      dot_tile(p, shared, at.k + k_at, keys, at.q + q_at, queries, at.stride(), at.d);
      dot_tile(ds, shared, v + k_at, keys, go + q_at, queries, at.stride(), at.d);
    } else {
      dot_tile(p, shared, at.q + q_at, queries, at.k + k_at, keys, at.stride(), at.d);
      dot_tile(ds, shared, go + q_at, queries, v + k_at, keys, at.stride(), at.d);
    }
    const std::int64_t row = (ib * at.h + ih) * at.t + t0;
    const W *bias = at.bias_of(ih), *mask = at.mask_of(ib);
#pragma unroll
    for (int i = 0; i < m; ++i)
#pragma unroll
      for (int j = 0; j < m; ++j) {
        const int it = keys_down ? x + 16 * j : y + 16 * i,
                  is = keys_down ? y + 16 * i : x + 16 * j;
        const bool there = it < queries && is < keys;
        const std::int64_t add = static_cast<std::int64_t>(t0 + it) * at.s + s0 + is;
        W score = p[i][j] * at.scale;
        if (bias && there) score += bias[add];
        if (mask && there) score += mask[add];
        p[i][j] = there ? exp(score - at.lse[row + it]) : W(0);
        ds[i][j] = there ? p[i][j] * (ds[i][j] - total[row + it]) : W(0);
      }
  }
};

template <class W, int tile, int m>
__device__ void put_tile(PlainShared<W, tile>& shared, const W (&p)[m][m]) {
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int j = 0; j < m; ++j) shared.p[y + 16 * i][x + 16 * j] = p[i][j];
}

// A block owns some keys and walks over the queries.
template <class T>
__global__ void __launch_bounds__(plain_threads)
    plain_key_gradients(PlainGrad<T> grad, T* dk, T* dv, std::int64_t row, int tiles) {
  using W = Wide<T>;
  constexpr int tile = plain_tile<T>, m = tile / 16;
  __shared__ PlainShared<W, tile> shared;
  const PlainHeads<T>& at = grad.at;
  const PlainPlace place(at.chunks, tiles, at.h, tile);
  const int keys = min(tile, at.s - place.first);
  W p[m][m], ds[m][m], k_sum[m][4] = {}, v_sum[m][4] = {};
  for (int t0 = 0; t0 < at.t; t0 += tile) {
    const int queries = min(tile, at.t - t0);
    const std::int64_t q_at = at.at_t(place.ib, place.ih, t0);
    grad.template tiles<true>(p, ds, shared, place.ib, place.ih, t0, place.first);
    put_tile(shared, p);
    mix_tile(v_sum, shared, grad.go + q_at, queries, at.stride(), place.column, at.d);
    __syncthreads();
    put_tile(shared, ds);
    mix_tile(k_sum, shared, at.q + q_at, queries, at.stride(), place.column, at.d);
    __syncthreads();
  }
  const std::int64_t k_at =
      (place.ib * at.s + place.first) * row + static_cast<std::int64_t>(place.ih) * at.d;
  W one[m], scale[m];
  for (int i = 0; i < m; ++i) {
    one[i] = 1;
    scale[i] = at.scale;
  }
  if (dk) store_rows(k_sum, scale, dk + k_at, row, keys, place.column, at.d);
  if (dv) store_rows(v_sum, one, dv + k_at, row, keys, place.column, at.d);
}

// A block owns some queries and walks over the keys.
template <class T>
__global__ void __launch_bounds__(plain_threads)
    plain_query_gradient(PlainGrad<T> grad, T* dq, std::int64_t row, int tiles) {
  using W = Wide<T>;
  constexpr int tile = plain_tile<T>, m = tile / 16;
  __shared__ PlainShared<W, tile> shared;
  const PlainHeads<T>& at = grad.at;
  const PlainPlace place(at.chunks, tiles, at.h, tile);
  W p[m][m], ds[m][m], sum[m][4] = {}, scale[m];
  for (W& e : scale) e = at.scale;
  for (int s0 = 0; s0 < at.s; s0 += tile) {
    grad.template tiles<false>(p, ds, shared, place.ib, place.ih, place.first, s0);
    put_tile(shared, ds);
    mix_tile(sum, shared, at.k + at.at_s(place.ib, place.ih, s0), min(tile, at.s - s0), at.stride(),
             place.column, at.d);
    __syncthreads();
  }
  const std::int64_t q_at =
      (place.ib * at.t + place.first) * row + static_cast<std::int64_t>(place.ih) * at.d;
  store_rows(sum, scale, dq + q_at, row, min(tile, at.t - place.first), place.column, at.d);
}

// A block owns a tile of [t,s] of one head and adds dS over one slice of the batch.
template <class T>
__global__ void __launch_bounds__(plain_threads)
    plain_bias_gradient(PlainGrad<T> grad, Wide<T>* partial, BatchSlices cut, std::int64_t batch) {
  using W = Wide<T>;
  constexpr int tile = plain_tile<T>, m = tile / 16;
  __shared__ PlainShared<W, tile> shared;
  const PlainHeads<T>& at = grad.at;
  const int across = (at.s + tile - 1) / tile, down = (at.t + tile - 1) / tile;
  std::int64_t i = blockIdx.x;
  const int s0 = static_cast<int>(i % across) * tile,
            t0 = static_cast<int>(i / across % down) * tile;
  i = i / across / down;
  const int ih = static_cast<int>(i % at.h);
  const std::int64_t slice = i / at.h, end = min(batch, (slice + 1) * cut.samples);
  W p[m][m], ds[m][m], sum[m][m] = {};
  for (std::int64_t ib = slice * cut.samples; ib < end; ++ib) {
    grad.template tiles<false>(p, ds, shared, ib, ih, t0, s0);
#pragma unroll
    for (int r = 0; r < m; ++r)
#pragma unroll
      for (int c = 0; c < m; ++c) sum[r][c] += ds[r][c];
  }
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
  for (int r = 0; r < m; ++r)
#pragma unroll
    for (int c = 0; c < m; ++c) {
      const int it = t0 + y + 16 * r, is = s0 + x + 16 * c;
      if (it < at.t && is < at.s)
        partial[((slice * at.h + ih) * at.t + it) * at.s + is] = sum[r][c];
    }
}

int tile_of(ir::DType dtype) {
  return dtype == ir::DType::f64 ? plain_tile<double> : plain_tile<float>;
}
std::int64_t wide_bytes(ir::DType dtype) { return dtype == ir::DType::f64 ? 8 : 4; }
std::int64_t total_bytes(const AttentionSizes& n, ir::DType dtype) {
  return (n.heads() * n.t * wide_bytes(dtype) + 255) / 256 * 256;
}
BatchSlices slices_of(const AttentionSizes& n, ir::DType dtype, const Limits& limits) {
  const std::int64_t tile = tile_of(dtype);
  return batch_slices(n.b, n.h * ((n.t + tile - 1) / tile) * ((n.s + tile - 1) / tile), 4, limits);
}

template <class T>
void bias_gradient(const Call& call, const AttentionSizes& n, const PlainGrad<T>& grad,
                   const Tensor& dbias) {
  const ir::DType dtype = call.in[0].dtype;
  const BatchSlices cut = slices_of(n, dtype, call.context.limits);
  std::byte* partial = call.workspace + total_bytes(n, dtype);
  const std::int64_t tile = plain_tile<T>, blocks = cut.slices * n.h * ((n.t + tile - 1) / tile) *
                                                    ((n.s + tile - 1) / tile);
  CHECK(blocks < (std::int64_t{1} << 31), "attention_grad: too many tiles for a grid");
  if (blocks > 0) {
    plain_bias_gradient<T><<<static_cast<unsigned>(blocks), plain_threads, 0, call.stream>>>(
        grad, reinterpret_cast<Wide<T>*>(partial), cut, n.b);
    launched("attention_grad plain, dbias");
  }
  const std::int64_t scores = dbias.elements();
  add_slices(reinterpret_cast<const Wide<T>*>(partial), cut.slices, scores, scores,
             dbias.as<Wide<T>>(), call.stream);
}

}  // namespace

std::int64_t plain_attention_grad_bytes(const AttentionSizes& n, bool bias, ir::DType dtype,
                                        const Limits& limits) {
  const std::int64_t scores = bias ? std::int64_t{n.h} * n.t * n.s : 0;
  return total_bytes(n, dtype) + slices_of(n, dtype, limits).slices * scores * wide_bytes(dtype);
}

void plain_attention_grad(const Call& call) {
  const AttentionSizes n = attention_sizes(call);
  const bool bias = call.attr<ir::Attention>().bias;
  const AttentionResults to = attention_results(call, n);
  CHECK(call.workspace_bytes >=
            plain_attention_grad_bytes(n, bias, call.in[0].dtype, call.context.limits),
        "attention_grad: workspace too small");
  with_float(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    using W = Wide<T>;
    PlainGrad<T> grad{.at = plain_heads<T>(call, n, 6),
                      .v = call.in[2].as<T>(),
                      .go = call.in[5].as<T>(),
                      .total = call.scratch<W>()};
    grad.at.lse = call.in[4].as<W>();
    T *dq = reinterpret_cast<T*>(to.dq), *dk = reinterpret_cast<T*>(to.dk),
      *dv = reinterpret_cast<T*>(to.dv);
    const int down = (n.t + plain_tile<T> - 1) / plain_tile<T>,
              across = (n.s + plain_tile<T> - 1) / plain_tile<T>;
    if (const std::int64_t rows = n.heads() * n.t; rows > 0) {
      plain_totals<T>
          <<<grid_for(rows * 32, plain_threads, 0x7fffffff), plain_threads, 0, call.stream>>>(
              grad.go, call.in[3].as<T>(), call.scratch<W>(), rows, n.t, n.h, n.d);
      launched("attention_grad plain, totals");
    }
    if ((dk || dv) && n.heads() * n.s > 0) {
      plain_key_gradients<T>
          <<<plain_grid<T>(n, across, grad.at.chunks), plain_threads, 0, call.stream>>>(
              grad, dk, dv, to.row, across);
      launched("attention_grad plain, dk and dv");
    }
    if (dq && n.heads() * n.t > 0) {
      plain_query_gradient<T>
          <<<plain_grid<T>(n, down, grad.at.chunks), plain_threads, 0, call.stream>>>(grad, dq,
                                                                                      to.row, down);
      launched("attention_grad plain, dq");
    }
    if (to.dbias) bias_gradient<T>(call, n, grad, to.dbias);
  });
}

}  // namespace tessera::exec::cuda
