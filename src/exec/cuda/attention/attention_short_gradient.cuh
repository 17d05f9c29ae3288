// attention_grad of short sequences, one block per head. First a warp owns 16 keys: it makes
// the transposed scores, keeps dk and dv in registers and leaves dS in shared memory; then a warp
// owns 16 queries and makes dq of that. Every sum has one owner. A gradient of the bias is summed
// over the samples of a slice, which one block walks through: in registers where they suffice
// (`keeps`), else in the block's part of the workspace. Floor: bytes of q, k, v, o, do, dq, dk and
// dv.
#pragma once

#include <limits>

#include "exec/cuda/attention/attention_short.cuh"

namespace tessera::exec::cuda::brief {

template <class T>
struct Gradient {
  Heads<T> at;
  const T *o, *go;
  const float* lse;
  T *dq, *dk, *dv;              // null: not wanted
  int row;                      // elements between tokens of these three
  float* partial;               // [slices,h,t,s]; null: no gradient of a bias
  std::int64_t batch, samples;  // of a slice

  // Where token `first` of a head lies in dq, or with s instead of t in dk and dv. No card has room
  // for 2^31 tokens.
  __device__ std::int64_t result(std::int64_t ib, int ih, int tokens, int first, int d) const {
    return static_cast<std::int64_t>(static_cast<int>(ib) * tokens + first) * row + ih * d;
  }
};

// A block's shared memory: q, k and do as tiles, dS as [key][query], and of every query log2(e) lse
// and D = do.o.
template <int blocks, int d>
struct GradientMemory {
  static constexpr int tokens = blocks * 16, tile_bytes = tokens * d * 2;
  static constexpr bool turns = blocks % 4 == 0;  // chunks of dS are permuted; else rows are padded
  static constexpr int ds_row = tokens * 2 + (turns ? 0 : 16);
  static constexpr int bytes = 3 * tile_bytes + tokens * ds_row + 2 * tokens * 4;

  unsigned char* memory;

  __device__ mma::Tile<d> q() const { return {mma::shared_address(memory)}; }
  __device__ mma::Tile<d> k() const { return {mma::shared_address(memory + tile_bytes)}; }
  __device__ mma::Tile<d> go() const { return {mma::shared_address(memory + 2 * tile_bytes)}; }
  __device__ float* lse() const {
    return reinterpret_cast<float*>(memory + 3 * tile_bytes + tokens * ds_row);
  }
  __device__ float* total() const { return lse() + tokens; }
  // Byte of the 8 queries `chunk` of a key.
  static __device__ __forceinline__ unsigned ds_at(unsigned key, unsigned chunk) {
    return 3 * tile_bytes + key * ds_row + ((turns ? chunk ^ (key & 7) : chunk) << 4);
  }
  __device__ __forceinline__ void put_ds(int key, int query, mma::Word two) const {
    const unsigned at = ds_at(static_cast<unsigned>(key), static_cast<unsigned>(query) >> 3);
    *reinterpret_cast<mma::Word*>(memory + at + (query & 7) * 2) = two;
  }
  // Where this lane reads dS of 16 queries from `first` and the first 16 keys as a left factor,
  // transposed; those of 16 other keys lie `key` ds_row further.
  __device__ __forceinline__ mma::Word ds_place(int first) const {
    const unsigned lane = threadIdx.x & 31;
    return mma::shared_address(memory) +
           ds_at((lane & 7) + (lane >> 4 << 3),
                 (static_cast<unsigned>(first) >> 3) + (lane >> 3 & 1));
  }
};

// D = do.o and log2(e) lse of every query; where there is none, lse = inf makes P = 0.
template <class T, int blocks, int d>
__device__ __forceinline__ void load_queries(const Gradient<T>& a, GradientMemory<blocks, d> shared,
                                             std::int64_t ib, int ih) {
  constexpr int chunks = d / 8;
  const std::int64_t place = a.at.at_t(ib, ih, d);
  for (int i = static_cast<int>(threadIdx.x); i < blocks * 16 * chunks; i += blocks * 32) {
    const int row = i / chunks;
    float sum = 0;
    if (row < a.at.t) {
      const std::int64_t at = place + static_cast<std::int64_t>(row) * a.at.h * d + i % chunks * 8;
      const auto o = *reinterpret_cast<const Pack<T, 8>*>(a.o + at);
      const auto go = *reinterpret_cast<const Pack<T, 8>*>(a.go + at);
#pragma unroll
      for (int e = 0; e < 8; ++e) sum += widen(o.at[e]) * widen(go.at[e]);
    }
#pragma unroll
    for (int lane = chunks / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (i % chunks == 0) {
      shared.total()[row] = sum;
      shared.lse()[row] = row < a.at.t ? a.lse[(ib * a.at.h + ih) * a.at.t + row] * log2_e
                                       : std::numeric_limits<float>::infinity();
    }
  }
}

// P^T and dS^T of 16 keys and 16 queries, from the products k q^T and v do^T.
template <class T, int blocks, int d>
__device__ __forceinline__ void finish_tile(float (&p)[2][4], float (&ds)[2][4], const Heads<T>& at,
                                            GradientMemory<blocks, d> shared, const float* bias,
                                            const float* mask, int first_key, int first_query) {
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
  const float factor = at.scale * log2_e;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int two = first_query + 8 * n + 2 * t;
    const float2 lse = *reinterpret_cast<const float2*>(shared.lse() + two),
                 total = *reinterpret_cast<const float2*>(shared.total() + two);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int query = two + e % 2, key = first_key + g + e / 2 * 8;
      float x = p[n][e] * factor;
      if (key < at.s && query < at.t) {
        if (bias) x += bias[query * at.s + key] * log2_e;
        if (mask) x += mask[query * at.s + key] * log2_e;
      }
      p[n][e] = key < at.s ? mma::power_of_2(x - (e % 2 ? lse.y : lse.x)) : 0.0f;
      ds[n][e] = key < at.s ? p[n][e] * (ds[n][e] - (e % 2 ? total.y : total.x)) : 0.0f;
    }
  }
}

template <class T>
__device__ __forceinline__ void as_left(mma::Word (&a)[4], const float (&c)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) a[i] = mma::pack<T>(c[i / 2][i % 2 * 2], c[i / 2][i % 2 * 2 + 1]);
}

// dk and dv of 16 keys, and their dS. `sum`: of dS over the samples of a slice, where registers
// keep it; else `part` is its place in the workspace, and `adds` says whether something lies there.
template <bool keeps, class T, int blocks, int d>
__device__ __forceinline__ void key_gradients(const Gradient<T>& a,
                                              GradientMemory<blocks, d> shared, std::int64_t ib,
                                              int ih, int first_key,
                                              const mma::Word (&v)[d / 16][4],
                                              float (&sum)[keeps ? 2 * blocks : 1][4], float* part,
                                              bool adds) {
  const Heads<T>& at = a.at;
  const float *bias = at.bias_of(ih), *mask = at.mask_of(ib);
  const mma::Tile<d> q = shared.q(), go = shared.go();
  const mma::Word q_down = q.down(), q_across = q.across(), go_down = go.down(),
                  go_across = go.across();
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
  // Long heads of 64 read their keys again for every 16 queries: registers are short.
  constexpr bool rereads = d == 64 && blocks > 8;
  mma::Word k[rereads ? 1 : d / 16][4], r[4], left[4];
  const mma::Word k_place = q.moved(shared.k().across(), first_key, 0);
  if constexpr (!rereads)
#pragma unroll
    for (int step = 0; step < d / 16; ++step)
      mma::load_matrices(k[step], q.moved(k_place, 0, step));
  float dk[d / 8][4] = {}, dv[d / 8][4] = {};
#pragma unroll(keeps ? blocks : 1)
  for (int block = 0; block < blocks; ++block) {
    const int first = block * 16;
    if (first >= at.t) break;
    float p[2][4] = {}, ds[2][4] = {};
#pragma unroll
    for (int step = 0; step < d / 16; ++step) {
      if constexpr (rereads) mma::load_matrices(k[0], q.moved(k_place, 0, step));
      mma::load_matrices(r, q.moved(q_down, first, step));
      mma::multiply<T>(p[0], k[rereads ? 0 : step], r[0], r[1]);
      mma::multiply<T>(p[1], k[rereads ? 0 : step], r[2], r[3]);
      mma::load_matrices(r, go.moved(go_down, first, step));
      mma::multiply<T>(ds[0], v[step], r[0], r[1]);
      mma::multiply<T>(ds[1], v[step], r[2], r[3]);
    }
    finish_tile(p, ds, at, shared, bias, mask, first_key, first);
    as_left<T>(left, p);
#pragma unroll
    for (int step = 0; step < d / 16; ++step) {
      mma::load_transposed(r, go.moved(go_across, first, step));
      mma::multiply<T>(dv[2 * step], left, r[0], r[1]);
      mma::multiply<T>(dv[2 * step + 1], left, r[2], r[3]);
    }
    as_left<T>(left, ds);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      shared.put_ds(first_key + g, first + 8 * n + 2 * t, left[2 * n]);
      shared.put_ds(first_key + g + 8, first + 8 * n + 2 * t, left[2 * n + 1]);
    }
#pragma unroll
    for (int step = 0; step < d / 16; ++step) {
      mma::load_transposed(r, q.moved(q_across, first, step));
      mma::multiply<T>(dk[2 * step], left, r[0], r[1]);
      mma::multiply<T>(dk[2 * step + 1], left, r[2], r[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if constexpr (keeps) {
          sum[2 * block + n][e] += ds[n][e];
        } else if (part) {
          const int query = first + 8 * n + 2 * t + e % 2, key = first_key + g + e / 2 * 8;
          if (query < at.t && key < at.s) {
            float& place = part[query * at.s + key];
            place = adds ? place + ds[n][e] : ds[n][e];
          }
        }
      }
  }
  const std::int64_t place = a.result(ib, ih, at.s, first_key, d);
  if (a.dk) mma::store_rows<d>(dk, at.scale, at.scale, a.dk + place, a.row, at.s - first_key);
  if (a.dv) mma::store_rows<d>(dv, 1, 1, a.dv + place, a.row, at.s - first_key);
}

template <class T, int blocks, int d>
__device__ __forceinline__ void query_gradient(const Gradient<T>& a,
                                               GradientMemory<blocks, d> shared, std::int64_t ib,
                                               int ih, int first) {
  const mma::Tile<d> k = shared.k();
  const mma::Word k_place = k.across(), ds_place = shared.ds_place(first);
  float dq[d / 8][4] = {};
  mma::Word left[4], r[4];
#pragma unroll 1
  for (int key = 0; key < a.at.s; key += 16) {
    mma::load_transposed(left, ds_place + static_cast<mma::Word>(key * shared.ds_row));
#pragma unroll
    for (int step = 0; step < d / 16; ++step) {
      mma::load_transposed(r, k.moved(k_place, key, step));
      mma::multiply<T>(dq[2 * step], left, r[0], r[1]);
      mma::multiply<T>(dq[2 * step + 1], left, r[2], r[3]);
    }
  }
  mma::store_rows<d>(dq, a.at.scale, a.at.scale, a.dq + a.result(ib, ih, a.at.t, first, d), a.row,
                     a.at.t - first);
}

// Blocks of a multiprocessor that the registers must allow.
constexpr int gradient_residents(int blocks, int d, bool keeps) {
  if (blocks == 1) return 12;
  if (blocks == 4) return d == 32 && !keeps ? 4 : 3;
  return blocks == 5 ? 2 : 1;
}

// A block has slice blockIdx / h of head blockIdx % h, and a warp for each block of 16 tokens.
template <class T, int blocks, int d, bool keeps>
__global__ void __launch_bounds__(blocks * 32, gradient_residents(blocks, d, keeps))
    short_gradient(Gradient<T> a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  const GradientMemory<blocks, d> shared{memory};
  const Heads<T>& at = a.at;
  const int ih = static_cast<int>(blockIdx.x % static_cast<unsigned>(at.h));
  const std::int64_t slice = blockIdx.x / static_cast<unsigned>(at.h);
  const int first = static_cast<int>(threadIdx.x) / 32 * 16, stride = at.h * d;
  const std::int64_t begin = slice * a.samples, end = min(a.batch, begin + a.samples);
  float* part =
      a.partial ? a.partial + blockIdx.x * static_cast<std::int64_t>(at.t * at.s) : nullptr;
  float sum[keeps ? 2 * blocks : 1][4] = {};
  for (std::int64_t ib = begin; ib < end; ++ib) {
    if (ib > begin) __syncthreads();
    shared.q().copy(at.q + at.at_t(ib, ih, d), stride, at.t, blocks * 16);
    shared.k().copy(at.k + at.at_s(ib, ih, d), stride, at.s, blocks * 16);
    shared.go().copy(a.go + at.at_t(ib, ih, d), stride, at.t, blocks * 16);
    mma::Word v[d / 16][4];
    mma::load_left<d>(v, at.v + at.at_s(ib, ih, d) + static_cast<std::int64_t>(first) * stride,
                      stride, at.s - first);
    load_queries(a, shared, ib, ih);
    mma::wait_for_copies();
    __syncthreads();
    if (first < at.s) key_gradients<keeps>(a, shared, ib, ih, first, v, sum, part, ib > begin);
    __syncthreads();
    if (first < at.t && a.dq) query_gradient(a, shared, ib, ih, first);
  }
  if constexpr (keeps) {
    const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
#pragma unroll
    for (int n = 0; n < 2 * blocks; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = 8 * n + 2 * t + e % 2, key = first + g + e / 2 * 8;
        if (part && query < at.t && key < at.s) part[query * at.s + key] = sum[n][e];
      }
  }
#endif
}

template <class T, int blocks, int d, bool keeps>
void launch_gradient(const Call& call, const Gradient<T>& a, unsigned grid) {
  constexpr int bytes = GradientMemory<blocks, d>::bytes;
  if constexpr (bytes > 48 * 1024)
    must(cudaFuncSetAttribute(short_gradient<T, blocks, d, keeps>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
         "shared memory of attention_grad");
  short_gradient<T, blocks, d, keeps><<<grid, blocks * 32, bytes, call.stream>>>(a);
  launched("attention_grad of short sequences");
}

// A file for each head width of bf16, and one for f16.
void gradient_bf16_32(const Call& call, const Gradient<Bf16>& a, int tokens, unsigned grid);
void gradient_bf16_64(const Call& call, const Gradient<Bf16>& a, int tokens, unsigned grid);
void gradient_f16(const Call& call, const Gradient<F16>& a, int d, int tokens, unsigned grid);

// Heads of 32 with 17 to 64 tokens, too: `samples` of `batch / windows` images for each block.
bool has_window_gradient(const AttentionSizes& n, const Limits& limits);
void window_gradient(const Call& call, const Gradient<Bf16>& a, unsigned grid);
void window_gradient(const Call& call, const Gradient<F16>& a, unsigned grid);

// Heads of 64 with 81 to 208 tokens have a kernel of their own where nothing is added to scores.
bool has_wide_gradient(const AttentionSizes& n, bool adds, const Limits& limits);
void wide_gradient(const Call& call, const Gradient<Bf16>& a);
void wide_gradient(const Call& call, const Gradient<F16>& a);

}  // namespace tessera::exec::cuda::brief
