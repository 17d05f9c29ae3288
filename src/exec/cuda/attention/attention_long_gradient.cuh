// Parts that the kernels of attention_grad of long sequences share: log2(e) lse and D = do.o of
// every query lie side by side in the workspace, as [b,h,padded t], where padded queries have lse =
// inf and so P = 0.
#pragma once

#include "exec/cuda/attention/attention_long.cuh"

namespace tessera::exec::cuda::lengthy {

template <class T>
struct Gradient {
  Heads<T> at;
  const T* go;
  const float2* rows;  // log2(e) lse and D
  T *dq, *dk, *dv;     // null: not wanted
  std::int64_t row;    // elements between tokens of these three

  __device__ int padded() const { return (at.t + step_tokens - 1) / step_tokens * step_tokens; }
  __device__ const float2* rows_of(const Place& place) const {
    return rows + (place.ib * at.h + place.ih) * padded();
  }
  // Where token `first` of a head that has `tokens` lies in a result.
  __device__ std::int64_t result(const Place& place, int tokens, int first, int d) const {
    return (place.ib * tokens + first) * row + static_cast<std::int64_t>(place.ih) * d;
  }
};

inline std::int64_t padded_queries(const AttentionSizes& n) {
  return (std::int64_t{n.t} + step_tokens - 1) / step_tokens * step_tokens;
}

// 32 rows of results, each times a factor; rows from `rows` on are not there.
template <int d, class T>
__device__ __forceinline__ void store_own(const float (&c)[2][d / 8][4], float factor, T* x,
                                          std::int64_t stride, int rows) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
    mma::store_rows<d>(c[m], factor, factor, x + 16 * m * stride, stride, rows - 16 * m);
}

// k in one piece; q and do of two steps in turn, and what is known of their rows.
template <int d>
struct KeyMemory {
  static constexpr int own_bytes = own_tokens * d * 2, row_bytes = step_tokens * 8;
  static constexpr int bytes = own_bytes + 4 * step_bytes(d) + 2 * row_bytes;
  unsigned char* memory;

  __device__ mma::Tile<d> k() const { return {mma::shared_address(memory)}; }
  __device__ mma::Tile<d> q(int turn) const {
    return {k().base + static_cast<Word>(own_bytes + turn * 2 * step_bytes(d))};
  }
  __device__ mma::Tile<d> go(int turn) const { return {q(turn).base + step_bytes(d)}; }
  __device__ unsigned char* rows(int turn) const {
    return memory + own_bytes + 4 * step_bytes(d) + turn * row_bytes;
  }
};

// k and v of two steps in turn.
template <int d>
struct QueryMemory {
  static constexpr int bytes = 4 * step_bytes(d);
  Word base;

  __device__ mma::Tile<d> k(int turn) const {
    return {base + static_cast<Word>(turn * 2 * step_bytes(d))};
  }
  __device__ mma::Tile<d> v(int turn) const { return {k(turn).base + step_bytes(d)}; }
};

void key_gradients(const Call& call, const Gradient<Bf16>& a, const AttentionSizes& n);
void key_gradients(const Call& call, const Gradient<F16>& a, const AttentionSizes& n);

}  // namespace tessera::exec::cuda::lengthy
