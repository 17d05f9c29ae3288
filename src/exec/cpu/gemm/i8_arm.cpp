// i8 micro-kernel of aarch64: SMMLA, which adds the product of a 2 x 8 and an 8 x 2 matrix of
// signed bytes to a 2 x 2 one of i32. Called only where the processor has it.
#include <arm_neon.h>
#include <sys/auxv.h>

#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/i8.h"

#define TESSERA_SMMLA __attribute__((target("arch=armv8.2-a+i8mm")))

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

// As in machine_arm.cpp: 16 registers of sums, 4 of columns and 4 of rows.
constexpr int i8_side = 8, i8_pairs = i8_side / 2;

// sum[i][j] is rows 2i and 2i + 1 of columns 2j and 2j + 1.
template <int... I>
TESSERA_SMMLA inline void i8_sums_of(std::integer_sequence<int, I...>, int64_t k,
                                     const std::int8_t* a, const std::int8_t* b,
                                     std::int32_t* part) {
  int32x4_t sum[i8_pairs * i8_pairs] = {((void)I, vdupq_n_s32(0))...};
  for (int64_t p = 0; p < k; p += 8, a += i8_side * 8, b += i8_side * 8) {
    const int8x16_t bs[i8_pairs] = {vld1q_s8(b), vld1q_s8(b + 16), vld1q_s8(b + 32),
                                    vld1q_s8(b + 48)};
    ((sum[I] = vmmlaq_s32(sum[I], vld1q_s8(a + I / i8_pairs * 16), bs[I % i8_pairs])), ...);
  }
  ((vst1_s32(part + I / i8_pairs * 2 * i8_side + I % i8_pairs * 2, vget_low_s32(sum[I])),
    vst1_s32(part + (I / i8_pairs * 2 + 1) * i8_side + I % i8_pairs * 2, vget_high_s32(sum[I]))),
   ...);
}

TESSERA_SMMLA void tile_smmla(int64_t k, const void* a, const void* b, const TileOut& out) {
  std::int32_t part[i8_side * i8_side];
  i8_sums_of(std::make_integer_sequence<int, i8_pairs * i8_pairs>(), k,
             static_cast<const std::int8_t*>(a), static_cast<const std::int8_t*>(b), part);
  for (int64_t i = 0; i < out.rows; ++i)
    for (int64_t j = 0; j < out.cols; ++j) {
      std::int32_t& c = out.sums[i * out.rs + j];
      c = part[i * i8_side + j] + (out.beta == 0 ? 0 : c);
    }
}

void pack_i8_eights(const Lanes& l, void* panel) {
  pack_i8_groups(l, i8_side, 8, static_cast<std::int8_t*>(panel));
}

constexpr Micro smmla_micro{.name = "smmla",
                            .rows = i8_side,
                            .columns = i8_side,
                            .group = 8,
                            .a_bytes = i8_side,
                            .b_bytes = i8_side,
                            .k_block = 1024,
                            .pack_a = pack_i8_eights,
                            .pack_b = pack_i8_eights,
                            .tile = tile_smmla};

}  // namespace

std::vector<const Micro*> machine_i8_micros() {
  constexpr unsigned long has_i8mm = 1ul << 13;  // HWCAP2_I8MM
  if (::getauxval(AT_HWCAP2) & has_i8mm) return {&smmla_micro};
  return {};
}

}  // namespace tessera::exec::cpu
