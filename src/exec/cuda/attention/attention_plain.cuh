// Tiles of plain attention: products of rows in shared memory by fused multiply-adds. 256 threads
// make 64 x 64 scores (f64: 32 x 32) in registers, which go through shared memory into the second
// product.
#pragma once

#include "exec/cuda/attention/attention.h"
#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda::plain {

constexpr int plain_threads = 256;  // 16 x 16: thread (y, x) has rows y + 16 i, columns x + 16 j
constexpr int depth = 32;           // of a product's operands at a time
constexpr int width = 64;  // columns of o, dq, dk, dv that a block makes: thread x has 4 x ..
constexpr int pad = 4;     // elements behind each row: neighbouring rows lie in other banks

template <class T>
constexpr int plain_tile = std::is_same_v<T, double> ? 32 : 64;

template <class W, int tile>
struct alignas(32) PlainShared {
  union {
    struct {
      W a[tile][depth + pad], b[tile][depth + pad];
    } rows;
    W x[tile][width];
  };
  W p[tile][tile + pad];
};

template <class T>
struct PlainHeads {
  using W = Wide<T>;
  const T *q, *k;
  const W *bias, *mask, *lse;
  std::int64_t windows;
  W scale;
  int t, s, h, d;
  int chunks;  // of `width` columns

  __device__ std::int64_t stride() const { return static_cast<std::int64_t>(h) * d; }
  __device__ std::int64_t at_t(std::int64_t ib, int ih, int it) const {
    return (ib * t + it) * stride() + static_cast<std::int64_t>(ih) * d;
  }
  __device__ std::int64_t at_s(std::int64_t ib, int ih, int is) const {
    return (ib * s + is) * stride() + static_cast<std::int64_t>(ih) * d;
  }
  // The addend of one head's scores: rows of s, null where there is none.
  __device__ const W* bias_of(int ih) const {
    return bias ? bias + static_cast<std::int64_t>(ih) * t * s : nullptr;
  }
  __device__ const W* mask_of(std::int64_t ib) const {
    return mask ? mask + ib % windows * t * s : nullptr;
  }
};

// Which part of the work a block has: blocks are numbered by column chunk, tile, head, batch.
struct PlainPlace {
  std::int64_t ib;
  int ih, first, column;

  __device__ PlainPlace(int chunks, int tiles, int h, int tile) {
    std::int64_t i = blockIdx.x;
    column = static_cast<int>(i % chunks) * width;
    i /= chunks;
    first = static_cast<int>(i % tiles) * tile;
    i /= tiles;
    ih = static_cast<int>(i % h);
    ib = i / h;
  }
};

// `columns` columns from `column` of the rows of x; what lies outside is 0.
template <int columns, class T, class W, int row_size, int tile>
__device__ void load_rows(W (&to)[tile][row_size], const T* x, std::int64_t stride, int rows,
                          int column, int d) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < tile * columns; i += plain_threads) {
    const int r = i / columns, c = i % columns;
    to[r][c] = r < rows && column + c < d ? widen(x[r * stride + column + c]) : W(0);
  }
}

// acc[i][j] += a[row i] . b[row j] over d. Begins with a barrier, so shared memory may be in use
// before; after it, `x` may be written only behind another one.
template <class T, class W, int tile, int m>
__device__ void dot_tile(W (&acc)[m][m], PlainShared<W, tile>& shared, const T* a, int a_rows,
                         const T* b, int b_rows, std::int64_t stride, int d) {
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
  for (int c0 = 0; c0 < d; c0 += depth) {
    __syncthreads();
    load_rows<depth>(shared.rows.a, a, stride, a_rows, c0, d);
    load_rows<depth>(shared.rows.b, b, stride, b_rows, c0, d);
    __syncthreads();
#pragma unroll 2
    for (int c = 0; c < depth; c += 4) {
      Pack<W, 4> u[m], v[m];
#pragma unroll
      for (int i = 0; i < m; ++i) {
        u[i] = *reinterpret_cast<const Pack<W, 4>*>(&shared.rows.a[y + 16 * i][c]);
        v[i] = *reinterpret_cast<const Pack<W, 4>*>(&shared.rows.b[x + 16 * i][c]);
      }
#pragma unroll
      for (int i = 0; i < m; ++i)
#pragma unroll
        for (int j = 0; j < m; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) acc[i][j] += u[i].at[e] * v[j].at[e];
    }
  }
}

// acc[i][c] += sum_j p[row i][j] z[row j][column + 4 x + c]; p is in shared memory, written by this
// block just before.
template <class T, class W, int tile, int m>
__device__ void mix_tile(W (&acc)[m][4], PlainShared<W, tile>& shared, const T* z, int z_rows,
                         std::int64_t stride, int column, int d) {
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
  __syncthreads();
  load_rows<width>(shared.x, z, stride, z_rows, column, d);
  __syncthreads();
#pragma unroll 2
  for (int j = 0; j < tile; j += 4) {
    Pack<W, 4> u[m], v[4];
#pragma unroll
    for (int i = 0; i < m; ++i)
      u[i] = *reinterpret_cast<const Pack<W, 4>*>(&shared.p[y + 16 * i][j]);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      v[e] = *reinterpret_cast<const Pack<W, 4>*>(&shared.x[j + e][4 * x]);
#pragma unroll
    for (int i = 0; i < m; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int c = 0; c < 4; ++c) acc[i][c] += u[i].at[e] * v[e].at[c];
  }
}

// Rows of acc, each times its factor, to z.
template <class T, class W, int m>
__device__ void store_rows(const W (&acc)[m][4], const W (&factor)[m], T* z, std::int64_t stride,
                           int rows, int column, int d) {
  const int y = static_cast<int>(threadIdx.x) / 16, x = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
  for (int i = 0; i < m; ++i)
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (y + 16 * i < rows && column + 4 * x + c < d)
        z[(y + 16 * i) * stride + column + 4 * x + c] = narrow<T>(acc[i][c] * factor[i]);
}

// Over the 16 threads that share a row.
template <class W>
__device__ W row_sum(W x) {
  for (int lane = 8; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}
template <class W>
__device__ W row_max(W x) {
  for (int lane = 8; lane > 0; lane /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}

// Blocks of a grid that has `tiles` of each head.
template <class T>
unsigned plain_grid(const AttentionSizes& n, int tiles, int chunks) {
  const std::int64_t blocks = n.heads() * tiles * chunks;
  CHECK(blocks < (std::int64_t{1} << 31),
        "attention: " + std::to_string(blocks) + " blocks are more than a grid has (2^31 - 1)");
  return static_cast<unsigned>(blocks);
}

template <class T>
PlainHeads<T> plain_heads(const Call& call, const AttentionSizes& n, std::size_t extras) {
  const AttentionExtras more = attention_extras(call, extras);
  return {.q = call.in[0].as<T>(),
          .k = call.in[1].as<T>(),
          .bias = more.bias.as<Wide<T>>(),
          .mask = more.mask.as<Wide<T>>(),
          .lse = nullptr,
          .windows = more.windows,
          .scale = static_cast<Wide<T>>(call.attr<ir::Attention>().scale),
          .t = n.t,
          .s = n.s,
          .h = n.h,
          .d = n.d,
          .chunks = std::max(1, (n.d + width - 1) / width)};
}

}  // namespace tessera::exec::cuda::plain
