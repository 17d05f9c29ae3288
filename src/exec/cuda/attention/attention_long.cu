// attention of any number of tokens by tensor cores: a block has 128 queries of one head and walks
// over keys, 64 at a time; a warp has 32 queries and keeps their running maxima, sums and results
// in registers (Milakov and Gimelshein 2018; Dao 2023). Floor: 4 b h t s d operations.
#include "exec/cuda/attention/attention_long.cuh"

namespace tessera::exec::cuda {

namespace lengthy {

constexpr float lowest = -std::numeric_limits<float>::infinity();

// Keys and values of two steps in turn.
template <int d>
struct ForwardMemory {
  static constexpr int bytes = 4 * step_bytes(d);
  Word base;

  __device__ mma::Tile<d> keys(int turn) const {
    return {base + static_cast<Word>(turn * 2 * step_bytes(d))};
  }
  __device__ mma::Tile<d> values(int turn) const { return {keys(turn).base + step_bytes(d)}; }
};

// A warp keeps this of its queries, of rows g and g + 8 of two tiles; a lane sums its own columns.
template <int d>
struct Running {
  float out[2][d / 8][4] = {}, top[2][2] = {{lowest, lowest}, {lowest, lowest}}, sum[2][2] = {};
};

// Scores of 32 queries and 64 keys: q.k, or where something may be added log2(e) (scale q.k + bias
// + mask); -inf where there is no key.
template <class T, int d, bool adds>
__device__ __forceinline__ void make_scores(float (&score)[2][8][4], const Word (&q)[2][d / 16][4],
                                            mma::Tile<d> keys, float factor, const Added& added,
                                            int first_query, int first_key) {
  const Word place = keys.down();
  Word r[4];
#pragma unroll
  for (int block = 0; block < 4; ++block)
#pragma unroll
    for (int step = 0; step < d / 16; ++step) {
      mma::load_matrices(r, keys.moved(place, block * 16, step));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        mma::multiply<T>(score[m][2 * block], q[m][step], r[0], r[1]);
        mma::multiply<T>(score[m][2 * block + 1], q[m][step], r[2], r[3]);
      }
    }
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
  const bool some = added.any(), ends = added.s - first_key < step_tokens;
  if (!adds && !ends) return;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = first_key + 8 * n + 2 * t + e % 2,
                  query = first_query + 16 * m + g + e / 2 * 8;
        float& x = score[m][n][e];
        if constexpr (adds) x = x * factor + (some ? added.at(query, key) : 0.0f);
        if (ends && key >= added.s) x = lowest;
      }
}

// 2^(factor score - base) instead of scores, where base is the running maximum of the row; what was
// summed before shrinks to it.
template <int d>
__device__ __forceinline__ void exponentials(float (&score)[2][8][4], Running<d>& row,
                                             float factor) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float most = row.top[m][half], total = 0;
#pragma unroll
      for (int n = 0; n < 8; ++n)
        most = fmaxf(most, fmaxf(score[m][n][2 * half], score[m][n][2 * half + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      const float base = most == lowest ? 0.0f : most * factor,
                  shrink = mma::power_of_2(row.top[m][half] * factor - base);
      row.top[m][half] = most;
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e)
          total += score[m][n][e] = mma::power_of_2(score[m][n][e] * factor - base);
      row.sum[m][half] = row.sum[m][half] * shrink + total;
#pragma unroll
      for (int n = 0; n < d / 8; ++n) {
        row.out[m][n][2 * half] *= shrink;
        row.out[m][n][2 * half + 1] *= shrink;
      }
    }
}

// out += P v.
template <class T, int d>
__device__ __forceinline__ void add_values(const float (&p)[2][8][4], mma::Tile<d> values,
                                           Running<d>& row) {
  const Word place = values.across();
  Word r[4], left[2][4];
#pragma unroll
  for (int block = 0; block < 4; ++block) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&c)[4] = p[m][2 * block + i / 2];
        left[m][i] = mma::pack<T>(c[i % 2 * 2], c[i % 2 * 2 + 1]);
      }
#pragma unroll
    for (int step = 0; step < d / 16; ++step) {
      mma::load_transposed(r, values.moved(place, block * 16, step));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        mma::multiply<T>(row.out[m][2 * step], left[m], r[0], r[1]);
        mma::multiply<T>(row.out[m][2 * step + 1], left[m], r[2], r[3]);
      }
    }
  }
}

// Quotients to o and the logarithms of sums to lse. No score above -inf: 0 / 0, as by the
// definition.
template <class T, int d>
__device__ __forceinline__ void put_results(const Heads<T>& at, const Place& place, Running<d>& row,
                                            float factor, T* o, float* lse) {
  const std::int64_t stride = static_cast<std::int64_t>(at.h) * d,
                     head = place.ib * at.h + place.ih;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const int first = place.first + 16 * m;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& sum = row.sum[m][half];
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (sum == 0) sum = std::numeric_limits<float>::quiet_NaN();
      const int query = first + mma::lane_id() / 4 + 8 * half;
      if (lse && mma::lane_id() % 4 == 0 && query < at.t)
        lse[head * at.t + query] = (row.top[m][half] * factor + log2f(sum)) * ln_2;
    }
    if (o)
      mma::store_rows<d>(row.out[m], 1 / row.sum[m][0], 1 / row.sum[m][1],
                         o + at.at(place.ib, place.ih, at.t, first, d), stride, at.t - first);
  }
}

template <class T, int d, bool adds>
__global__ void __launch_bounds__(threads, 2) long_forward(Heads<T> at, T* o, float* lse) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  const ForwardMemory<d> shared{mma::shared_address(memory)};
  const Place place(at.t, at.h);
  const std::int64_t stride = static_cast<std::int64_t>(at.h) * d;
  const auto start = [&](int first, int turn) {
    const std::int64_t from = at.at(place.ib, place.ih, at.s, first, d);
    copy_rows<step_tokens>(shared.keys(turn), at.k + from, stride, at.s - first);
    copy_rows<step_tokens>(shared.values(turn), at.v + from, stride, at.s - first);
  };
  start(0, 0);
  Word q[2][d / 16][4];
  load_own<d>(q, at.q + at.at(place.ib, place.ih, at.t, place.first, d), stride,
              at.t - place.first);
  const Added added = at.added(place.ib, place.ih);
  const float scaled = at.scale * log2_e, factor = adds ? 1.0f : scaled;
  Running<d> row;
#pragma unroll 1
  for (int first = 0, turn = 0; first < at.s; first += step_tokens, turn ^= 1) {
    mma::wait_for_copies();
    __syncthreads();
    if (first + step_tokens < at.s) start(first + step_tokens, turn ^ 1);
    if (place.first >= at.t) continue;  // a warp without queries copies alone
    float score[2][8][4] = {};
    make_scores<T, d, adds>(score, q, shared.keys(turn), scaled, added, place.first, first);
    exponentials(score, row, factor);
    add_values<T>(score, shared.values(turn), row);
  }
  if (place.first < at.t) put_results(at, place, row, factor, o, lse);
#endif
}

template <class T>
void long_forward_of(const Call& call, const AttentionSizes& n) {
  const Heads<T> at = heads_of<T>(call, n, 3);
  with_kernel(at, n.d, [&](auto d, auto adds) {
    const auto blocks = static_cast<unsigned>(n.heads() * tiles_of(n.t));
    long_forward<T, d, adds><<<blocks, threads, ForwardMemory<d>::bytes, call.stream>>>(
        at, call.out[0].as<T>(), call.out.size() > 1 ? call.out[1].as<float>() : nullptr);
    launched("attention of long sequences");
  });
}

}  // namespace lengthy

bool long_attention_fits(const AttentionSizes& n, ir::DType dtype, const Limits& limits) {
  return lengthy::has_kernel(n, dtype, limits) &&
         4 * lengthy::step_bytes(n.d) <= limits.shared_per_block;
}

void long_attention(const Call& call) {
  brief::with_low(call.in[0].dtype,
                  [&]<class T>(T) { lengthy::long_forward_of<T>(call, attention_sizes(call)); });
}

}  // namespace tessera::exec::cuda
