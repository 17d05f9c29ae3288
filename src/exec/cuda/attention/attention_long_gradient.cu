// attention_grad of any number of tokens by tensor cores: D = do.o of every query, dk and dv by a
// kernel that owns keys, dq by one that owns queries. P is recomputed by both, so that every sum
// has one owner: 7 products of t s d where 5 would do. A block has 128 queries of one head and
// walks over keys, 64 at a time; a warp has 32 queries and keeps dq in registers. The gradient of a
// bias is the plain kernels' work. Floor: 14 b h t s d operations.
#include <vector>

#include "exec/cuda/attention/attention_long_gradient.cuh"

namespace tessera::exec::cuda {

namespace lengthy {

inline constexpr int total_threads = 256;

// A block has some queries of one head; 8 elements of a row for each thread.
template <class T, int d>
__global__ void __launch_bounds__(total_threads)
    long_totals(const T* o, const T* go, const float* lse, float2* rows, int t, int h, int parts) {
  constexpr int chunks = d / 8, block_rows = total_threads / chunks;
  const unsigned head = blockIdx.x / static_cast<unsigned>(parts);
  const std::int64_t ib = head / static_cast<unsigned>(h);
  const int ih = static_cast<int>(head % static_cast<unsigned>(h));
  const int query = static_cast<int>(blockIdx.x % static_cast<unsigned>(parts)) * block_rows +
                    static_cast<int>(threadIdx.x) / chunks,
            chunk = static_cast<int>(threadIdx.x) % chunks;
  float sum = 0;
  if (query < t) {
    const std::int64_t at = ((ib * t + query) * h + ih) * d + chunk * 8;
    const auto x = *reinterpret_cast<const Pack<T, 8>*>(o + at),
               y = *reinterpret_cast<const Pack<T, 8>*>(go + at);
#pragma unroll
    for (int e = 0; e < 8; ++e) sum += widen(x.at[e]) * widen(y.at[e]);
  }
#pragma unroll
  for (int lane = chunks / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  if (chunk == 0)
    rows[static_cast<std::int64_t>(head) * parts * block_rows + query] =
        make_float2(query < t ? lse[static_cast<std::int64_t>(head) * t + query] * log2_e
                              : std::numeric_limits<float>::infinity(),
                    sum);
}

// dS of 16 queries and 16 keys as a left factor, from the products q k^T and do v^T; `rows`: lse
// and D of rows g and g + 8. 0 where there is no key.
template <class T, bool adds>
__device__ __forceinline__ void finish_queries(const float (&p)[2][4], float (&ds)[2][4],
                                               float factor, const float2 (&rows)[2],
                                               const Added& added, int query, int key,
                                               Word (&left)[4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 row = rows[e / 2];
      float x = p[n][e] * factor;
      if (adds && added.any()) x += added.at(query + e / 2 * 8, key + 8 * n + e % 2);
      ds[n][e] = mma::power_of_2(x - row.x) * (ds[n][e] - row.y);
      if (key + 8 * n + e % 2 >= added.s) ds[n][e] = 0;
    }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    left[i] = mma::pack<T>(ds[i / 2][i % 2 * 2], ds[i / 2][i % 2 * 2 + 1]);
}

// Adds what 16 keys give to dq of the warp's queries. `in_step`: the first of them among those in
// shared memory, `key` among all.
template <class T, int d, bool adds>
__device__ __forceinline__ void query_tile(QueryMemory<d> shared, int turn, int in_step,
                                           float factor, const Added& added, int first_query,
                                           int key, const float2 (&rows)[2][2],
                                           const Word (&q)[2][d / 16][4],
                                           const Word (&go)[2][d / 16][4],
                                           float (&dq)[2][d / 8][4]) {
  constexpr int steps = d / 16;
  const mma::Tile<d> k = shared.k(turn), v = shared.v(turn);
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
  float p[2][2][4] = {}, ds[2][2][4] = {};
  Word down[steps][4], more[steps][4], left[2][4];
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    mma::load_matrices(down[step], k.moved(k.down(), in_step, step));
    mma::load_matrices(more[step], v.moved(v.down(), in_step, step));
  }
#pragma unroll
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        mma::multiply<T>(p[m][n], q[m][step], down[step][2 * n], down[step][2 * n + 1]);
        mma::multiply<T>(ds[m][n], go[m][step], more[step][2 * n], more[step][2 * n + 1]);
      }
#pragma unroll
  for (int step = 0; step < steps; ++step)
    mma::load_transposed(down[step], k.moved(k.across(), in_step, step));
#pragma unroll
  for (int m = 0; m < 2; ++m)
    finish_queries<T, adds>(p[m], ds[m], factor, rows[m], added, first_query + 16 * m + g,
                            key + 2 * t, left[m]);
#pragma unroll
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      mma::multiply<T>(dq[m][2 * step], left[m], down[step][0], down[step][1]);
      mma::multiply<T>(dq[m][2 * step + 1], left[m], down[step][2], down[step][3]);
    }
}

template <class T, int d, bool adds>
__global__ void __launch_bounds__(threads, 2) long_query_gradient(Gradient<T> a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  const QueryMemory<d> shared{mma::shared_address(memory)};
  const Heads<T>& at = a.at;
  const Place place(at.t, at.h);
  const std::int64_t stride = static_cast<std::int64_t>(at.h) * d;
  const auto start = [&](int first, int turn) {
    const std::int64_t from = at.at(place.ib, place.ih, at.s, first, d);
    copy_rows<step_tokens>(shared.k(turn), at.k + from, stride, at.s - first);
    copy_rows<step_tokens>(shared.v(turn), at.v + from, stride, at.s - first);
  };
  start(0, 0);
  Word q[2][d / 16][4], go[2][d / 16][4];
  const std::int64_t own = at.at(place.ib, place.ih, at.t, place.first, d);
  load_own<d>(q, at.q + own, stride, at.t - place.first);
  load_own<d>(go, a.go + own, stride, at.t - place.first);
  const bool idle = place.first >= at.t;
  float2 rows[2][2] = {};
  if (!idle)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      rows[i / 2][i % 2] = a.rows_of(place)[place.first + 8 * i + mma::lane_id() / 4];
  const Added added = at.added(place.ib, place.ih);
  float dq[2][d / 8][4] = {};
#pragma unroll 1
  for (int first = 0, turn = 0; first < at.s; first += step_tokens, turn ^= 1) {
    mma::wait_for_copies();
    __syncthreads();
    if (first + step_tokens < at.s) start(first + step_tokens, turn ^ 1);
    if (idle) continue;  // a warp without queries copies alone
#pragma unroll 1
    for (int in_step = 0; in_step < step_tokens; in_step += 16) {
      if (first + in_step >= at.s) break;
      query_tile<T, d, adds>(shared, turn, in_step, at.scale * log2_e, added, place.first,
                             first + in_step, rows, q, go, dq);
    }
  }
  if (!idle)
    store_own<d>(dq, at.scale, a.dq + a.result(place, at.t, place.first, d), a.row,
                 at.t - place.first);
#endif
}

template <class T>
void long_gradient_of(const Call& call, const AttentionSizes& n) {
  const AttentionResults to = attention_results(call, n);
  const Gradient<T> a{.at = heads_of<T>(call, n, 6),
                      .go = call.in[5].as<T>(),
                      .rows = call.scratch<const float2>(),
                      .dq = reinterpret_cast<T*>(to.dq),
                      .dk = reinterpret_cast<T*>(to.dk),
                      .dv = reinterpret_cast<T*>(to.dv),
                      .row = to.row};
  if (!a.dq && !a.dk && !a.dv) return;
  const auto totals = [&](auto d) {
    const std::int64_t parts = padded_queries(n) / (total_threads / (d / 8));
    long_totals<T, d><<<static_cast<unsigned>(n.heads() * parts), total_threads, 0, call.stream>>>(
        call.in[3].as<T>(), a.go, call.in[4].as<float>(), call.scratch<float2>(), n.t, n.h,
        static_cast<int>(parts));
    launched("attention_grad of long sequences, totals");
  };
  n.d == 32 ? totals(std::integral_constant<int, 32>{}) : totals(std::integral_constant<int, 64>{});
  if (a.dk || a.dv) key_gradients(call, a, n);
  if (!a.dq) return;
  with_kernel(a.at, n.d, [&](auto d, auto adds) {
    const auto blocks = static_cast<unsigned>(n.heads() * tiles_of(n.t));
    long_query_gradient<T, d, adds><<<blocks, threads, QueryMemory<d>::bytes, call.stream>>>(a);
    launched("attention_grad of long sequences, dq");
  });
}

// The gradient of the bias alone.
void bias_gradient_alone(const Call& call) {
  std::vector<Tensor> out(call.out.begin(), call.out.end());
  for (std::size_t i = 0; i < (call.attr<ir::Attention>().packed ? 1 : 3); ++i)
    out[i].data = nullptr;
  Call rest = call;
  rest.out = out;
  plain_attention_grad(rest);
}

}  // namespace lengthy

bool long_attention_grad_fits(const AttentionSizes& n, ir::DType dtype, const Limits& limits) {
  const std::int64_t bytes =
      n.d == 32 ? lengthy::KeyMemory<32>::bytes : lengthy::KeyMemory<64>::bytes;
  return lengthy::has_kernel(n, dtype, limits) && bytes <= limits.shared_per_block &&
         n.heads() * lengthy::padded_queries(n) / 32 < (std::int64_t{1} << 31);
}

std::int64_t long_attention_grad_bytes(const AttentionSizes& n) {
  return n.heads() * lengthy::padded_queries(n) * static_cast<std::int64_t>(sizeof(float2));
}

void long_attention_grad(const Call& call) {
  const AttentionSizes n = attention_sizes(call);
  CHECK(call.workspace_bytes >= long_attention_grad_bytes(n),
        "attention_grad: workspace too small");
  brief::with_low(call.in[0].dtype, [&]<class T>(T) { lengthy::long_gradient_of<T>(call, n); });
  if (attention_results(call, n).dbias) lengthy::bias_gradient_alone(call);
}

}  // namespace tessera::exec::cuda
