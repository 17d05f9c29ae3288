// Peak loops of aarch64: BFMMLA and SMMLA. Called only where the processor has them.
#include <arm_neon.h>
#include <sys/auxv.h>

#include <utility>

#include "exec/cpu/gemm/peak_loops.h"

#define TESSERA_BFMMLA __attribute__((target("arch=armv8.2-a+bf16")))
#define TESSERA_SMMLA __attribute__((target("arch=armv8.2-a+i8mm")))

namespace tessera::exec::cpu {
namespace {

// Enough for four pipes with a latency of five, and both factors fit beside them.
constexpr int arm_chains = 20;

// An empty statement that reads a sum: without one the compiler would leave the sum out.
template <class Vector>
inline void read_sum(Vector sum) {
  __asm__ volatile("" : : "w"(sum));
}

// The empty statement keeps the compiler from knowing the factors.
template <int... I>
TESSERA_BFMMLA inline double bfmmla_rounds(std::integer_sequence<int, I...>, std::int64_t rounds) {
  float32x4_t sum[] = {vdupq_n_f32(0.01f * (I + 1))...};
  bfloat16x8_t x = vreinterpretq_bf16_u16(vdupq_n_u16(0x3f7f)),
               y = vreinterpretq_bf16_u16(vdupq_n_u16(0x3a83));
  __asm__ volatile("" : "+w"(x), "+w"(y));
  for (std::int64_t r = 0; r < rounds; ++r) ((sum[I] = vbfmmlaq_f32(sum[I], x, y)), ...);
  (read_sum(sum[I]), ...);
  return 32.0 * arm_chains * static_cast<double>(rounds);  // 2 x 2 sums of four products
}
TESSERA_BFMMLA double bfmmla_loop(std::int64_t rounds) {
  return bfmmla_rounds(std::make_integer_sequence<int, arm_chains>(), rounds);
}

template <int... I>
TESSERA_SMMLA inline double smmla_rounds(std::integer_sequence<int, I...>, std::int64_t rounds) {
  int32x4_t sum[] = {vdupq_n_s32(I + 1)...};
  int8x16_t x = vdupq_n_s8(3), y = vdupq_n_s8(-1);
  __asm__ volatile("" : "+w"(x), "+w"(y));
  for (std::int64_t r = 0; r < rounds; ++r) ((sum[I] = vmmlaq_s32(sum[I], x, y)), ...);
  (read_sum(sum[I]), ...);
  return 64.0 * arm_chains * static_cast<double>(rounds);  // 2 x 2 sums of eight products
}
TESSERA_SMMLA double smmla_loop(std::int64_t rounds) {
  return smmla_rounds(std::make_integer_sequence<int, arm_chains>(), rounds);
}

}  // namespace

std::vector<PeakLoop> low_peak_loops() {
  constexpr unsigned long has_bf16 = 1ul << 14;  // HWCAP2_BF16
  if (!(::getauxval(AT_HWCAP2) & has_bf16)) return {};
  return {{.instruction = "bfmmla", .rounds = 600'000, .run = bfmmla_loop}};
}
std::vector<PeakLoop> i8_peak_loops() {
  constexpr unsigned long has_i8mm = 1ul << 13;  // HWCAP2_I8MM
  if (!(::getauxval(AT_HWCAP2) & has_i8mm)) return {};
  return {{.instruction = "smmla", .rounds = 600'000, .run = smmla_loop}};
}

}  // namespace tessera::exec::cpu
