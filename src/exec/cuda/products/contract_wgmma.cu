// Products with GELU whose results are bf16, and which products the kernels take at all.
#include "exec/cuda/products/contract_wgmma.cuh"

#include <cstdlib>
#include <string_view>

namespace tessera::exec::cuda {
namespace wgmma {
namespace {

// Factors are e4m3 with scales, or bf16; keeps: `before` as well.
template <bool bytes_in, bool keeps>
struct InBf16 {
  static constexpr bool bytes = bytes_in, pairs = false, fours = false;
  static constexpr int tile_k = bytes ? deep_bytes : deep_bytes / 2;  // elements
  static constexpr int box_bytes = box_rows * box_cols * 2, outs = keeps ? 2 : 1;
  static constexpr int set_bytes = outs * box_bytes, warp_bytes = room_bytes / (groups * 4);
  static constexpr int sets = warp_bytes / set_bytes;
  static_assert(box_bytes % swizzle_bytes == 0);

  // Sixteen rows and 64 columns of a warp's sums, from `sum` on, into its boxes.
  static __device__ __forceinline__ void fill_boxes(const float* sum, Word y, Word before, int lane,
                                                    float scale) {
    // Lane 8 m + i writes row (m % 2) 8 + i, the 16-byte piece m / 2 of a pair.
    const Word place = static_cast<Word>((lane & 15) * 128 + ((lane >> 4 ^ (lane & 7)) << 4));
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      float z[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) z[e] = bytes ? sum[pair * 8 + e] * scale : sum[pair * 8 + e];
      const Word to = place ^ static_cast<Word>(pair << 5);
      if constexpr (keeps)
        store_matrices(before + to, pack(z[0], z[1]), pack(z[2], z[3]), pack(z[4], z[5]),
                       pack(z[6], z[7]));
#pragma unroll
      for (int e = 0; e < 8; ++e) z[e] = short_gelu(z[e]);
      store_matrices(y + to, pack(z[0], z[1]), pack(z[2], z[3]), pack(z[4], z[5]),
                     pack(z[6], z[7]));
    }
  }

  // Each warp stores its 16 rows of each 64 by boxes of 64 columns, clipped by the copy engine.
  static __device__ __forceinline__ void finish(const Sums& sum, const Maps& maps, const Sizes&,
                                                Worker& own, int row, int col) {
#pragma unroll
    for (int c = 0; c < tile_n / box_cols; ++c) {
#pragma unroll
      for (int i = 0; i < m_blocks; ++i) {
        if (own.lane == 0) wait_stores_read<sets - 1>();
        __syncwarp();
        const Word before = own.at.room() + own.warp * warp_bytes + own.set * set_bytes,
                   y = before + set_bytes - box_bytes;
        own.set = own.set + 1 == sets ? 0 : own.set + 1;
        fill_boxes(&sum[i][c * 32], y, before, own.lane, own.scale);
        publish_to_engine();
        __syncwarp();
        if (own.lane == 0) {
          const int to_row = row + i * 64 + own.warp % 4 * 16, to_col = col + c * box_cols;
          if constexpr (keeps) store_box(maps.before, to_row, to_col, before);
          store_box(maps.y, to_row, to_col, y);
          commit_stores();
        }
      }
    }
  }
  static __device__ __forceinline__ void end(const Sizes&, const Worker&) {}
};

template <class K>
void multiply_in_bf16(const GeluProduct& p, int multiprocessors, cudaStream_t stream) {
  const auto result = [&](const void* data) {
    return map_of({.data = data, .rows = p.m, .cols = p.n, .row_stride = p.n}, box_rows);
  };
  const CUtensorMap y = result(p.y);
  const Maps maps{.a = map_of({p.a, K::bytes, p.m, p.k, p.a_row}, tile_m),
                  .b = map_of({p.b, K::bytes, p.n, p.k, p.b_row}, part_rows),
                  .y = y,
                  .before = p.before ? result(p.before) : y,
                  .turned = y};
  launch<K>(p, maps, multiprocessors, stream);
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
    must(cudaFuncGetAttributes(&said, gelu_product_kernel<InBf16<false, true>>),
         "ask about a product with gelu");
    return said.numRegs * threads > 32 * 1024;
  }();
  return has;
}

// y in bytes: of factors in bytes, whose rows are loaded by sixteens.
bool takes_bytes(const GeluProduct& p) {
  return p.a_scale && p.m % 16 == 0 && p.n % 16 == 0 && aligned_16(p.turned) && has_maps_apart();
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
         aligned_16(p.bias) && built() && has_maps() && (!p.y_scale || takes_bytes(p));
}

void multiply_gelu(const GeluProduct& p, const Limits& limits, cudaStream_t stream) {
  using namespace wgmma;
  const auto run = p.y_scale   ? multiply_gelu_bytes
                   : p.a_scale ? (p.before ? multiply_in_bf16<InBf16<true, true>>
                                           : multiply_in_bf16<InBf16<true, false>>)
                               : (p.before ? multiply_in_bf16<InBf16<false, true>>
                                           : multiply_in_bf16<InBf16<false, false>>);
  run(p, limits.multiprocessors, stream);
}

}  // namespace tessera::exec::cuda
