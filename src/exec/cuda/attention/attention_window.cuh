// Parts that both directions of attention in windows share: heads of width 32 with 17 to 64 tokens,
// a warp for each 16 of them. A block has one head and one window of the mask, and walks over
// images.
#pragma once

#include "exec/cuda/attention/attention_short.cuh"

namespace tessera::exec::cuda::brief {

inline constexpr int window_d = 32, window_tokens = 64, window_blocks = window_tokens / 16;
inline constexpr int window_threads = window_blocks * 32;

inline bool is_window(const AttentionSizes& n) {
  const int most = std::max(n.t, n.s);
  return n.d == window_d && most > 16 && most <= window_tokens;
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
