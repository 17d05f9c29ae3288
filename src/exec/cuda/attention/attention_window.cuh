// Parts that both directions of attention in windows share: heads of width 32 with 17 to 64 tokens,
// a warp for each 16 of them. A block has one head and one window of the mask, and walks over
// images. Windows are cut beforehand or here; queries are as many as keys.
#pragma once

#include <limits>

#include "exec/cuda/attention/attention_short.cuh"

namespace tessera::exec::cuda::brief {

inline constexpr int window_d = 32, window_tokens = 64, window_blocks = window_tokens / 16;
inline constexpr int window_threads = window_blocks * 32;

inline bool is_window(const AttentionSizes& n) {
  return n.d == window_d && n.t == n.s && n.t > 16 && n.t <= window_tokens;
}

// The rows and the 16 bytes of each that this thread copies into tiles.
struct Share {
  static constexpr int rows = 2;
  int first = static_cast<int>(threadIdx.x) / 4, chunk = static_cast<int>(threadIdx.x) % 4;

  __device__ Share() {}
  __device__ int row(int j) const { return first + j * window_threads / 4; }
  __device__ unsigned byte(int j) const {  // in a tile
    const auto r = static_cast<unsigned>(row(j));
    return r * (window_d * 2) + ((static_cast<unsigned>(chunk) ^ (r >> 1 & 3)) << 4);
  }
};

// Where tokens of a block's window lie, from the first token of an image on: those that this thread
// copies, and those of the rows whose results it stores, g and g + 8 from the warp's `first`.
struct Places {
  int copied[Share::rows], stored[2];

  template <class T>
  __device__ Places(const Heads<T>& at, std::int64_t window, int first) {
    const Share own;
    const auto n = static_cast<int>(window);
#pragma unroll
    for (int j = 0; j < Share::rows; ++j) copied[j] = at.tokens.in_image(n, own.row(j), at.t);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      stored[half] = at.tokens.in_image(n, first + mma::lane_id() / 4 + 8 * half, at.t);
  }
};

// The place of an image's first token for head `ih`, in elements of q.
template <class T>
__device__ __forceinline__ std::int64_t image_at(const Heads<T>& at, std::int64_t image, int ih) {
  return (image * at.windows * at.t * at.h + ih) * window_d;
}

// Results of the warp's 16 tokens, of which `rows` are there; `image`: the head's part of the first
// token of an image whose tokens lie `row` elements apart.
template <class T>
__device__ __forceinline__ void store_tokens(const float (&c)[window_d / 8][4], float factor_low,
                                             float factor_high, T* image, int row,
                                             const Places& places, int rows) {
  mma::put_rows<window_d>(c, factor_low, factor_high, image, rows, [&](int half) {
    return static_cast<std::int64_t>(places.stored[half]) * row;
  });
}

// log2(e) (bias + mask) of a thread's scores in fragments of 16 rows from `first` and 8 columns
// each: rows are queries and columns keys, or the other way round. What is not there reads
// something else instead: without branches all loads are under way at once.
template <bool keys_down, class T>
__device__ __forceinline__ void load_addends(float (&x)[2 * window_blocks][4], const Heads<T>& at,
                                             int ih, std::int64_t window, int first) {
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
  const auto each = [&](auto visit) {
#pragma unroll
    for (int eight = 0; eight < 2 * window_blocks; ++eight)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = first + g + e / 2 * 8, column = 8 * eight + 2 * t + e % 2;
        visit(x[eight][e], keys_down ? column : row, keys_down ? row : column);
      }
  };
  const auto add = [&](const float* from) {
    if (!from) return;
    each([&](float& to, int query, int key) {
      to += from[min(query, at.t - 1) * at.s + min(key, at.s - 1)];
    });
  };
  each([](float& to, int, int) { to = 0; });
  add(at.bias_of(ih));
  add(at.mask_of(window));
  each([&](float& to, int query, int key) {
    const bool there = key < at.s && (!keys_down || query < at.t);
    to = there ? to * log2_e : -std::numeric_limits<float>::infinity();
  });
}

// Block (slice * windows + window) * h + head has `samples` images from slice * samples on.
struct WindowWork {
  int ih;
  std::int64_t window, begin, end;

  template <class T>
  __device__ WindowWork(const Heads<T>& at, std::int64_t batch, std::int64_t samples) {
    ih = static_cast<int>(blockIdx.x % static_cast<unsigned>(at.h));
    const std::int64_t part = blockIdx.x / static_cast<unsigned>(at.h);
    window = part % at.windows;
    begin = part / at.windows * samples;
    end = min(batch / at.windows, begin + samples);
  }
};

// Images of a block: as many blocks as fill the card `blocks` times for each multiprocessor.
inline BatchSlices window_slices(const AttentionSizes& n, int blocks, const Limits& limits) {
  BatchSlices cut = batch_slices(n.b / n.windows, n.h * n.windows, blocks, limits);
  cut.slices *= n.windows;
  return cut;
}

}  // namespace tessera::exec::cuda::brief
