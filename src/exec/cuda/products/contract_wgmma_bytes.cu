// Products of e4m3 factors with GELU whose result is e4m3, y / scale, as the next product reads it:
// alone, as inference wants it, or for training with the value before GELU in bf16, with y / scale
// turned ([n, m]) and with the largest |y|, each where it is wanted. Bytes cost no exchange between
// lanes: rows of B come by fours (tensor_map.h), so that a lane has four neighbouring columns, a
// word; where y is turned, rows of A come by pairs, so that it has two neighbouring rows, too.
#include <cuda_fp8.h>

#include "exec/cuda/products/contract_wgmma.cuh"

namespace tessera::exec::cuda::wgmma {
namespace {

__device__ __forceinline__ Word pack_bytes(const float (&v)[4]) {
  const auto two = [](float low, float high) {
    return static_cast<Word>(
        __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, __NV_E4M3));
  };
  return two(v[0], v[1]) | two(v[2], v[3]) << 16;
}

__device__ __forceinline__ void sync_group(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + groups + group) : "memory");
}

// all: every result but y may be wanted, and y may not.
template <bool all>
struct InBytes {
  static constexpr bool bytes = true, pairs = all, fours = true;
  static constexpr int tile_k = deep_bytes;
  static constexpr int y_bytes = box_rows * box_cols, before_bytes = 2 * y_bytes;
  static constexpr int set_bytes = y_bytes + (all ? before_bytes : 0), sets = all ? 2 : 8;
  // Boxes of the turned result are of a group: 64 columns, each as many rows as a tile has.
  static constexpr int turned_at = groups * 4 * sets * set_bytes, turned_bytes = box_cols * tile_m;
  static_assert(turned_at + (all ? groups * turned_bytes : 0) <= room_bytes);
  static_assert(y_bytes % swizzle_bytes == 0 && turned_bytes % swizzle_bytes == 0);
  // The rows that a lane has of sixteen: across * (lane / 4), and `down` below.
  static constexpr int across = all ? 2 : 1, down = all ? 1 : 8;

  // The words of sixteen rows and 64 columns: [pair of sixteens][sixteen][row].
  using Kept = Word[2][2][2];

  // Sixteen rows and 64 columns of a warp's sums, from `sum` on, into its boxes and `kept`.
  static __device__ __forceinline__ void fill_boxes(const float* sum, Word y, Word before,
                                                    Worker& own, Kept& kept) {
    const int g = own.lane / 4, t = own.lane % 4;
    // Lane 8 m + i gives the address of row i of matrix m.
    const int row = own.lane % 8 * across + own.lane / 8 % 2 * down;
    const Word place = static_cast<Word>(row * 64 + ((own.lane / 16 ^ (row >> 1 & 3)) << 4));
    Word before_place[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int to = g * across + r * down;
      before_place[r] =
          before + static_cast<Word>(to * 128 + ((t >> 1 ^ (to & 7)) << 4) + (t & 1) * 8);
    }
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      Word(&w)[2][2] = kept[pair];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float* from = sum + (pair * 2 + c) * 8 + r * 2;
          float z[4] = {from[0] * own.scale, from[1] * own.scale, from[4] * own.scale,
                        from[5] * own.scale};
          // Boxes begin at multiples of 1,024, so that bits 5 and 6 may be turned in the sum.
          if constexpr (all)
            store_words(before_place[r] ^ static_cast<Word>((pair * 2 + c) << 5), pack(z[0], z[1]),
                        pack(z[2], z[3]));
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            z[e] = short_gelu(z[e]);
            if constexpr (all)
              asm("max.NaN.f32 %0, %0, %1;" : "+f"(own.largest) : "f"(fabsf(z[e])));
            z[e] *= own.inverse;
          }
          w[c][r] = pack_bytes(z);
        }
      }
      store_matrices(y + (place ^ static_cast<Word>(pair << 5)), w[0][0], w[0][1], w[1][0],
                     w[1][1]);
    }
  }

  // The turned form of these words into the group's box, where this warp has the 16-byte piece
  // `piece` of each line.
  static __device__ __forceinline__ void fill_turned(const Kept& kept, Word box, int piece,
                                                     int lane) {
    // Lane 8 m + i: column 16 (m / 2) + 4 (i / 2) + 2 (m % 2) + i % 2.
    const int i = lane % 8, line = lane / 16 * 16 + i / 2 * 4 + lane / 8 % 2 * 2 + i % 2;
    const Word place = box + static_cast<Word>(line * 128 + ((piece ^ (line & 7)) << 4));
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const Word(&w)[2][2] = kept[pair];
      store_matrices_turned(place + pair * 32 * 128, __byte_perm(w[0][0], w[0][1], 0x5140),
                            __byte_perm(w[0][0], w[0][1], 0x7362),
                            __byte_perm(w[1][0], w[1][1], 0x5140),
                            __byte_perm(w[1][0], w[1][1], 0x7362));
    }
  }

  // 64 columns of the turned result, which a thread of the group stores when all have written.
  static __device__ __forceinline__ void store_turned(const Kept (&kept)[m_blocks],
                                                      const Maps& maps, const Worker& own, int row,
                                                      int col) {
    const Word box = own.at.room() + turned_at + own.group * turned_bytes;
    const bool stores = own.lane == 1 && own.warp % 4 == 0;
    if (stores) wait_stores_read<0>();  // the store before had the time of two fillings
    sync_group(own.group);
#pragma unroll
    for (int i = 0; i < m_blocks; ++i) fill_turned(kept[i], box, i * 4 + own.warp % 4, own.lane);
    publish_to_engine();
    sync_group(own.group);
    if (!stores) return;
    store_box(maps.turned, col, row, box);
    commit_stores();
  }

  // Each warp stores its 16 rows of each 64 by boxes of 64 columns, clipped by the copy engine.
  static __device__ __forceinline__ void finish(const Sums& sum, const Maps& maps, const Sizes& s,
                                                Worker& own, int row, int col) {
#pragma unroll
    for (int c = 0; c < tile_n / box_cols; ++c) {
      Kept kept[m_blocks] = {};
      const int to_col = col + c * box_cols;
#pragma unroll
      for (int i = 0; i < m_blocks; ++i) {
        if (own.lane == 0) wait_stores_read<sets - 1>();
        __syncwarp();
        const Word y = own.at.room() + (own.warp * sets + own.set) * set_bytes,
                   before = y + y_bytes;
        own.set = own.set + 1 == sets ? 0 : own.set + 1;
        const int to_row = row + i * 64 + own.warp % 4 * 16;
        // Sixteen rows are all within the result, or none: others must not count.
        if (!all || to_row < s.m) fill_boxes(&sum[i][c * 32], y, before, own, kept[i]);
        publish_to_engine();
        __syncwarp();
        if (own.lane == 0) {
          if constexpr (all)
            if (s.before) store_box(maps.before, to_row, to_col, before);
          if (!all || s.y) store_box(maps.y, to_row, to_col, y);
          commit_stores();
        }
      }
      if constexpr (all)
        if (s.turned) store_turned(kept, maps, own, row, to_col);
    }
  }

  // Largest numbers are compared as integers, of which a NaN is the largest.
  static __device__ __forceinline__ void end(const Sizes& s, const Worker& own) {
    if (!all || !s.amax) return;
    const unsigned bits = __reduce_max_sync(~0u, __float_as_uint(own.largest));
    if (own.lane == 0 && bits > __ldcg(s.amax)) atomicMax(s.amax, bits);
  }
};

}  // namespace

void multiply_gelu_bytes(const GeluProduct& p, int multiprocessors, cudaStream_t stream) {
  const bool all = !p.y || p.before || p.turned || p.amax;
  const Matrix a{p.a, true, p.m, p.k, p.a_row};
  const CUtensorMap factor = all ? map_of_pairs(a, tile_m) : map_of(a, tile_m);
  const Maps maps{.a = factor,
                  .b = map_of_fours({p.b, true, p.n, p.k, p.b_row}, part_rows),
                  .y = p.y ? map_of({p.y, true, p.m, p.n, p.n}, box_rows, box_cols) : factor,
                  .before = p.before ? map_of({p.before, false, p.m, p.n, p.n}, box_rows) : factor,
                  .turned = p.turned ? map_of({p.turned, true, p.n, p.m, p.m}, box_cols) : factor};
  const auto run = all ? launch<InBytes<true>> : launch<InBytes<false>>;
  run(p, maps, multiprocessors, stream);
}

}  // namespace tessera::exec::cuda::wgmma
