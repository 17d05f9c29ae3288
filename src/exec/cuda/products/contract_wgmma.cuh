// Products of bf16 or e4m3 factors with bias and GELU on a Hopper card, y = gelu(A B^T + bias), the
// value before GELU kept or not: both are made of the sums while these are in registers, which a
// pass of its own would write and read once more. A is [m, k], B [n, k]; those of e4m3 have scales.
// One block for each multiprocessor walks over tiles of the result. A thread of it has the copy
// engine fill a ring of stages, each 128 bytes deep; two groups of four warps take turns at tiles,
// so that while one multiplies, the other finishes its sums. A group begins its products when the
// other has issued those of the tile before: only then have all earlier blocks of the ring come,
// and waits for parities mean the right phases (wgmma.cuh). Blocks of a cluster have tiles above
// each other, and each loads a part of B for all. Floor: 2 m n k flops, or bytes of A and results.
// Convention: a kind K of product says which factors it has and finishes the sums of a tile: in
// bf16 (contract_wgmma.cu) or in bytes (contract_wgmma_bytes.cu).
#pragma once

#include <algorithm>

#include "exec/cuda/kernels/gelu.cuh"
#include "exec/cuda/products/contract.h"
#include "exec/cuda/products/tensor_map.h"
#include "exec/cuda/products/wgmma.cuh"

namespace tessera::exec::cuda::wgmma {

// Tiles of 128 x 192: 192 sums in each thread of a group; loads and products then read and write
// 138 bytes of shared memory a clock at full rate, tiles of 128 x 128 would 160.
constexpr int m_blocks = 2, tile_m = 64 * m_blocks, tile_n = 192, deep_bytes = 128;
constexpr int cluster = 2, ring = 4, groups = 2, threads = 128 * (groups + 1);
constexpr int a_bytes = tile_m * deep_bytes, stage_bytes = a_bytes + tile_n * deep_bytes;
constexpr int part_rows = tile_n / cluster;  // of B, that one block loads
// Stores of a warp go through boxes of 16 x 64, for which the warps of both groups share a room.
constexpr int box_rows = 16, box_cols = 64;
constexpr int room_at = ring * stage_bytes, room_bytes = 64 * 1024;
constexpr int barriers_at = room_at + room_bytes;
constexpr int swizzle_bytes = 1024;  // alignment of stages and boxes
constexpr int shared_bytes = barriers_at + 2 * ring * 8 + swizzle_bytes;
static_assert(part_rows % 16 == 0 && tile_n % box_cols == 0 && shared_bytes <= 227 * 1024);
static_assert(stage_bytes % swizzle_bytes == 0);

struct Maps {
  CUtensorMap a, b;               // boxes: tile_m and part_rows x 128 bytes
  CUtensorMap y, before, turned;  // 16 x 64, the last 64 x tile_m
};
struct Sizes {
  int m, n;          // of the result
  int depth_blocks;  // each 128 bytes deep
  int row_units;     // each `cluster` tiles
  int col_tiles;
  const float *a_scale, *b_scale, *y_scale;
  bool y, before, turned;  // whether they are wanted; for kinds that do not know it
  unsigned* amax;
};

struct Places {
  Word base;
  __device__ __forceinline__ Word a(int stage) const { return base + stage * stage_bytes; }
  __device__ __forceinline__ Word b(int stage) const { return a(stage) + a_bytes; }
  __device__ __forceinline__ Word room() const { return base + room_at; }
  __device__ __forceinline__ Word filled(int stage) const { return base + barriers_at + stage * 8; }
  __device__ __forceinline__ Word emptied(int stage) const { return filled(ring + stage); }
};

// A warp of a group, and what it keeps from tile to tile.
struct Worker {
  Places at;
  int group, warp, lane;  // warps are counted through both groups
  int set = 0;            // the next of the warp's boxes
  float scale = 1;        // sums are multiplied with it
  float inverse = 1;      // one over the scale of y in bytes
  float largest = 0;      // the largest |y|
};

// One thread: the loads of all tiles, in their order.
template <class K>
__device__ __forceinline__ void load_tiles(const Maps& maps, const Sizes& s, Places at) {
  constexpr unsigned all = (1u << cluster) - 1;
  const int rank = static_cast<int>(rank_in_cluster());
  const int clusters = static_cast<int>(gridDim.x) / cluster, units = s.row_units * s.col_tiles;
  int stage = 0;
  unsigned parity = 1;  // the phase before the first counts as ended
  for (int unit = static_cast<int>(blockIdx.x) / cluster; unit < units; unit += clusters) {
    const int row = (unit / s.col_tiles * cluster + rank) * tile_m;
    const int col = unit % s.col_tiles * tile_n + rank * part_rows;
    for (int kb = 0; kb < s.depth_blocks; ++kb) {
      const int k = kb * K::tile_k;
      const Word part = at.b(stage) + rank * part_rows * deep_bytes, filled = at.filled(stage);
      wait(at.emptied(stage), parity);
      expect_bytes(filled, stage_bytes);
      if constexpr (K::pairs)
        load_pairs(at.a(stage), maps.a, row, k, filled);
      else
        load_box(at.a(stage), maps.a, row, k, filled);
      if constexpr (K::fours)
        load_fours_to_all(part, maps.b, col, k, filled, all);
      else
        load_box_to_all(part, maps.b, col, k, filled, all);
      if (++stage == ring) {
        stage = 0;
        parity ^= 1;
      }
    }
  }
}

// The stage may be filled again, as far as this warp goes: in every block of the cluster, since
// each of them fills a part of it.
__device__ __forceinline__ void release(Places at, int stage, int lane) {
  if (lane < cluster) arrive_at(at.emptied(stage), static_cast<unsigned>(lane));
}

using Sums = float[m_blocks][tile_n / 2];

// Sums begin with the bias of their columns, divided by what they are multiplied with in the end.
// The moves are volatile, since the compiler would else give equal sums one register.
template <class K>
__device__ __forceinline__ void begin_tile(Sums& sum, const Bf16* bias, int n, int col, int lane,
                                           float factor) {
#pragma unroll
  for (int j = 0; j < tile_n / 8; ++j) {
    const int at = K::fours ? col + j / 2 * 16 + lane % 4 * 4 + j % 2 * 2  // tensor_map.h
                            : col + j * 8 + lane % 4 * 2;
    const Word two = bias && at < n ? __ldg(reinterpret_cast<const Word*>(bias + at)) : 0;
#pragma unroll
    for (int i = 0; i < m_blocks; ++i) {
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        float &low = sum[i][4 * j + e], &high = sum[i][4 * j + e + 1];
        if constexpr (K::bytes) {
          const float first = __uint_as_float(two << 16), second = __uint_as_float(two & ~0xffffu);
          asm volatile("mul.f32 %0, %1, %2;" : "=f"(low) : "f"(first), "f"(factor));
          asm volatile("mul.f32 %0, %1, %2;" : "=f"(high) : "f"(second), "f"(factor));
        } else {
          asm volatile("shl.b32 %0, %1, 16;" : "=f"(low) : "r"(two));
          asm volatile("and.b32 %0, %1, 0xffff0000;" : "=f"(high) : "r"(two));
        }
      }
    }
  }
}

// The groups' turns at the products: a barrier of the block for each group, where the threads of
// both arrive.
__device__ __forceinline__ void wait_turn(int group) {
  asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
__device__ __forceinline__ void give_turn(int group) {  // to the other one
  asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory");
}

// The products of a tile whose blocks of the ring begin with `first_block`, counted from the
// kernel's begin; `more`: another tile comes after it, which the other group takes.
template <class K>
__device__ __forceinline__ void sum_tile(Sums& sum, Places at, int first_block, int depth_blocks,
                                         int group, int lane, bool more) {
  int stage = first_block % ring, before = 0;
  unsigned parity = static_cast<unsigned>(first_block / ring) & 1;
  int kb = 0;
  do {
    wait(at.filled(stage), parity);
    const std::uint64_t a = describe(at.a(stage)), b = describe(at.b(stage));
    begin_products();
#pragma unroll
    for (int step = 0; step < deep_bytes / 32; ++step)
#pragma unroll
      for (int i = 0; i < m_blocks; ++i) {
        const std::uint64_t left = a + (i * 64 * deep_bytes + step * 32) / 16;
        if constexpr (K::bytes)
          multiply_bytes<tile_n>(sum[i], left, b + step * 32 / 16);
        else
          multiply<tile_n>(sum[i], left, b + step * 32 / 16);
      }
    commit_products();
    wait_products<1>();
    if (kb > 0) release(at, before, lane);
    before = stage;
    if (++stage == ring) {
      stage = 0;
      parity ^= 1;
    }
  } while (++kb < depth_blocks);
  if (more) give_turn(group);
  wait_products<0>();
#pragma unroll
  for (int i = 0; i < m_blocks; ++i)
#pragma unroll
    for (int j = 0; j < tile_n / 2; ++j) asm volatile("" : "+f"(sum[i][j])::"memory");
  release(at, before, lane);
}

__device__ __forceinline__ Word pack(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const Word*>(&two);
}

// Everything that a group does: tiles group, group + 2, ... of the cluster's sequence.
template <class K>
__device__ __forceinline__ void make_tiles(const Maps& maps, const Bf16* bias, const Sizes& s,
                                           Places at, int group) {
  Worker own{.at = at,
             .group = group,
             .warp = static_cast<int>(threadIdx.x) / 32 - 4,
             .lane = static_cast<int>(threadIdx.x) % 32};
  const int rank = static_cast<int>(rank_in_cluster());
  const int clusters = static_cast<int>(gridDim.x) / cluster, units = s.row_units * s.col_tiles;
  // Its inverse must be a number; factors whose scales are smaller are as good as zeros.
  if constexpr (K::bytes) own.scale = fmaxf(*s.a_scale * *s.b_scale, 0x1p-100f);
  if constexpr (K::fours) own.inverse = 1.0f / *s.y_scale;
  for (int round = group;; round += groups) {
    const int unit = static_cast<int>(blockIdx.x) / cluster + round * clusters;
    if (unit >= units) break;
    const int row = (unit / s.col_tiles * cluster + rank) * tile_m;
    const int col = unit % s.col_tiles * tile_n;
    Sums sum;
    begin_tile<K>(sum, bias, s.n, col, own.lane, K::bytes ? 1.0f / own.scale : 1.0f);
    __syncwarp();
    if (round > 0) wait_turn(group);
    sum_tile<K>(sum, at, round * s.depth_blocks, s.depth_blocks, group, own.lane,
                unit + clusters < units);
    K::finish(sum, maps, s, own, row, col);
  }
  if (own.lane <= 1) wait_stores_read<0>();  // the lanes that store
  K::end(s, own);
}

template <class K>
__device__ __forceinline__ void make_part(const Maps& maps, const Bf16* bias, const Sizes& s) {
  extern __shared__ std::byte memory[];
  const Places at{(static_cast<Word>(__cvta_generic_to_shared(memory)) + swizzle_bytes - 1) &
                  ~Word{swizzle_bytes - 1}};
  const int thread = static_cast<int>(threadIdx.x);
  // The shuffle tells the compiler that it is the same in all lanes.
  const int group = __shfl_sync(~0u, thread / 128, 0) - 1;
  if (thread == 0) {
    prefetch(maps.a);
    prefetch(maps.b);
    prefetch(maps.y);
    for (int stage = 0; stage < ring; ++stage) {
      init_barrier(at.filled(stage), 1);
      init_barrier(at.emptied(stage), 4 * cluster);  // the warps of one group in each block
    }
    publish_barriers();
  }
  sync_cluster();
  if (group < 0) {
    give_registers<24>();
    if (thread == 0) load_tiles<K>(maps, s, at);
    // Other blocks of the cluster may still load into this one, and arrive here.
    sync_cluster();
  } else {
    take_registers<240>();
    make_tiles<K>(maps, bias, s, at, group);
    sync_cluster();
  }
}

namespace {

template <class K>
__global__ void __launch_bounds__(threads, 1)
    gelu_product_kernel(const __grid_constant__ Maps maps, const Bf16* bias, const Sizes s) {
  if constexpr (there) make_part<K>(maps, bias, s);
}

// `maps` are made by the kind's file, those that it lacks are copies of others.
template <class K>
void launch(const GeluProduct& p, const Maps& maps, int multiprocessors, cudaStream_t stream) {
  const auto up = [](std::int64_t x, int by) { return static_cast<int>((x + by - 1) / by); };
  const Sizes sizes{.m = static_cast<int>(p.m),
                    .n = static_cast<int>(p.n),
                    .depth_blocks = up(p.k, K::tile_k),
                    .row_units = up(p.m, tile_m * cluster),
                    .col_tiles = up(p.n, tile_n),
                    .a_scale = p.a_scale,
                    .b_scale = p.b_scale,
                    .y_scale = p.y_scale,
                    .y = p.y != nullptr,
                    .before = p.before != nullptr,
                    .turned = p.turned != nullptr,
                    .amax = reinterpret_cast<unsigned*>(p.amax)};
  must(cudaFuncSetAttribute(gelu_product_kernel<K>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            shared_bytes),
       "ask for shared memory of a product with gelu");
  cudaLaunchAttribute clusters{};
  clusters.id = cudaLaunchAttributeClusterDimension;
  clusters.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(
      std::min(multiprocessors / cluster, sizes.row_units * sizes.col_tiles) * cluster));
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &clusters;
  config.numAttrs = 1;
  must(cudaLaunchKernelEx(&config, gelu_product_kernel<K>, maps, static_cast<const Bf16*>(p.bias),
                          sizes),
       "launch a product with gelu");
}

}  // namespace

// y in bytes (contract_wgmma_bytes.cu).
void multiply_gelu_bytes(const GeluProduct& product, int multiprocessors, cudaStream_t stream);

}  // namespace tessera::exec::cuda::wgmma
