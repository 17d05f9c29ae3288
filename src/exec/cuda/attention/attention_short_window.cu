// attention of heads of width 32 with 17 to 64 tokens: the windows of a Swin. A block has one head
// and, where there is a mask, one window of it, and walks over the images of a slice: bias and mask
// are added up once, padded by -inf, and lie in shared memory as the threads read them; the next
// window arrives while this one is worked on. Floor: bytes of q, k, v and o.
#include "exec/cuda/attention/attention_short_forward.cuh"
#include "exec/cuda/attention/attention_window.cuh"

namespace tessera::exec::cuda::brief {
namespace {

constexpr int scores_residents = 5;  // blocks of a multiprocessor

// q, k and v of two windows in turn; what is added to scores, four for each thread and eight keys.
struct ScoresMemory {
  enum Of { q, k, v, tensors };
  static constexpr int tile_bytes = window_tokens * window_d * 2;
  static constexpr int half_bytes = tensors * tile_bytes;
  static constexpr int bytes = 2 * half_bytes + window_tokens * window_tokens * 4;

  unsigned char* memory;

  __device__ mma::Tile<window_d> tile(Of of, int half) const {
    return {mma::shared_address(memory + half * half_bytes + of * tile_bytes)};
  }
  // These are of the queries of the thread and of 8 keys from 8 `eight` on.
  __device__ float4& added(int eight) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return reinterpret_cast<float4*>(
        memory + 2 * half_bytes)[(warp * 2 * window_blocks + eight) * 32 + mma::lane_id()];
  }
};

template <class T>
__device__ __forceinline__ void start_scores(const Heads<T>& at, ScoresMemory shared, int half,
                                             std::int64_t image, int ih, const Places& places) {
  const Share own;
  const std::int64_t first = image_at(at, image, ih);
  const mma::Word base = shared.tile(ScoresMemory::q, half).base;
#pragma unroll
  for (int j = 0; j < Share::rows; ++j) {
    const bool there = own.row(j) < at.t;
    const std::int64_t from =
        there
            ? first + static_cast<std::int64_t>(places.copied[j]) * at.h * window_d + own.chunk * 8
            : 0;
    const mma::Word to = base + own.byte(j);
    mma::copy_16(to, at.q + from, there);
    mma::copy_16(to + ScoresMemory::k * ScoresMemory::tile_bytes, at.k + from, there);
    mma::copy_16(to + ScoresMemory::v * ScoresMemory::tile_bytes, at.v + from, there);
  }
}

// log2(e) (bias + mask) of the thread's scores; -inf where there is no key.
template <class T>
__device__ __forceinline__ void add_scores_once(const Heads<T>& at, ScoresMemory shared, int ih,
                                                std::int64_t window, int first) {
  float x[2 * window_blocks][4];
  load_addends<false>(x, at, ih, window, first);
#pragma unroll
  for (int eight = 0; eight < 2 * window_blocks; ++eight)
    shared.added(eight) = make_float4(x[eight][0], x[eight][1], x[eight][2], x[eight][3]);
}

// o and lse of the warp's 16 queries.
template <class T>
__device__ __forceinline__ void window_scores(const Heads<T>& at, ScoresMemory shared, int half,
                                              std::int64_t image, std::int64_t window, int ih,
                                              int first, const Places& places, T* o, float* lse) {
  constexpr int steps = window_d / 16;
  const mma::Tile<window_d> queries = shared.tile(ScoresMemory::q, half),
                            keys = shared.tile(ScoresMemory::k, half),
                            values = shared.tile(ScoresMemory::v, half);
  const Word key_place = keys.down(), value_place = values.across();
  Word q[steps][4], r[4];
#pragma unroll
  for (int step = 0; step < steps; ++step)
    mma::load_matrices(q[step], queries.moved(queries.across(), first, step));
  float score[2 * window_blocks][4] = {};
#pragma unroll
  for (int block = 0; block < window_blocks; ++block)
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      mma::load_matrices(r, keys.moved(key_place, block * 16, step));
      mma::multiply<T>(score[2 * block], q[step], r[0], r[1]);
      mma::multiply<T>(score[2 * block + 1], q[step], r[2], r[3]);
    }
  const float factor = at.scale * log2_e;
#pragma unroll
  for (int n = 0; n < 2 * window_blocks; ++n) {
    const float4 added = shared.added(n);
    score[n][0] = score[n][0] * factor + added.x;
    score[n][1] = score[n][1] * factor + added.y;
    score[n][2] = score[n][2] * factor + added.z;
    score[n][3] = score[n][3] * factor + added.w;
  }
  float top[2], sum[2], out[window_d / 8][4] = {};
  exponentials<window_blocks>(score, top, sum);
#pragma unroll
  for (int block = 0; block < window_blocks; ++block) {
    const float(&low)[4] = score[2 * block], (&high)[4] = score[2 * block + 1];
    const Word p[4] = {mma::pack<T>(low[0], low[1]), mma::pack<T>(low[2], low[3]),
                       mma::pack<T>(high[0], high[1]), mma::pack<T>(high[2], high[3])};
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      mma::load_transposed(r, values.moved(value_place, block * 16, step));
      mma::multiply<T>(out[2 * step], p, r[0], r[1]);
      mma::multiply<T>(out[2 * step + 1], p, r[2], r[3]);
    }
  }
  if (o)
    store_tokens(out, 1 / sum[0], 1 / sum[1], o + image_at(at, image, ih), at.h * window_d, places,
                 at.t - first);
  if (lse && mma::lane_id() % 4 == 0)
#pragma unroll
    for (int half_row = 0; half_row < 2; ++half_row) {
      const int query = first + mma::lane_id() / 4 + 8 * half_row;
      if (query < at.t)
        lse[((image * at.windows + window) * at.h + ih) * at.t + query] =
            (top[half_row] + log2f(sum[half_row])) * ln_2;
    }
}

template <class T>
__global__ void __launch_bounds__(window_threads, scores_residents)
    window_forward(Heads<T> at, T* o, float* lse, std::int64_t batch, std::int64_t samples) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  const ScoresMemory shared{memory};
  const auto [ih, window, begin, end] = WindowWork(at, batch, samples);
  const int first = static_cast<int>(threadIdx.x) / 32 * 16;
  const Places places(at, window, first);
  if (begin < end) start_scores(at, shared, 0, begin, ih, places);
  add_scores_once(at, shared, ih, window, first);  // a thread reads what it wrote itself
  int half = 0;
  for (std::int64_t image = begin; image < end; ++image, half ^= 1) {
    mma::wait_for_copies();
    __syncthreads();  // this window is there, and nobody reads the one before any more
    if (image + 1 < end) start_scores(at, shared, half ^ 1, image + 1, ih, places);
    if (first < at.t) window_scores(at, shared, half, image, window, ih, first, places, o, lse);
  }
#endif
}

}  // namespace

template <class T>
void window_attention(const Call& call, AttentionSizes n) {
  constexpr int bytes = ScoresMemory::bytes;
  static_assert(bytes <= 48 * 1024);
  const Heads<T> at = heads_of<T>(call, n, 3);
  n.windows = at.windows;
  const BatchSlices cut = window_slices(n, 4 * scores_residents, call.context.limits);
  window_forward<T>
      <<<static_cast<unsigned>(cut.slices * n.h), window_threads, bytes, call.stream>>>(
          at, call.out[0].as<T>(), call.out.size() > 1 ? call.out[1].as<float>() : nullptr, n.b,
          cut.samples);
  launched("attention of windows");
}
template void window_attention<Bf16>(const Call&, AttentionSizes);
template void window_attention<F16>(const Call&, AttentionSizes);

}  // namespace tessera::exec::cuda::brief
