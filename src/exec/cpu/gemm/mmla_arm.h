// The register tile of BFMMLA and SMMLA, which add the product of a 2 x G and a G x 2 matrix to a
// 2 x 2 one; a row of either factor is 8 bytes, four bf16 or eight i8. The tile is 6 x 16: 24
// registers of sums hide the latency of four multiplications at a time (16 do not: 79% of the
// peak), three and four hold operands, and g++ 12 keeps that many sums in registers only in an
// asm statement. Convention: panels are [k / G][lanes][G].
#pragma once

#include <arm_neon.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/micro.h"

// Sums that a function was not inlined for would go through memory.
#define TESSERA_ARM_INLINE __attribute__((always_inline)) inline

namespace tessera::exec::cpu {

// The lines of C that a tile is added to begin to arrive while its sums are made. Rows that
// do not count may lie anywhere: a fetch of memory that is not there does nothing.
template <int... I>
TESSERA_ARM_INLINE void fetch_rows(std::integer_sequence<int, I...>, const TileOut& out) {
  (__builtin_prefetch(out.c + I * out.rs, 1), ...);
}

// Whether this machine has the instructions.
inline bool has_bfmmla() { return (::getauxval(AT_HWCAP2) & 1ul << 14) != 0; }  // HWCAP2_BF16
inline bool has_smmla() { return (::getauxval(AT_HWCAP2) & 1ul << 13) != 0; }   // HWCAP2_I8MM

inline constexpr int mmla_rows = 6, mmla_columns = 16;
inline constexpr int mmla_sums = mmla_rows * mmla_columns / 4;

// clang-format off
// Row pairs 0, 1 and 2 with the column pair in register r. Sum i * 8 + j is rows 2i and 2i + 1 of
// columns 2j and 2j + 1.
#define TESSERA_MMLA_COLUMNS(op, t, s0, s1, s2, r) \
  op " %" s0 ".4s, v0." t ", v" r "." t "\n"       \
  op " %" s1 ".4s, v1." t ", v" r "." t "\n"       \
  op " %" s2 ".4s, v2." t ", v" r "." t "\n"
// One group of k, `a` and `b` bytes behind the pointers.
#define TESSERA_MMLA_GROUP(op, t, a, b)             \
  "ldp q0, q1, [%[a], #" a "]\n"                    \
  "ldr q2, [%[a], #" a " + 32]\n"                   \
  "ldp q4, q5, [%[b], #" b "]\n"                    \
  "ldp q6, q7, [%[b], #" b " + 32]\n"               \
  TESSERA_MMLA_COLUMNS(op, t, "0", "8", "16", "4")  \
  TESSERA_MMLA_COLUMNS(op, t, "1", "9", "17", "5")  \
  "ldp q4, q5, [%[b], #" b " + 64]\n"               \
  TESSERA_MMLA_COLUMNS(op, t, "2", "10", "18", "6") \
  TESSERA_MMLA_COLUMNS(op, t, "3", "11", "19", "7") \
  "ldp q6, q7, [%[b], #" b " + 96]\n"               \
  TESSERA_MMLA_COLUMNS(op, t, "4", "12", "20", "4") \
  TESSERA_MMLA_COLUMNS(op, t, "5", "13", "21", "5") \
  TESSERA_MMLA_COLUMNS(op, t, "6", "14", "22", "6") \
  TESSERA_MMLA_COLUMNS(op, t, "7", "15", "23", "7")
#define TESSERA_MMLA_ZERO(a, b, c, d)           \
  "movi %" a ".4s, #0\n movi %" b ".4s, #0\n"   \
  "movi %" c ".4s, #0\n movi %" d ".4s, #0\n"
#define TESSERA_MMLA_ZEROS                                                    \
  TESSERA_MMLA_ZERO("0", "1", "2", "3") TESSERA_MMLA_ZERO("4", "5", "6", "7") \
  TESSERA_MMLA_ZERO("8", "9", "10", "11")                                     \
  TESSERA_MMLA_ZERO("12", "13", "14", "15")                                   \
  TESSERA_MMLA_ZERO("16", "17", "18", "19")                                   \
  TESSERA_MMLA_ZERO("20", "21", "22", "23")
#define TESSERA_MMLA_OUT(s, i) "=&w"(s[i]), "=&w"(s[i + 1]), "=&w"(s[i + 2]), "=&w"(s[i + 3])
#define TESSERA_MMLA_OUTS(s)                                               \
  TESSERA_MMLA_OUT(s, 0), TESSERA_MMLA_OUT(s, 4), TESSERA_MMLA_OUT(s, 8),  \
  TESSERA_MMLA_OUT(s, 12), TESSERA_MMLA_OUT(s, 16), TESSERA_MMLA_OUT(s, 20)
#define TESSERA_MMLA_USED "v0", "v1", "v2", "v4", "v5", "v6", "v7", "cc", "memory"

// A group `n` of a turn of 16; the pointer to B is 1,024 bytes ahead, which is as far as a load
// reaches.
#define TESSERA_MMLA_AT(op, t, n) TESSERA_MMLA_GROUP(op, t, n " * 48", n " * 128 - 1024")
#define TESSERA_MMLA_FOUR(op, t, n)                                       \
  TESSERA_MMLA_AT(op, t, "(" n ")") TESSERA_MMLA_AT(op, t, "(" n " + 1)") \
  TESSERA_MMLA_AT(op, t, "(" n " + 2)") TESSERA_MMLA_AT(op, t, "(" n " + 3)")
// `s` becomes the sums over `groups` (at least one) groups of the panels at `a` and `b`. A turn of
// the loop costs a cycle beside the six of each group, hence 16 groups to a turn. The first turn
// begins late where the groups are no whole turns; x16 is the number of groups it leaves out.
#define TESSERA_MMLA_SUMS(op, t, s, groups, a_panel, b_panel)                              \
  do {                                                                                     \
    std::int64_t left = groups;                                                            \
    const std::int64_t skipped = -left & 15;                                               \
    const std::byte* a_at = static_cast<const std::byte*>(a_panel) - skipped * 48;         \
    const std::byte* b_at = static_cast<const std::byte*>(b_panel) - skipped * 128 + 1024; \
    asm("neg x16, %[left]\n"                                                               \
        "and x16, x16, #15\n"                                                              \
        "add %[left], %[left], x16\n"                                                      \
        "mov x17, #120\n"                                                                  \
        "mul x16, x16, x17\n"                                                              \
        "adr x17, 1f\n"                                                                    \
        "add x16, x16, x17\n"                                                              \
        TESSERA_MMLA_ZEROS                                                                 \
        "br x16\n"                                                                         \
        ".p2align 5\n"                                                                     \
        "1:\n"                                                                             \
        TESSERA_MMLA_FOUR(op, t, "0") TESSERA_MMLA_FOUR(op, t, "4")                        \
        TESSERA_MMLA_FOUR(op, t, "8") TESSERA_MMLA_FOUR(op, t, "12")                       \
        ".if . - 1b - 16 * 120\n .error \"a group is not 120 bytes of code\"\n .endif\n"   \
        "add %[a], %[a], #768\n"                                                           \
        "add %[b], %[b], #2048\n"                                                          \
        "subs %[left], %[left], #16\n"                                                     \
        "b.gt 1b\n"                                                                        \
        : TESSERA_MMLA_OUTS(s), [a] "+r"(a_at), [b] "+r"(b_at), [left] "+r"(left)          \
        :                                                                                  \
        : TESSERA_MMLA_USED, "x16", "x17");                                                \
  } while (false)
// clang-format on

// Columns [4 q, 4 q + 4) of row r of a tile.
TESSERA_ARM_INLINE float32x4_t mmla_row(const float32x4_t* sums, int r, int q) {
  const float64x2_t x = vreinterpretq_f64_f32(sums[r / 2 * 8 + 2 * q]),
                    y = vreinterpretq_f64_f32(sums[r / 2 * 8 + 2 * q + 1]);
  return vreinterpretq_f32_f64(r % 2 == 0 ? vzip1q_f64(x, y) : vzip2q_f64(x, y));
}
TESSERA_ARM_INLINE int32x4_t mmla_row(const int32x4_t* sums, int r, int q) {
  const int64x2_t x = vreinterpretq_s64_s32(sums[r / 2 * 8 + 2 * q]),
                  y = vreinterpretq_s64_s32(sums[r / 2 * 8 + 2 * q + 1]);
  return vreinterpretq_s32_s64(r % 2 == 0 ? vzip1q_s64(x, y) : vzip2q_s64(x, y));
}

// Rows 2i and 2i + 1 of columns [4 q, 4 q + 4). The first one's halves are stored as they lie,
// which saves a move on the pipes that the end of a tile waits for.
TESSERA_ARM_INLINE void put_two_rows(const float32x4_t* sums, int i, int q, float* to,
                                     std::int64_t rs) {
  vst1_f32(to, vget_low_f32(sums[i * 8 + 2 * q]));
  vst1_f32(to + 2, vget_low_f32(sums[i * 8 + 2 * q + 1]));
  vst1q_f32(to + rs, mmla_row(sums, 2 * i + 1, q));
}
// A whole tile.
template <int... I>
TESSERA_ARM_INLINE void put_quads(std::integer_sequence<int, I...>, const float32x4_t* sums,
                                  float* c, std::int64_t rs) {
  constexpr int quads = mmla_columns / 4;
  (put_two_rows(sums, I / quads, I % quads, c + I / quads * 2 * rs + I % quads * 4, rs), ...);
}
TESSERA_ARM_INLINE void put_tile(const float32x4_t* sums, float* c, std::int64_t rs) {
  put_quads(std::make_integer_sequence<int, mmla_sums / 2>(), sums, c, rs);
}

// Two lanes of a panel of bf16: eight numbers of each, which are two groups.
TESSERA_ARM_INLINE void pack_two(const Low* first, const Low* second, Low* to, std::int64_t pitch) {
  const uint64x2_t x = vreinterpretq_u64_u16(vld1q_u16(first)),
                   y = vreinterpretq_u64_u16(vld1q_u16(second));
  vst1q_u16(to, vreinterpretq_u16_u64(vzip1q_u64(x, y)));
  vst1q_u16(to + pitch, vreinterpretq_u16_u64(vzip2q_u64(x, y)));
}
// Whole panels of lanes whose k numbers, a multiple of eight, follow each other. All lanes move
// along at once. Rows are too short for the machine to see that they follow, so those of the
// second panel from here are fetched, into the second-level cache: the first has too few fetches
// under way for loads beside them. False: not such lanes, and nothing was done.
template <int... Pair>
TESSERA_ARM_INLINE bool pack_lanes(std::integer_sequence<int, Pair...>, const Lanes& l, Low* to) {
  constexpr int lanes = 2 * sizeof...(Pair), pitch = 4 * lanes;
  if (l.used < lanes || l.k_step != 1 || l.k % 8 != 0 || l.padded != l.k) return false;
  const Low* from = static_cast<const Low*>(l.from);
  const std::int64_t step = l.lane_step;
  for (std::int64_t p = 0; p < l.k; p += 8, from += 8, to += 2 * pitch) {
    if (p % 32 == 0)
      for (std::int64_t lane = 2 * lanes; lane < 3 * lanes; ++lane)
        __builtin_prefetch(from + lane * step, 0, 2);
    (pack_two(from + 2 * Pair * step, from + (2 * Pair + 1) * step, to + 8 * Pair, pitch), ...);
  }
  return true;
}
// Eight lanes that lie side by side, four rows of them: one group of each, two lanes to a register.
struct LanePairs {
  uint16x8_t of[4];
};
TESSERA_ARM_INLINE LanePairs turn_four_rows(const Low* x0, const Low* x1, const Low* x2,
                                            const Low* x3) {
  const uint16x8_t r0 = vld1q_u16(x0), r1 = vld1q_u16(x1), r2 = vld1q_u16(x2), r3 = vld1q_u16(x3);
  const uint16x8_t even = vzip1q_u16(r0, r2), odd = vzip1q_u16(r1, r3),
                   even_up = vzip2q_u16(r0, r2), odd_up = vzip2q_u16(r1, r3);
  return {{vzip1q_u16(even, odd), vzip2q_u16(even, odd), vzip1q_u16(even_up, odd_up),
           vzip2q_u16(even_up, odd_up)}};
}
// 16 such lanes.
TESSERA_ARM_INLINE void pack_four_rows(const Low* const* row, Low* to) {
  for (int half = 0; half < mmla_columns; half += 8, to += 32) {
    const LanePairs pairs =
        turn_four_rows(row[0] + half, row[1] + half, row[2] + half, row[3] + half);
    for (int i = 0; i < 4; ++i) vst1q_u16(to + 8 * i, pairs.of[i]);
  }
}
// Lanes that lie side by side into panels of `width`, as many as fill whole panels and registers;
// says how many that were. Pieces of eight rows are walked across, and the second piece from here,
// whose rows the machine does not see to follow, is fetched into the second-level cache.
template <int width>
std::int64_t pack_beside(const Lanes& l, void* panels) {
  constexpr std::int64_t piece = 8, at_once = width == mmla_rows ? 24 : 32;
  static_assert(at_once % width == 0 && at_once % 8 == 0);
  if (l.k % 4 != 0) return 0;
  const std::int64_t lanes = l.used / at_once * at_once, pitch = l.pitch * width, step = l.k_step;
  Low* const to = static_cast<Low*>(panels);
  for (std::int64_t k = 0; k < l.k; k += piece) {
    const std::int64_t ahead = k + 2 * piece < l.k ? 2 * piece * step : 0;
    for (std::int64_t lane = 0; lane < lanes; lane += at_once) {
      const Low* row = static_cast<const Low*>(l.from) + k * step + lane;
      Low* group = to + lane / width * pitch + k * width;
      for (std::int64_t p = std::min(piece, l.k - k); p > 0; p -= 4) {
        for (int i = 0; i < 4; ++i) __builtin_prefetch(row + ahead + i * step, 0, 2);
        for (int at = 0; at < at_once; at += 8) {
          const Low* const from = row + at;
          const LanePairs pairs =
              turn_four_rows(from, from + step, from + 2 * step, from + 3 * step);
          for (int i = 0; i < 4; ++i) {
            const int first = at + 2 * i;  // of the two lanes
            vst1q_u16(group + first / width * pitch + first % width * 4, pairs.of[i]);
          }
        }
        row += 4 * step;
        group += 4 * width;
      }
    }
  }
  for (std::int64_t lane = 0; lane < lanes; lane += width)
    std::fill_n(to + lane / width * pitch + l.k * width, (l.padded - l.k) * width, Low{0});
  return lanes;
}
inline void pack_mmla_rows(const Lanes& l, void* panel) {
  constexpr auto pairs = std::make_integer_sequence<int, mmla_rows / 2>();
  if (!pack_lanes(pairs, l, static_cast<Low*>(panel))) low_packs().quads_6(l, panel);
}
// Panels of rows that lie side by side.
inline void pack_rows_beside(const Lanes& l, Low* panels) {
  for (std::int64_t lane = pack_beside<mmla_rows>(l, panels); lane < l.used; lane += mmla_rows)
    low_packs().quads_6({.used = std::min<std::int64_t>(mmla_rows, l.used - lane),
                         .k = l.k,
                         .padded = l.padded,
                         .from = static_cast<const Low*>(l.from) + lane,
                         .lane_step = 1,
                         .k_step = l.k_step},
                        panels + lane * l.pitch);
}
// One panel of columns that lie side by side (filters of a convolution). False: not such columns,
// and nothing was done.
inline bool pack_columns_beside(const Lanes& l, Low* to) {
  if (l.used < mmla_columns || l.lane_step != 1 || l.k % 4 != 0 || l.padded != l.k) return false;
  const Low* from = static_cast<const Low*>(l.from);
  for (std::int64_t p = 0; p < l.k; p += 4, from += 4 * l.k_step, to += 4 * mmla_columns) {
    const Low* const row[4] = {from, from + l.k_step, from + 2 * l.k_step, from + 3 * l.k_step};
    for (int i = 0; i < 4; ++i) __builtin_prefetch(row[i] + 16 * l.k_step, 0, 2);
    pack_four_rows(row, to);
  }
  return true;
}
inline void pack_mmla_columns(const Lanes& l, void* panel) {
  constexpr auto pairs = std::make_integer_sequence<int, mmla_columns / 2>();
  Low* const to = static_cast<Low*>(panel);
  if (!pack_lanes(pairs, l, to) && !pack_columns_beside(l, to)) low_packs().quads_16(l, panel);
}

}  // namespace tessera::exec::cpu
