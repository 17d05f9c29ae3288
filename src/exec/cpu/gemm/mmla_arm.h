// The register tile of BFMMLA and SMMLA, which add the product of a 2 x G and a G x 2 matrix to a
// 2 x 2 one; a row of either factor is 8 bytes, four bf16 or eight i8. The tile is 6 x 16: 24
// registers of sums hide the latency of four multiplications at a time (16 do not: 79% of the
// peak), three and four hold operands, and g++ 12 keeps that many sums in registers only in an
// asm statement. Convention: panels are [k / G][lanes][G], in whole pairs of groups.
#pragma once

#include <arm_neon.h>
#include <sys/auxv.h>

#include <cstdint>

// Sums that a function was not inlined for would go through memory.
#define TESSERA_ARM_INLINE __attribute__((always_inline)) inline

namespace tessera::exec::cpu {

// Whether this machine has the instructions.
inline bool has_bfmmla() { return (::getauxval(AT_HWCAP2) & 1ul << 14) != 0; }  // HWCAP2_BF16
inline bool has_smmla() { return (::getauxval(AT_HWCAP2) & 1ul << 13) != 0; }   // HWCAP2_I8MM

inline constexpr int mmla_rows = 6, mmla_columns = 16;
inline constexpr int mmla_sums = mmla_rows * mmla_columns / 4;
// Panels of A and one of B (24 KiB) lie in a first-level cache of 64 KiB.
inline constexpr int mmla_a_block = 20 * 1024;

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

// `s` becomes the sums over `pairs` (at least one) pairs of groups of the panels at `a` and `b`.
// Two pairs a turn: each instruction on pointers and counters costs half a cycle of the 24.
#define TESSERA_MMLA_SUMS(op, t, s, pairs, a_panel, b_panel)                            \
  do {                                                                                  \
    const void *a_at = a_panel, *b_at = b_panel;                                        \
    std::int64_t left = pairs;                                                          \
    asm(TESSERA_MMLA_ZEROS                                                              \
        "subs %[left], %[left], #2\n"                                                   \
        "b.lt 2f\n"                                                                     \
        ".p2align 5\n"                                                                  \
        "1:\n"                                                                          \
        TESSERA_MMLA_GROUP(op, t, "0", "0")                                             \
        TESSERA_MMLA_GROUP(op, t, "48", "128")                                          \
        TESSERA_MMLA_GROUP(op, t, "96", "256")                                          \
        TESSERA_MMLA_GROUP(op, t, "144", "384")                                         \
        "add %[a], %[a], #192\n"                                                        \
        "add %[b], %[b], #512\n"                                                        \
        "subs %[left], %[left], #2\n"                                                   \
        "b.ge 1b\n"                                                                     \
        "2:\n"                                                                          \
        "tbz %[left], #0, 3f\n"                                                         \
        TESSERA_MMLA_GROUP(op, t, "0", "0")                                             \
        TESSERA_MMLA_GROUP(op, t, "48", "128")                                          \
        "3:\n"                                                                          \
        : TESSERA_MMLA_OUTS(s), [a] "+r"(a_at), [b] "+r"(b_at), [left] "+r"(left)       \
        :                                                                               \
        : TESSERA_MMLA_USED);                                                           \
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

}  // namespace tessera::exec::cpu
