// dk and dv of long sequences: a block has 128 keys of one head and walks over queries, 64 at a
// time; a warp has 32 keys, makes the transposed scores of 16 queries at once, and keeps dk and dv
// in registers. Every sum has one owner. Floor: 8 b h t s d operations.
#include "exec/cuda/attention/attention_long_gradient.cuh"

namespace tessera::exec::cuda::lengthy {

// P^T and dS^T of 16 keys and 16 queries as left factors, from the products k q^T and v do^T. Keys
// that are not there have rows of their own, which nobody stores.
template <class T, bool adds>
__device__ __forceinline__ void finish_keys(const float (&p)[2][4], const float (&ds)[2][4],
                                            float factor, const float4 (&rows)[2],
                                            const Added& added, int key, int query,
                                            Word (&left_p)[4], Word (&left_ds)[4]) {
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      float x = p[n][2 * high] * factor, y = p[n][2 * high + 1] * factor;
      if (adds && added.any()) {
        x += added.at(query + 8 * n, key + 8 * high);
        y += added.at(query + 8 * n + 1, key + 8 * high);
      }
      const float px = mma::power_of_2(x - rows[n].x), py = mma::power_of_2(y - rows[n].z);
      left_p[2 * n + high] = mma::pack<T>(px, py);
      left_ds[2 * n + high] =
          mma::pack<T>(px * (ds[n][2 * high] - rows[n].y), py * (ds[n][2 * high + 1] - rows[n].w));
    }
}

// Adds what 16 queries give to dk and dv of the warp's keys. `in_step`: the first of them among
// those in shared memory, `query` among all. A factor is asked for two or more products before its
// own.
template <class T, int d, bool adds>
__device__ __forceinline__ void key_tile(KeyMemory<d> shared, int turn, Word k_place, int in_step,
                                         float factor, const Added& added, int first_key, int query,
                                         const Word (&v)[2][d / 16][4], float (&dk)[2][d / 8][4],
                                         float (&dv)[2][d / 8][4]) {
  constexpr int steps = d / 16;
  const mma::Tile<d> q = shared.q(turn), go = shared.go(turn);
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4;
  float p[2][2][4] = {}, ds[2][2][4] = {};
  Word down[steps][4], more[steps][4], k[3][4], left_p[2][4], left_ds[2][4];
  const auto load_k = [&](int i) {
    mma::load_matrices(k[i % 3], q.moved(k_place, i % 2 * 16, i / 2));
  };
  load_k(0);
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    mma::load_matrices(down[step], q.moved(q.down(), in_step, step));
    mma::load_matrices(more[step], go.moved(go.down(), in_step, step));
    if (step == 0) load_k(1);
  }
#pragma unroll
  for (int i = 0; i < 2 * steps; ++i) {
    const int step = i / 2, m = i % 2;
    if (i + 2 < 2 * steps) load_k(i + 2);
    mma::multiply<T>(p[m][0], k[i % 3], down[step][0], down[step][1]);
    mma::multiply<T>(p[m][1], k[i % 3], down[step][2], down[step][3]);
    mma::multiply<T>(ds[m][0], v[m][step], more[step][0], more[step][1]);
    mma::multiply<T>(ds[m][1], v[m][step], more[step][2], more[step][3]);
  }
#pragma unroll
  for (int step = 0; step < steps; ++step)
    mma::load_transposed(down[step], go.moved(go.across(), in_step, step));
  float4 rows[2];  // lse and D of two queries
#pragma unroll
  for (int n = 0; n < 2; ++n)
    rows[n] = *reinterpret_cast<const float4*>(shared.rows(turn) + (in_step + 8 * n + 2 * t) * 8);
#pragma unroll
  for (int m = 0; m < 2; ++m)
    finish_keys<T, adds>(p[m], ds[m], factor, rows, added, first_key + 16 * m + g, query + 2 * t,
                         left_p[m], left_ds[m]);
#pragma unroll
  for (int step = 0; step < steps; ++step)
    mma::load_transposed(more[step], q.moved(q.across(), in_step, step));
#pragma unroll
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      mma::multiply<T>(dv[m][2 * step], left_p[m], down[step][0], down[step][1]);
      mma::multiply<T>(dv[m][2 * step + 1], left_p[m], down[step][2], down[step][3]);
    }
#pragma unroll
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      mma::multiply<T>(dk[m][2 * step], left_ds[m], more[step][0], more[step][1]);
      mma::multiply<T>(dk[m][2 * step + 1], left_ds[m], more[step][2], more[step][3]);
    }
}

template <class T, int d, bool adds>
__global__ void __launch_bounds__(threads, 2) long_key_gradients(Gradient<T> a) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  const KeyMemory<d> shared{memory};
  const Heads<T>& at = a.at;
  const Place place(at.s, at.h);
  const std::int64_t stride = static_cast<std::int64_t>(at.h) * d;
  const float2* rows = a.rows_of(place);
  const auto start = [&](int first, int turn) {
    const std::int64_t from = at.at(place.ib, place.ih, at.t, first, d);
    copy_rows<step_tokens>(shared.q(turn), at.q + from, stride, at.t - first);
    copy_rows<step_tokens>(shared.go(turn), a.go + from, stride, at.t - first);
    if (threadIdx.x < step_tokens / 2)
      mma::copy_16(mma::shared_address(shared.rows(turn)) + threadIdx.x * 16,
                   rows + first + threadIdx.x * 2, true);
  };
  copy_rows<own_tokens>(shared.k(), at.k + at.at(place.ib, place.ih, at.s, place.block_first(), d),
                        stride, at.s - place.block_first());
  start(0, 0);
  Word v[2][d / 16][4];
  load_own<d>(v, at.v + at.at(place.ib, place.ih, at.s, place.first, d), stride,
              at.s - place.first);
  const Added added = at.added(place.ib, place.ih);
  const Word k_place =
      mma::Tile<d>::moved(shared.k().across(), place.first - place.block_first(), 0);
  float dk[2][d / 8][4] = {}, dv[2][d / 8][4] = {};
#pragma unroll 1
  for (int first = 0, turn = 0; first < at.t; first += step_tokens, turn ^= 1) {
    mma::wait_for_copies();
    __syncthreads();
    if (first + step_tokens < at.t) start(first + step_tokens, turn ^ 1);
    if (place.first >= at.s) continue;  // a warp without keys copies alone
#pragma unroll 1
    for (int in_step = 0; in_step < step_tokens; in_step += 16) {
      if (first + in_step >= at.t) break;
      key_tile<T, d, adds>(shared, turn, k_place, in_step, at.scale * log2_e, added, place.first,
                           first + in_step, v, dk, dv);
    }
  }
  if (place.first >= at.s) return;
  const std::int64_t to = a.result(place, at.s, place.first, d);
  if (a.dk) store_own<d>(dk, at.scale, a.dk + to, a.row, at.s - place.first);
  if (a.dv) store_own<d>(dv, 1, a.dv + to, a.row, at.s - place.first);
#endif
}

template <class T>
void launch_keys(const Call& call, const Gradient<T>& a, const AttentionSizes& n) {
  with_kernel(a.at, n.d, [&](auto d, auto adds) {
    constexpr int bytes = KeyMemory<d>::bytes;
    if constexpr (bytes > 48 * 1024)
      must(cudaFuncSetAttribute(long_key_gradients<T, d, adds>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
           "shared memory of attention_grad");
    const auto blocks = static_cast<unsigned>(n.heads() * tiles_of(n.s));
    long_key_gradients<T, d, adds><<<blocks, threads, bytes, call.stream>>>(a);
    launched("attention_grad of long sequences, dk and dv");
  });
}

void key_gradients(const Call& call, const Gradient<Bf16>& a, const AttentionSizes& n) {
  launch_keys(call, a, n);
}
void key_gradients(const Call& call, const Gradient<F16>& a, const AttentionSizes& n) {
  launch_keys(call, a, n);
}

}  // namespace tessera::exec::cuda::lengthy
