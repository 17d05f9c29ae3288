// attention_grad of heads of width 64 with 81 to 208 tokens and nothing added to the scores: the
// attention of a ViT. A block stays on its multiprocessor and walks over heads, whose q, k and do
// arrive in one half of shared memory while the head before is worked on in the other. A warp owns
// 32 keys, so that what it reads of a query serves two tiles, and keeps their dk and dv in
// registers; dS lies in shared memory for 112 queries at a time, of which a warp then owns 16 and
// makes dq. Every sum has one owner. Floor: bytes of q, k, v, o, do, dq, dk and dv.
#include "exec/cuda/attention/attention_short_gradient.cuh"

namespace tessera::exec::cuda::brief {
namespace {

constexpr int wide_d = 64, wide_warps = 7, wide_threads = wide_warps * 32;
constexpr int wide_queries = 13 * 16, wide_keys = wide_warps * 32, wide_part = wide_warps * 16;

// q, do and k of two heads in turn; dS as [key][query of the part]; of every query log2(e) lse and
// D = do.o.
struct WideMemory {
  static constexpr int query_bytes = wide_queries * wide_d * 2, key_bytes = wide_keys * wide_d * 2;
  static constexpr int half_bytes = 2 * query_bytes + key_bytes;
  static constexpr int ds_row = wide_part * 2 + 16;  // 8 rows of one chunk: 8 different places
  static constexpr int ds_bytes = wide_keys * ds_row;
  static constexpr int bytes = 2 * half_bytes + ds_bytes + 2 * wide_queries * 4;

  unsigned char* memory;

  __device__ mma::Tile<wide_d> q(int half) const {
    return {mma::shared_address(memory) + static_cast<mma::Word>(half * half_bytes)};
  }
  __device__ mma::Tile<wide_d> go(int half) const { return {q(half).base + query_bytes}; }
  __device__ mma::Tile<wide_d> k(int half) const { return {q(half).base + 2 * query_bytes}; }
  __device__ unsigned char* ds() const { return memory + 2 * half_bytes; }
  __device__ float* lse() const { return reinterpret_cast<float*>(ds() + ds_bytes); }
  __device__ float* total() const { return lse() + wide_queries; }
  __device__ __forceinline__ void put_ds(int key, int query, mma::Word two) const {
    *reinterpret_cast<mma::Word*>(ds() + key * ds_row + query * 2) = two;
  }
  // As GradientMemory::ds_place, of 16 queries from `first` of the part.
  __device__ __forceinline__ mma::Word ds_place(int first) const {
    const unsigned lane = threadIdx.x & 31;
    return mma::shared_address(ds()) + ((lane & 7) + (lane >> 4 << 3)) * ds_row +
           ((static_cast<unsigned>(first) >> 3) + (lane >> 3 & 1)) * 16;
  }
};

// Loads of a head that a thread starts before its turn: chunks of o for D, and the values of its
// warp's keys, as they lie in memory.
struct Ahead {
  static constexpr int chunks = (wide_queries * 8 + wide_threads - 1) / wide_threads;
  uint4 o[chunks], v[2][2][2];  // v: of 16 keys, rows g and g + 8, halves of the width
};

template <class T>
struct WideHead {
  std::int64_t ib = 0;
  int ih = 0;

  __device__ WideHead(const Heads<T>& at, std::int64_t head)
      : ib(head / at.h), ih(static_cast<int>(head % at.h)) {}
};

template <class T>
__device__ __forceinline__ void start_copies(const Gradient<T>& a, const WideHead<T>& head,
                                             WideMemory shared, int half) {
  const Heads<T>& at = a.at;
  const std::int64_t t = at.at_t(head.ib, head.ih, wide_d), s = at.at_s(head.ib, head.ih, wide_d);
  const int stride = at.h * wide_d;
  shared.q(half).copy(at.q + t, stride, at.t, wide_queries);
  shared.go(half).copy(a.go + t, stride, at.t, wide_queries);
  shared.k(half).copy(at.k + s, stride, at.s, wide_keys);
}

template <class T>
__device__ __forceinline__ void ask_ahead(const Gradient<T>& a, const WideHead<T>& head,
                                          int first_key, bool there, Ahead& ahead) {
  const Heads<T>& at = a.at;
  const std::int64_t stride = at.h * wide_d;
  const T *o = a.o + at.at_t(head.ib, head.ih, wide_d),
          *v = at.v + at.at_s(head.ib, head.ih, wide_d);
#pragma unroll
  for (int j = 0; j < Ahead::chunks; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * wide_threads, row = i / 8;
    ahead.o[j] = make_uint4(0, 0, 0, 0);
    if (there && row < at.t)
      ahead.o[j] = *reinterpret_cast<const uint4*>(o + row * stride + i % 8 * 8);
  }
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int key = first_key + 16 * m + 8 * half + g;
        ahead.v[m][half][part] = make_uint4(0, 0, 0, 0);
        if (there && key < at.s)
          ahead.v[m][half][part] =
              *reinterpret_cast<const uint4*>(v + key * stride + (4 * part + t) * 8);
      }
}

// The values as left factors.
__device__ __forceinline__ void take_values(const Ahead& ahead, mma::Word (&v)[2][4][4]) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const uint4 four = ahead.v[m][half][part];
        mma::Word r[4] = {four.x, four.y, four.z, four.w};
        mma::transpose_quad(r);
#pragma unroll
        for (int c = 0; c < 4; ++c) v[m][2 * part + c / 2][half + c % 2 * 2] = r[c];
      }
}

// D = do.o and log2(e) lse of every query; where there is none, lse = inf makes P = 0.
template <class T>
__device__ __forceinline__ void take_queries(const Gradient<T>& a, const WideHead<T>& head,
                                             WideMemory shared, int half, const Ahead& ahead) {
#pragma unroll
  for (int j = 0; j < Ahead::chunks; ++j) {
    const int i = static_cast<int>(threadIdx.x) + j * wide_threads, row = i / 8;
    if (row >= wide_queries) break;  // whole warps: 8 lanes have one row, 4 rows are a warp's
    const auto o = *reinterpret_cast<const Pack<T, 8>*>(&ahead.o[j]);
    const mma::Word place =
        shared.go(half).at(static_cast<unsigned>(row), static_cast<unsigned>(i % 8));
    const auto go = *reinterpret_cast<const Pack<T, 8>*>(
        shared.memory + (place - mma::shared_address(shared.memory)));
    float sum = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += widen(o.at[e]) * widen(go.at[e]);
#pragma unroll
    for (int lane = 4; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (i % 8 == 0) {
      shared.total()[row] = sum;
      shared.lse()[row] = row < a.at.t ? a.lse[(head.ib * a.at.h + head.ih) * a.at.t + row] * log2_e
                                       : std::numeric_limits<float>::infinity();
    }
  }
}

// P^T and dS^T of 16 keys and 16 queries as left factors.
template <class T>
__device__ __forceinline__ void finish_wide(const float (&p)[2][4], const float (&ds)[2][4],
                                            float factor, WideMemory shared, int keys_left,
                                            int first_query, mma::Word (&left_p)[4],
                                            mma::Word (&left_ds)[4]) {
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    const int two = first_query + 8 * n + 2 * t;
    const float2 lse = *reinterpret_cast<const float2*>(shared.lse() + two),
                 total = *reinterpret_cast<const float2*>(shared.total() + two);
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const bool there = g + high * 8 < keys_left;
      const float x = p[n][2 * high], y = p[n][2 * high + 1];
      const float px = there ? mma::power_of_2(x * factor - lse.x) : 0.0f,
                  py = there ? mma::power_of_2(y * factor - lse.y) : 0.0f;
      left_p[2 * n + high] = mma::pack<T>(px, py);
      left_ds[2 * n + high] =
          mma::pack<T>(px * (ds[n][2 * high] - total.x), py * (ds[n][2 * high + 1] - total.y));
    }
  }
}

// Adds what 16 queries give to dk and dv of the warp's keys, and leaves dS of the part. Two warps
// share a quarter of a multiprocessor, too few to hide what shared memory takes to answer: a factor
// is asked for two or more products before its own.
template <class T>
__device__ __forceinline__ void wide_tile(const Heads<T>& at, WideMemory shared, int half,
                                          int first_key, int first, int in_part,
                                          const mma::Word (&v)[2][4][4], float (&dk)[2][8][4],
                                          float (&dv)[2][8][4]) {
  const mma::Tile<wide_d> q = shared.q(half), go = shared.go(half);
  const mma::Word k_place = q.moved(shared.k(half).across(), first_key, 0);
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
  float p[2][2][4] = {}, ds[2][2][4] = {};
  mma::Word rows[4][4], more[4][4], k[3][4], left_p[2][4], left_ds[2][4];
  const auto load_k = [&](int i) {
    mma::load_matrices(k[i % 3], q.moved(k_place, i % 2 * 16, i / 2));
  };
  load_k(0);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    mma::load_matrices(rows[step], q.moved(q.down(), first, step));
    mma::load_matrices(more[step], go.moved(go.down(), first, step));
    if (step == 0) load_k(1);
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int step = i / 2, m = i % 2;
    if (i + 2 < 8) load_k(i + 2);
    mma::multiply<T>(p[m][0], k[i % 3], rows[step][0], rows[step][1]);
    mma::multiply<T>(p[m][1], k[i % 3], rows[step][2], rows[step][3]);
    mma::multiply<T>(ds[m][0], v[m][step], more[step][0], more[step][1]);
    mma::multiply<T>(ds[m][1], v[m][step], more[step][2], more[step][3]);
  }
#pragma unroll
  for (int step = 0; step < 4; ++step)
    mma::load_transposed(rows[step], go.moved(go.across(), first, step));
#pragma unroll
  for (int m = 0; m < 2; ++m)
    finish_wide<T>(p[m], ds[m], at.scale * log2_e, shared, at.s - first_key - 16 * m, first,
                   left_p[m], left_ds[m]);
#pragma unroll
  for (int step = 0; step < 4; ++step)
    mma::load_transposed(more[step], q.moved(q.across(), first, step));
#pragma unroll
  for (int step = 0; step < 4; ++step)
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      mma::multiply<T>(dv[m][2 * step], left_p[m], rows[step][0], rows[step][1]);
      mma::multiply<T>(dv[m][2 * step + 1], left_p[m], rows[step][2], rows[step][3]);
    }
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int key = first_key + 16 * m + g, query = in_part + 8 * n + 2 * t;
      shared.put_ds(key, query, left_ds[m][2 * n]);
      shared.put_ds(key + 8, query, left_ds[m][2 * n + 1]);
    }
#pragma unroll
  for (int step = 0; step < 4; ++step)
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      mma::multiply<T>(dk[m][2 * step], left_ds[m], more[step][0], more[step][1]);
      mma::multiply<T>(dk[m][2 * step + 1], left_ds[m], more[step][2], more[step][3]);
    }
}

// dq of 16 queries; the factors of the next 16 keys are on their way while these are used.
template <class T>
__device__ __forceinline__ void wide_query_gradient(const Gradient<T>& a, const WideHead<T>& head,
                                                    WideMemory shared, int half, int first,
                                                    int in_part) {
  const mma::Tile<wide_d> k = shared.k(half);
  const mma::Word k_place = k.across(), ds_place = shared.ds_place(in_part);
  float dq[8][4] = {};
  mma::Word left[2][4], r[2][4][4];
  const auto load = [&](int turn, int key) {
    mma::load_transposed(left[turn], ds_place + static_cast<mma::Word>(key * WideMemory::ds_row));
#pragma unroll
    for (int step = 0; step < 4; ++step)
      mma::load_transposed(r[turn][step], k.moved(k_place, key, step));
  };
  const auto multiply = [&](int turn) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      mma::multiply<T>(dq[2 * step], left[turn], r[turn][step][0], r[turn][step][1]);
      mma::multiply<T>(dq[2 * step + 1], left[turn], r[turn][step][2], r[turn][step][3]);
    }
  };
  load(0, 0);
#pragma unroll 1
  for (int key = 0; key < a.at.s; key += 32) {
    const bool second = key + 16 < a.at.s;
    if (second) load(1, key + 16);
    multiply(0);
    if (key + 32 < a.at.s) load(0, key + 32);
    if (second) multiply(1);
  }
  mma::store_rows<wide_d>(dq, a.at.scale, a.at.scale,
                          a.dq + a.result(head.ib, head.ih, a.at.t, first, wide_d), a.row,
                          a.at.t - first);
}

template <class T>
__global__ void __launch_bounds__(wide_threads, 1)
    wide_gradient(Gradient<T> a, std::int64_t heads) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  const WideMemory shared{memory};
  const Heads<T>& at = a.at;
  const int warp = static_cast<int>(threadIdx.x) / 32, first_key = warp * 32;
  Ahead ahead;
  std::int64_t now = blockIdx.x;
  start_copies(a, WideHead<T>(at, now), shared, 0);
  ask_ahead(a, WideHead<T>(at, now), first_key, true, ahead);
  for (int half = 0; now < heads; half ^= 1) {
    const WideHead<T> head(at, now);
    const std::int64_t next = now + gridDim.x;
    mma::Word v[2][4][4];
    take_values(ahead, v);
    mma::wait_for_copies();
    __syncthreads();
    take_queries(a, head, shared, half, ahead);
    if (next < heads) start_copies(a, WideHead<T>(at, next), shared, half ^ 1);
    __syncthreads();
    float dk[2][8][4] = {}, dv[2][8][4] = {};
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll 1
      for (int block = 0; block < wide_warps; ++block) {
        const int first = part * wide_part + block * 16;
        if (first >= at.t) break;
        if (first_key < at.s) wide_tile(at, shared, half, first_key, first, block * 16, v, dk, dv);
      }
      if (part == 1) {
        const std::int64_t place = a.result(head.ib, head.ih, at.s, first_key, wide_d);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          const int left = at.s - first_key - 16 * m;
          const std::int64_t rows = place + 16 * m * a.row;
          if (a.dk) mma::store_rows<wide_d>(dk[m], at.scale, at.scale, a.dk + rows, a.row, left);
          if (a.dv) mma::store_rows<wide_d>(dv[m], 1, 1, a.dv + rows, a.row, left);
        }
        ask_ahead(a, WideHead<T>(at, next), first_key, next < heads, ahead);
      }
      __syncthreads();
      const int first = part * wide_part + warp * 16;
      if (first < at.t && a.dq) wide_query_gradient(a, head, shared, half, first, warp * 16);
      if (part == 0) __syncthreads();
    }
    now = next;
  }
#endif
}

template <class T>
void launch_wide(const Call& call, const Gradient<T>& a) {
  constexpr int bytes = WideMemory::bytes;
  must(cudaFuncSetAttribute(wide_gradient<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
       "shared memory of attention_grad");
  const std::int64_t heads = a.batch * a.at.h;
  const auto grid =
      static_cast<unsigned>(std::min<std::int64_t>(heads, call.context.limits.multiprocessors));
  wide_gradient<T><<<grid, wide_threads, bytes, call.stream>>>(a, heads);
  launched("attention_grad of 81 to 208 tokens");
}

}  // namespace

bool has_wide_gradient(const AttentionSizes& n, bool adds, const Limits& limits) {
  const int most = std::max(n.t, n.s);
  return n.d == wide_d && !adds && most > 80 && most <= wide_queries &&
         WideMemory::bytes <= limits.shared_per_block;
}
void wide_gradient(const Call& call, const Gradient<Bf16>& a) { launch_wide(call, a); }
void wide_gradient(const Call& call, const Gradient<F16>& a) { launch_wide(call, a); }

}  // namespace tessera::exec::cuda::brief
