// i8 micro-kernel of aarch64: SMMLA (mmla_arm.h). Called only where the processor has it.
#include <arm_neon.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/i8.h"
#include "exec/cpu/gemm/mmla_arm.h"

#define TESSERA_SMMLA __attribute__((target("arch=armv8.2-a+i8mm")))

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

TESSERA_ARM_INLINE void put_i8(int32x4_t sums, bool add, std::int32_t* c) {
  vst1q_s32(c, add ? vaddq_s32(sums, vld1q_s32(c)) : sums);
}
template <int R, int... Q>
TESSERA_ARM_INLINE void put_i8_row(std::integer_sequence<int, Q...>, const int32x4_t* sums,
                                   const TileOut& out) {
  if (R >= out.rows) return;
  std::int32_t* const c = out.sums + R * out.rs;
  (put_i8(mmla_row(sums, R, Q), out.beta != 0, c + 4 * Q), ...);
}
template <int... R>
TESSERA_ARM_INLINE void put_i8_rows(std::integer_sequence<int, R...>, const int32x4_t* sums,
                                    const TileOut& out) {
  (put_i8_row<R>(std::make_integer_sequence<int, mmla_columns / 4>(), sums, out), ...);
}

TESSERA_SMMLA void tile_smmla(int64_t k, const void* a, const void* b, const TileOut& out) {
  int32x4_t sums[mmla_sums];
  TESSERA_MMLA_SUMS("smmla", "16b", sums, k / 8, a, b);
  constexpr auto rows = std::make_integer_sequence<int, mmla_rows>();
  if (out.cols == mmla_columns) return put_i8_rows(rows, sums, out);
  std::int32_t part[mmla_rows * mmla_columns];
  put_i8_rows(rows, sums, {.rs = mmla_columns, .rows = mmla_rows, .sums = part});
  for (int64_t i = 0; i < out.rows; ++i) {
    std::int32_t* const c = out.sums + i * out.rs;
    const std::int32_t* const row = part + i * mmla_columns;
    int64_t j = 0;
    for (; j + 4 <= out.cols; j += 4) put_i8(vld1q_s32(row + j), out.beta != 0, c + j);
    for (; j < out.cols; ++j) c[j] = row[j] + (out.beta == 0 ? 0 : c[j]);
  }
}

// [k / 8][lanes][8]: of lanes whose bytes follow each other, two lanes and 16 bytes at once.
template <int lanes>
void pack_i8_eights(const Lanes& l, void* panel) {
  auto* const to = static_cast<std::int8_t*>(panel);
  if (l.k_step != 1 || l.k % 16 != 0) return pack_i8_groups(l, lanes, 8, to);
  const auto* const from = static_cast<const std::int8_t*>(l.from);
  const auto load = [&](int64_t lane, int64_t p) {
    return lane < l.used ? vreinterpretq_s64_s8(vld1q_s8(from + lane * l.lane_step + p))
                         : vdupq_n_s64(0);
  };
  for (int64_t lane = 0; lane < lanes; lane += 2)
    for (int64_t p = 0; p < l.k; p += 16) {
      const int64x2_t x = load(lane, p), y = load(lane + 1, p);
      std::int8_t* const at = to + p * lanes + lane * 8;
      vst1q_s8(at, vreinterpretq_s8_s64(vzip1q_s64(x, y)));
      vst1q_s8(at + lanes * 8, vreinterpretq_s8_s64(vzip2q_s64(x, y)));
    }
  std::fill(to + l.k * lanes, to + l.padded * lanes, std::int8_t{0});
}

constexpr Micro smmla_micro{.name = "smmla",
                            .rows = mmla_rows,
                            .columns = mmla_columns,
                            .group = 16,
                            .a_bytes = mmla_rows,
                            .b_bytes = mmla_columns,
                            .k_block = 1024,
                            .a_block = i8_a_block,
                            .pack_a = pack_i8_eights<mmla_rows>,
                            .pack_b = pack_i8_eights<mmla_columns>,
                            .tile = tile_smmla};

}  // namespace

std::vector<const Micro*> machine_i8_micros() {
  if (has_smmla()) return {&smmla_micro};
  return {};
}

}  // namespace tessera::exec::cpu
