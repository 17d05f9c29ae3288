// attention_grad of heads of width 32 with 17 to 64 tokens: the windows of a Swin. A block has one
// head and, where there is a mask, one window of it, and walks over the images of a slice: so bias
// and mask are added up once, padded by -inf, and lie in shared memory as the threads read them.
// The next window arrives while this one is worked on. As in the kernel for any short sequence a
// warp owns 16 keys, then 16 queries, and every sum has one owner; the gradient of the bias stays
// in registers over the slice. Floor: bytes of q, k, v, o, do, dq, dk and dv.
#include "exec/cuda/attention/attention_short_gradient.cuh"
#include "exec/cuda/attention/attention_window.cuh"

namespace tessera::exec::cuda::brief {
namespace {

constexpr int window_residents = 3;  // blocks of a multiprocessor

// q, k, v, do and o of two windows in turn; dS as [key][query], chunks permuted; what is added to
// scores, four for each thread and eight queries; of every query log2(e) lse and D = do.o.
struct WindowMemory {
  enum Of { q, k, v, go, o, tensors };
  static constexpr int tile_bytes = window_tokens * window_d * 2;
  static constexpr int half_bytes = tensors * tile_bytes;
  static constexpr int ds_row = window_tokens * 2, ds_bytes = window_tokens * ds_row;
  static constexpr int added_bytes = window_tokens * window_tokens * 4;
  static constexpr int bytes = 2 * half_bytes + ds_bytes + added_bytes + 2 * window_tokens * 4;

  unsigned char* memory;

  __device__ unsigned char* data(Of of, int half) const {
    return memory + half * half_bytes + of * tile_bytes;
  }
  __device__ mma::Tile<window_d> tile(Of of, int half) const {
    return {mma::shared_address(data(of, half))};
  }
  __device__ unsigned char* ds() const { return memory + 2 * half_bytes; }
  // These are of the keys of the thread and of 8 queries from 8 `eight` on.
  __device__ float4& added(int eight) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return reinterpret_cast<float4*>(
        ds() + ds_bytes)[(warp * 2 * window_blocks + eight) * 32 + mma::lane_id()];
  }
  __device__ float* lse() const { return reinterpret_cast<float*>(ds() + ds_bytes + added_bytes); }
  __device__ float* total() const { return lse() + window_tokens; }

  static __device__ __forceinline__ unsigned ds_at(unsigned key, unsigned chunk) {
    return key * ds_row + ((chunk ^ (key & 7)) << 4);
  }
  __device__ __forceinline__ void put_ds(int key, int query, mma::Word two) const {
    const unsigned at = ds_at(static_cast<unsigned>(key), static_cast<unsigned>(query) >> 3);
    *reinterpret_cast<mma::Word*>(ds() + at + (query & 7) * 2) = two;
  }
  // As GradientMemory::ds_place.
  __device__ __forceinline__ mma::Word ds_place(int first) const {
    const unsigned lane = threadIdx.x & 31;
    return mma::shared_address(ds()) + ds_at((lane & 7) + (lane >> 4 << 3),
                                             (static_cast<unsigned>(first) >> 3) + (lane >> 3 & 1));
  }
};

template <class T>
__device__ __forceinline__ void start_window(const Gradient<T>& a, WindowMemory shared, int half,
                                             std::int64_t image, std::int64_t window, int ih,
                                             const Places& places, float (&lse)[Share::rows]) {
  const Heads<T>& at = a.at;
  const Share own;
  const std::int64_t first = image_at(at, image, ih);
  const mma::Word base =
      mma::shared_address(shared.memory) + static_cast<mma::Word>(half * WindowMemory::half_bytes);
#pragma unroll
  for (int j = 0; j < Share::rows; ++j) {
    const int row = own.row(j);
    const bool there = row < at.t;
    const std::int64_t from =
        there
            ? first + static_cast<std::int64_t>(places.copied[j]) * at.h * window_d + own.chunk * 8
            : 0;
    const mma::Word to = base + own.byte(j);
    constexpr int next = WindowMemory::tile_bytes;
    mma::copy_16(to + WindowMemory::q * next, at.q + from, there);
    mma::copy_16(to + WindowMemory::k * next, at.k + from, there);
    mma::copy_16(to + WindowMemory::v * next, at.v + from, there);
    mma::copy_16(to + WindowMemory::go * next, a.go + from, there);
    mma::copy_16(to + WindowMemory::o * next, a.o + from, there);
    lse[j] = std::numeric_limits<float>::infinity();  // makes P = 0 where there is no query
    if (there && own.chunk == 0)
      lse[j] = a.lse[((image * at.windows + window) * at.h + ih) * at.t + row] * log2_e;
  }
}

// D = do.o of the queries whose bytes this thread and its neighbours copied.
template <class T>
__device__ __forceinline__ void take_totals(WindowMemory shared, int half,
                                            const float (&lse)[Share::rows]) {
  const Share own;
#pragma unroll
  for (int j = 0; j < Share::rows; ++j) {
    const auto o = *reinterpret_cast<const Pack<T, 8>*>(shared.data(WindowMemory::o, half) +
                                                        own.byte(j)),
               go = *reinterpret_cast<const Pack<T, 8>*>(shared.data(WindowMemory::go, half) +
                                                         own.byte(j));
    float sum = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += widen(o.at[e]) * widen(go.at[e]);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (own.chunk == 0) {
      shared.total()[own.row(j)] = sum;
      shared.lse()[own.row(j)] = lse[j];
    }
  }
}

// log2(e) (bias + mask) of the thread's scores; -inf where there is no key or no query.
template <class T>
__device__ __forceinline__ void add_once(const Heads<T>& at, WindowMemory shared, int ih,
                                         std::int64_t window, int first) {
  float x[2 * window_blocks][4];
  load_addends<true>(x, at, ih, window, first);
#pragma unroll
  for (int eight = 0; eight < 2 * window_blocks; ++eight)
    shared.added(eight) = make_float4(x[eight][0], x[eight][1], x[eight][2], x[eight][3]);
}

// P^T and dS^T of 16 keys and 8 queries, from the products k q^T and v do^T.
__device__ __forceinline__ void finish_eight(float (&p)[4], float (&ds)[4], WindowMemory shared,
                                             float factor, int eight) {
  const int two = 8 * eight + 2 * (mma::lane_id() % 4);
  const float2 lse = *reinterpret_cast<const float2*>(shared.lse() + two),
               total = *reinterpret_cast<const float2*>(shared.total() + two);
  const float4 added = shared.added(eight);
  p[0] = mma::power_of_2(p[0] * factor + (added.x - lse.x));
  p[1] = mma::power_of_2(p[1] * factor + (added.y - lse.y));
  p[2] = mma::power_of_2(p[2] * factor + (added.z - lse.x));
  p[3] = mma::power_of_2(p[3] * factor + (added.w - lse.y));
  ds[0] = p[0] * (ds[0] - total.x);
  ds[1] = p[1] * (ds[1] - total.y);
  ds[2] = p[2] * (ds[2] - total.x);
  ds[3] = p[3] * (ds[3] - total.y);
}

// The place of an image's first token in dq, dk and dv, for head `ih`.
template <class T>
__device__ __forceinline__ std::int64_t result_at(const Gradient<T>& a, std::int64_t image,
                                                  int ih) {
  return image * a.at.windows * a.at.t * a.row + ih * window_d;
}

// dk and dv of the warp's 16 keys; leaves their dS and adds it to `sum`.
template <class T>
__device__ __forceinline__ void window_keys(const Gradient<T>& a, WindowMemory shared, int half,
                                            std::int64_t image, int ih, int first_key,
                                            const Places& places,
                                            float (&sum)[2 * window_blocks][4]) {
  constexpr int steps = window_d / 16;
  const mma::Tile<window_d> q = shared.tile(WindowMemory::q, half),
                            go = shared.tile(WindowMemory::go, half);
  const mma::Word q_down = q.down(), q_across = q.across(), go_down = go.down(),
                  go_across = go.across();
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
  mma::Word k[steps][4], v[steps][4], r[4], left[4];
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    mma::load_matrices(k[step],
                       q.moved(shared.tile(WindowMemory::k, half).across(), first_key, step));
    mma::load_matrices(v[step],
                       q.moved(shared.tile(WindowMemory::v, half).across(), first_key, step));
  }
  float dk[2 * steps][4] = {}, dv[2 * steps][4] = {};
#pragma unroll
  for (int block = 0; block < window_blocks; ++block) {
    const int first = block * 16;
    float p[2][4] = {}, ds[2][4] = {};
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      mma::load_matrices(r, q.moved(q_down, first, step));
      mma::multiply<T>(p[0], k[step], r[0], r[1]);
      mma::multiply<T>(p[1], k[step], r[2], r[3]);
      mma::load_matrices(r, go.moved(go_down, first, step));
      mma::multiply<T>(ds[0], v[step], r[0], r[1]);
      mma::multiply<T>(ds[1], v[step], r[2], r[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
      finish_eight(p[n], ds[n], shared, a.at.scale * log2_e, 2 * block + n);
    as_left<T>(left, p);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      mma::load_transposed(r, go.moved(go_across, first, step));
      mma::multiply<T>(dv[2 * step], left, r[0], r[1]);
      mma::multiply<T>(dv[2 * step + 1], left, r[2], r[3]);
    }
    as_left<T>(left, ds);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      shared.put_ds(first_key + g, first + 8 * n + 2 * t, left[2 * n]);
      shared.put_ds(first_key + g + 8, first + 8 * n + 2 * t, left[2 * n + 1]);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[2 * block + n][e] += ds[n][e];
    }
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      mma::load_transposed(r, q.moved(q_across, first, step));
      mma::multiply<T>(dk[2 * step], left, r[0], r[1]);
      mma::multiply<T>(dk[2 * step + 1], left, r[2], r[3]);
    }
  }
  const std::int64_t place = result_at(a, image, ih);
  if (a.dk)
    store_tokens(dk, a.at.scale, a.at.scale, a.dk + place, a.row, places, a.at.s - first_key);
  if (a.dv) store_tokens(dv, 1, 1, a.dv + place, a.row, places, a.at.s - first_key);
}

// dq of the warp's 16 queries.
template <class T>
__device__ __forceinline__ void window_queries(const Gradient<T>& a, WindowMemory shared, int half,
                                               std::int64_t image, int ih, int first,
                                               const Places& places) {
  const mma::Tile<window_d> k = shared.tile(WindowMemory::k, half);
  const mma::Word k_place = k.across(), ds_place = shared.ds_place(first);
  float dq[window_d / 8][4] = {};
  mma::Word left[4], r[4];
#pragma unroll
  for (int key = 0; key < window_tokens; key += 16) {
    mma::load_transposed(left, ds_place + static_cast<mma::Word>(key * WindowMemory::ds_row));
#pragma unroll
    for (int step = 0; step < window_d / 16; ++step) {
      mma::load_transposed(r, k.moved(k_place, key, step));
      mma::multiply<T>(dq[2 * step], left, r[0], r[1]);
      mma::multiply<T>(dq[2 * step + 1], left, r[2], r[3]);
    }
  }
  store_tokens(dq, a.at.scale, a.at.scale, a.dq + result_at(a, image, ih), a.row, places,
               a.at.t - first);
}

template <class T>
__global__ void __launch_bounds__(window_threads, window_residents) window_gradient(Gradient<T> a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  const WindowMemory shared{memory};
  const Heads<T>& at = a.at;
  const auto [ih, window, begin, end] = WindowWork(at, a.batch, a.samples);
  const int first = static_cast<int>(threadIdx.x) / 32 * 16;
  const Places places(at, window, first);
  float sum[2 * window_blocks][4] = {}, lse[Share::rows] = {};
  if (begin < end) start_window(a, shared, 0, begin, window, ih, places, lse);
  add_once(at, shared, ih, window, first);  // a thread reads what it wrote itself
  int half = 0;
  for (std::int64_t image = begin; image < end; ++image, half ^= 1) {
    mma::wait_for_copies();
    take_totals<T>(shared, half, lse);  // of its own copies; the reads before are behind a barrier
    __syncthreads();
    if (image + 1 < end) start_window(a, shared, half ^ 1, image + 1, window, ih, places, lse);
    window_keys(a, shared, half, image, ih, first, places, sum);
    __syncthreads();
    if (first < at.t && a.dq) window_queries(a, shared, half, image, ih, first, places);
  }
  if (!a.partial) return;
  float* to = a.partial + blockIdx.x * static_cast<std::int64_t>(at.t * at.s);
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
#pragma unroll
  for (int n = 0; n < 2 * window_blocks; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int query = 8 * n + 2 * t + e % 2, key = first + g + e / 2 * 8;
      if (query < at.t && key < at.s) to[query * at.s + key] = sum[n][e];
    }
#endif
}

template <class T>
void launch_window(const Call& call, const Gradient<T>& a, unsigned grid) {
  constexpr int bytes = WindowMemory::bytes;
  must(cudaFuncSetAttribute(window_gradient<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
       "shared memory of attention_grad");
  window_gradient<T><<<grid, window_threads, bytes, call.stream>>>(a);
  launched("attention_grad of windows");
}

}  // namespace

bool has_window_gradient(const AttentionSizes& n, const Limits& limits) {
  return is_window(n) && WindowMemory::bytes <= limits.shared_per_block;
}
void window_gradient(const Call& call, const Gradient<Bf16>& a, unsigned grid) {
  launch_window(call, a, grid);
}
void window_gradient(const Call& call, const Gradient<F16>& a, unsigned grid) {
  launch_window(call, a, grid);
}

}  // namespace tessera::exec::cuda::brief
