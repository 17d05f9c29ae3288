// Products of bf16 or e4m3 factors with bias and GELU on a Hopper card, y = gelu(A B^T + bias), the
// value before GELU kept or not: both are made of the sums while these are in registers, which a
// pass of its own would write and read once more. A is [m, k], B [n, k]; those of e4m3 have scales.
// One block for each multiprocessor walks over tiles of the result. A thread of it has the copy
// engine fill a ring of stages, each 128 bytes deep; two groups of four warps take turns at tiles,
// so that while one multiplies, the other finishes its sums. A group begins its products when the
// other has issued those of the tile before: only then have all earlier blocks of the ring come,
// and waits for parities mean the right phases (wgmma.cuh). Blocks of a cluster have tiles above
// each other, and each loads a part of B for all. Floor: 2 m n k flops, or bytes of A, y, `before`.
#include <cudaTypedefs.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "exec/cuda/kernels/gelu.cuh"
#include "exec/cuda/products/contract.h"
#include "exec/cuda/products/wgmma.cuh"

namespace tessera::exec::cuda {
namespace wgmma {

// Tiles of 128 x 192: 192 sums in each thread of a group; loads and products then read and write
// 138 bytes of shared memory a clock at full rate, tiles of 128 x 128 would 160.
constexpr int m_blocks = 2, tile_m = 64 * m_blocks, tile_n = 192, deep_bytes = 128;
constexpr int cluster = 2, ring = 4, groups = 2, threads = 128 * (groups + 1);
constexpr int a_bytes = tile_m * deep_bytes, stage_bytes = a_bytes + tile_n * deep_bytes;
constexpr int part_rows = tile_n / cluster;  // of B, that one block loads
// Stores of a warp go through boxes of 16 x 64.
constexpr int box_rows = 16, box_cols = 64, box_bytes = box_rows * box_cols * 2, boxes = 4;
constexpr int boxes_at = ring * stage_bytes;
constexpr int barriers_at = boxes_at + groups * 4 * boxes * box_bytes;
constexpr int swizzle_bytes = 1024;  // alignment of stages and boxes
constexpr int shared_bytes = barriers_at + 2 * ring * 8 + swizzle_bytes;
static_assert(part_rows % 8 == 0 && tile_n % box_cols == 0 && shared_bytes <= 227 * 1024);
static_assert(stage_bytes % swizzle_bytes == 0 && box_bytes % swizzle_bytes == 0);

struct Maps {
  CUtensorMap a, b, y, before;  // boxes: tile_m and part_rows x 128 bytes, 16 x 64 twice
};
// Factors are e4m3 with scales, whose product is a normal number, or bf16; keeps: `before` as well.
template <bool bytes_in, bool keeps>
struct Kind {
  static constexpr bool bytes = bytes_in, before = keeps;
  static constexpr int tile_k = bytes ? deep_bytes : deep_bytes / 2;  // elements
};
struct Sizes {
  int n;             // columns of the result
  int depth_blocks;  // each 128 bytes deep
  int row_units;     // each `cluster` tiles
  int col_tiles;
  const float *a_scale, *b_scale;
};

struct Places {
  Word base;
  __device__ __forceinline__ Word a(int stage) const { return base + stage * stage_bytes; }
  __device__ __forceinline__ Word b(int stage) const { return a(stage) + a_bytes; }
  __device__ __forceinline__ Word filled(int stage) const { return base + barriers_at + stage * 8; }
  __device__ __forceinline__ Word emptied(int stage) const { return filled(ring + stage); }
  __device__ __forceinline__ Word box(int warp, int i) const {
    return base + boxes_at + (warp * boxes + i) * box_bytes;
  }
};

// One thread: the loads of all tiles, in their order.
template <class K>
__device__ __forceinline__ void load_tiles(const Maps& maps, const Sizes& s, Places at) {
  const int rank = static_cast<int>(rank_in_cluster());
  const int clusters = static_cast<int>(gridDim.x) / cluster, units = s.row_units * s.col_tiles;
  int stage = 0;
  unsigned parity = 1;  // the phase before the first counts as ended
  for (int unit = static_cast<int>(blockIdx.x) / cluster; unit < units; unit += clusters) {
    const int row = (unit / s.col_tiles * cluster + rank) * tile_m;
    const int col = unit % s.col_tiles * tile_n + rank * part_rows;
    for (int kb = 0; kb < s.depth_blocks; ++kb) {
      wait(at.emptied(stage), parity);
      expect_bytes(at.filled(stage), stage_bytes);
      load_box(at.a(stage), maps.a, row, kb * K::tile_k, at.filled(stage));
      load_box_to_all(at.b(stage) + rank * part_rows * 128, maps.b, col, kb * K::tile_k,
                      at.filled(stage), (1u << cluster) - 1);
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
    const int at = col + j * 8 + lane % 4 * 2;
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

// Sixteen rows and 64 columns of a warp's sums, from `sum` on, into its boxes.
template <class K>
__device__ __forceinline__ void fill_boxes(const float* sum, Word y, Word before, int lane,
                                           float scale) {
  // Lane 8 m + i writes row (m % 2) 8 + i, the 16-byte piece m / 2 of a pair.
  const Word place = static_cast<Word>((lane & 15) * 128 + ((lane >> 4 ^ (lane & 7)) << 4));
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    float z[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) z[e] = K::bytes ? sum[pair * 8 + e] * scale : sum[pair * 8 + e];
    const Word to = place ^ static_cast<Word>(pair << 5);
    if constexpr (K::before)
      store_matrices(before + to, pack(z[0], z[1]), pack(z[2], z[3]), pack(z[4], z[5]),
                     pack(z[6], z[7]));
#pragma unroll
    for (int e = 0; e < 8; ++e) z[e] = short_gelu(z[e]);
    store_matrices(y + to, pack(z[0], z[1]), pack(z[2], z[3]), pack(z[4], z[5]), pack(z[6], z[7]));
  }
}

// Each warp stores its 16 rows of each 64 by boxes of 64 columns, clipped by the copy engine; `set`
// is the next of the warp's boxes.
template <class K>
__device__ __forceinline__ void finish_tile(const Sums& sum, const Maps& maps, Places at, int row,
                                            int col, int warp, int lane, float scale, int& set) {
  constexpr int outs = K::before ? 2 : 1, sets = boxes / outs;
#pragma unroll
  for (int c = 0; c < tile_n / box_cols; ++c) {
#pragma unroll
    for (int i = 0; i < m_blocks; ++i) {
      if (lane == 0) wait_stores_read<sets - 1>();
      __syncwarp();
      const Word y = at.box(warp, set * outs), before = at.box(warp, set * outs + outs - 1);
      set = set + 1 == sets ? 0 : set + 1;
      fill_boxes<K>(&sum[i][c * 32], y, before, lane, scale);
      publish_to_engine();
      __syncwarp();
      if (lane == 0) {
        const int to_row = row + i * 64 + warp % 4 * 16, to_col = col + c * box_cols;
        if constexpr (K::before) store_box(maps.before, to_row, to_col, before);
        store_box(maps.y, to_row, to_col, y);
        commit_stores();
      }
    }
  }
}

// Everything that a group does: tiles group, group + 2, ... of the cluster's sequence.
template <class K>
__device__ __forceinline__ void make_tiles(const Maps& maps, const Bf16* bias, const Sizes& s,
                                           Places at, int group) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32 - 4;  // of both groups
  const int rank = static_cast<int>(rank_in_cluster());
  const int clusters = static_cast<int>(gridDim.x) / cluster, units = s.row_units * s.col_tiles;
  const float scale = K::bytes ? *s.a_scale * *s.b_scale : 1.0f;
  int set = 0;
  for (int round = group;; round += groups) {
    const int unit = static_cast<int>(blockIdx.x) / cluster + round * clusters;
    if (unit >= units) break;
    const int row = (unit / s.col_tiles * cluster + rank) * tile_m;
    const int col = unit % s.col_tiles * tile_n;
    Sums sum;
    begin_tile<K>(sum, bias, s.n, col, lane, K::bytes ? 1.0f / scale : 1.0f);
    __syncwarp();
    if (round > 0) wait_turn(group);
    sum_tile<K>(sum, at, round * s.depth_blocks, s.depth_blocks, group, lane,
                unit + clusters < units);
    finish_tile<K>(sum, maps, at, row, col, warp, lane, scale, set);
  }
  if (lane == 0) wait_stores_read<0>();
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
    if constexpr (K::before) prefetch(maps.before);
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

// The driver's function behind maps of tensors; null: it has none.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    must(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                          cudaEnableDefault, &result),
         "ask the driver for maps of tensors");
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  return found;
}

// Boxes are 128 bytes wide.
CUtensorMap map_of(const void* data, bool bytes, std::int64_t rows, std::int64_t cols,
                   std::int64_t row_stride, int rows_of_box) {
  const cuuint32_t element = bytes ? 1 : sizeof(Bf16);
  const cuuint64_t extents[] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_stride) * element};
  const cuuint32_t box[] = {deep_bytes / element, static_cast<cuuint32_t>(rows_of_box)};
  const cuuint32_t steps[] = {1, 1};
  static_assert(box_cols * sizeof(Bf16) == deep_bytes);
  CUtensorMap map;
  const CUresult made =
      encoder()(&map, bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
                const_cast<void*>(data), extents, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(made == CUDA_SUCCESS, "contract: the driver refused the map of a tensor");
  return map;
}

template <class K>
void launch(const GeluProduct& p, int multiprocessors, cudaStream_t stream) {
  const auto up = [](std::int64_t x, int by) { return static_cast<int>((x + by - 1) / by); };
  const Sizes sizes{.n = static_cast<int>(p.n),
                    .depth_blocks = up(p.k, K::tile_k),
                    .row_units = up(p.m, tile_m * cluster),
                    .col_tiles = up(p.n, tile_n),
                    .a_scale = p.a_scale,
                    .b_scale = p.b_scale};
  const CUtensorMap y = map_of(p.y, false, p.m, p.n, p.n, box_rows);
  const Maps maps{.a = map_of(p.a, K::bytes, p.m, p.k, p.a_row, tile_m),
                  .b = map_of(p.b, K::bytes, p.n, p.k, p.b_row, part_rows),
                  .y = y,
                  .before = K::before ? map_of(p.before, false, p.m, p.n, p.n, box_rows) : y};
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

// For comparisons: TESSERA_CUDA_WGMMA=0 leaves these products to the library and a pass.
bool wanted() {
  static const char* const said = std::getenv("TESSERA_CUDA_WGMMA");
  return !said || std::string_view(said) != "0";
}

// Whether the build has code for the features of 9.0a: the kernel is empty without.
bool built() {
  static const bool has = [] {
    cudaFuncAttributes said{};
    must(cudaFuncGetAttributes(&said, gelu_product_kernel<Kind<false, true>>),
         "ask about a product with gelu");
    return said.numRegs * threads > 32 * 1024;
  }();
  return has;
}

}  // namespace
}  // namespace wgmma

bool takes_gelu_product(const GeluProduct& p, const Limits& limits) {
  using namespace wgmma;
  constexpr std::int64_t chunk = 8, most = std::int64_t{1} << 30;  // 16 bytes; of the map's numbers
  const std::int64_t factor_chunk = p.a_scale ? 16 : chunk;
  const auto ceil_div = [](std::int64_t x, std::int64_t by) { return (x + by - 1) / by; };
  // Fewer tiles than these leave multiprocessors idle, where the library takes smaller ones.
  const std::int64_t tiles = ceil_div(p.m, tile_m) * ceil_div(p.n, tile_n);
  return limits.arch == 90 && wanted() && limits.shared_per_block >= shared_bytes &&
         tiles >= 2 * limits.multiprocessors && p.n % chunk == 0 && p.a_row % factor_chunk == 0 &&
         p.b_row % factor_chunk == 0 && p.k > 0 && p.m < most && p.n < most && p.k < most &&
         aligned_16(p.a) && aligned_16(p.b) && aligned_16(p.y) && aligned_16(p.before) &&
         aligned_16(p.bias) && built() && encoder();
}

void multiply_gelu(const GeluProduct& p, const Limits& limits, cudaStream_t stream) {
  using namespace wgmma;
  const auto run = p.a_scale ? (p.before ? launch<Kind<true, true>> : launch<Kind<true, false>>)
                             : (p.before ? launch<Kind<false, true>> : launch<Kind<false, false>>);
  run(p, limits.multiprocessors, stream);
}

}  // namespace tessera::exec::cuda
