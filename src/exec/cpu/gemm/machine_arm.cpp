// bf16 micro-kernel of aarch64: BFMMLA, which adds the product of a 2 x 4 and a 4 x 2 matrix to a
// 2 x 2 one. Called only where the processor has it.
#include <arm_neon.h>
#include <sys/auxv.h>

#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/micro.h"

#define TESSERA_BFMMLA __attribute__((target("arch=armv8.2-a+bf16")))

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// 16 of 32 registers hold sums, 4 columns and 4 rows; with 24 sums g++ 12 keeps some in memory.
constexpr int rows = 8, columns = 8, row_pairs = rows / 2, column_pairs = columns / 2;

TESSERA_BFMMLA inline bfloat16x8_t load(const Low* at) {
  return vld1q_bf16(reinterpret_cast<const bfloat16_t*>(at));
}

// sum[i][j] is rows 2i and 2i + 1 of columns 2j and 2j + 1.
template <int... I>
TESSERA_BFMMLA inline void sums_of(std::integer_sequence<int, I...>, int64_t k, const Low* a,
                                   const Low* b, float* part) {
  float32x4_t sum[row_pairs * column_pairs] = {((void)I, vdupq_n_f32(0))...};
  for (int64_t p = 0; p < k; p += 4, a += rows * 4, b += columns * 4) {
    const bfloat16x8_t bs[column_pairs] = {load(b), load(b + 8), load(b + 16), load(b + 24)};
    ((sum[I] = vbfmmlaq_f32(sum[I], load(a + I / column_pairs * 8), bs[I % column_pairs])), ...);
  }
  ((vst1_f32(part + I / column_pairs * 2 * columns + I % column_pairs * 2, vget_low_f32(sum[I])),
    vst1_f32(part + (I / column_pairs * 2 + 1) * columns + I % column_pairs * 2,
             vget_high_f32(sum[I]))),
   ...);
}

TESSERA_BFMMLA void tile_bfmmla(int64_t k, const void* a, const void* b, const TileOut& out) {
  float part[rows * columns];
  sums_of(std::make_integer_sequence<int, row_pairs * column_pairs>(), k,
          static_cast<const Low*>(a), static_cast<const Low*>(b), part);
  for (int64_t i = 0; i < out.rows; ++i)
    for (int64_t j = 0; j < out.cols; ++j) {
      float& c = out.c[i * out.rs + j * out.cs];
      const float v = out.alpha * part[i * columns + j];
      c = out.beta == 0 ? v : v + out.beta * c;
    }
}

void pack_quads(const Lanes& lanes, void* panel) { low_packs().quads_8(lanes, panel); }

constexpr Micro bfmmla_micro{.name = "bfmmla",
                             .rows = rows,
                             .columns = columns,
                             .group = 4,
                             .a_bytes = rows * 2,
                             .b_bytes = columns * 2,
                             .k_block = 512,
                             .pack_a = pack_quads,
                             .pack_b = pack_quads,
                             .tile = tile_bfmmla};

}  // namespace

std::vector<const Micro*> machine_micros() {
  constexpr unsigned long has_bf16 = 1ul << 14;  // HWCAP2_BF16
  if (::getauxval(AT_HWCAP2) & has_bf16) return {&bfmmla_micro};
  return {};
}

}  // namespace tessera::exec::cpu
