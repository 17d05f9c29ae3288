// Peak loops of aarch64: BFMMLA and SMMLA. Called only where the processor has them.
#include <arm_neon.h>

#include <algorithm>
#include <iterator>

#include "exec/cpu/gemm/mmla_arm.h"
#include "exec/cpu/gemm/peak_loops.h"

#define TESSERA_BFMMLA __attribute__((target("arch=armv8.2-a+bf16")))
#define TESSERA_SMMLA __attribute__((target("arch=armv8.2-a+i8mm")))

namespace tessera::exec::cpu {
namespace {

// Operands of two groups of k of a tile, as mmla_arm.h reads them.
struct Panels {
  alignas(64) std::uint8_t a[96], b[256];
};
const Panels* panels() {
  static const Panels same = [] {
    Panels out;
    std::fill(std::begin(out.a), std::end(out.a), std::uint8_t{0x3a});
    std::fill(std::begin(out.b), std::end(out.b), std::uint8_t{0x3b});
    return out;
  }();
  return &same;
}

// Two groups of the tile in each turn, at fixed addresses: all that a product does but its
// pointers. The operands are loaded because these instructions run at half their rate on registers
// that nothing writes.
// clang-format off
#define TESSERA_MMLA_PEAK(op, t, s, rounds)                                            \
  do {                                                                                 \
    std::int64_t left = rounds;                                                        \
    asm volatile(                                                                      \
        TESSERA_MMLA_ZEROS                                                             \
        ".p2align 5\n"                                                                 \
        "1:\n"                                                                         \
        TESSERA_MMLA_GROUP(op, t, "0", "0")                                            \
        TESSERA_MMLA_GROUP(op, t, "48", "128")                                         \
        "subs %[left], %[left], #1\n"                                                  \
        "b.gt 1b\n"                                                                    \
        : TESSERA_MMLA_OUTS(s), [left] "+r"(left)                                      \
        : [a] "r"(panels()->a), [b] "r"(panels()->b)                                   \
        : TESSERA_MMLA_USED);                                                          \
  } while (false)
// clang-format on

// A 2 x 2 sum of four products is 32 operations, one of eight 64.
double operations(double of_one, std::int64_t rounds) {
  return of_one * 2 * mmla_sums * static_cast<double>(rounds);
}
TESSERA_BFMMLA double bfmmla_loop(std::int64_t rounds) {
  float32x4_t sums[mmla_sums];
  TESSERA_MMLA_PEAK("bfmmla", "8h", sums, rounds);
  return operations(32, rounds);
}
TESSERA_SMMLA double smmla_loop(std::int64_t rounds) {
  int32x4_t sums[mmla_sums];
  TESSERA_MMLA_PEAK("smmla", "16b", sums, rounds);
  return operations(64, rounds);
}

}  // namespace

std::vector<PeakLoop> low_peak_loops() {
  if (!has_bfmmla()) return {};
  return {{.instruction = "bfmmla", .rounds = 200'000, .run = bfmmla_loop}};
}
std::vector<PeakLoop> i8_peak_loops() {
  if (!has_smmla()) return {};
  return {{.instruction = "smmla", .rounds = 200'000, .run = smmla_loop}};
}

}  // namespace tessera::exec::cpu
