// The register tile of f32 on aarch64: 12 rows and 8 columns in 24 registers. Convention: as in
// tile-inl.h, panels are [k][12] and [k][8].
#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/mmla_arm.h"

namespace tessera::exec::cpu {

inline constexpr int f32_rows = 12, f32_columns = 8;

// clang-format off
// Four rows, of which register r has A, with the eight columns; sum 2i is row i and columns 0 to 3.
#define TESSERA_F32_ROWS(s0, s1, s2, s3, s4, s5, s6, s7, r)                               \
  "fmla %" s0 ".4s, v3.4s, v" r ".s[0]\n" "fmla %" s2 ".4s, v3.4s, v" r ".s[1]\n"         \
  "fmla %" s4 ".4s, v3.4s, v" r ".s[2]\n" "fmla %" s6 ".4s, v3.4s, v" r ".s[3]\n"         \
  "fmla %" s1 ".4s, v4.4s, v" r ".s[0]\n" "fmla %" s3 ".4s, v4.4s, v" r ".s[1]\n"         \
  "fmla %" s5 ".4s, v4.4s, v" r ".s[2]\n" "fmla %" s7 ".4s, v4.4s, v" r ".s[3]\n"
// Number n of k of a turn of 16.
#define TESSERA_F32_STEP(n)                                                               \
  "ldp q0, q1, [%[a], #" n " * 48]\n"                                                     \
  "ldp q3, q4, [%[b], #" n " * 32]\n"                                                     \
  "ldr q2, [%[a], #" n " * 48 + 32]\n"                                                    \
  TESSERA_F32_ROWS("0", "1", "2", "3", "4", "5", "6", "7", "0")                           \
  TESSERA_F32_ROWS("8", "9", "10", "11", "12", "13", "14", "15", "1")                     \
  TESSERA_F32_ROWS("16", "17", "18", "19", "20", "21", "22", "23", "2")
#define TESSERA_F32_FOUR(n)                                                               \
  TESSERA_F32_STEP("(" n ")") TESSERA_F32_STEP("(" n " + 1)")                             \
  TESSERA_F32_STEP("(" n " + 2)") TESSERA_F32_STEP("(" n " + 3)")
#define TESSERA_F32_ZERO(a, b, c, d)                                                      \
  "movi %" a ".4s, #0\n movi %" b ".4s, #0\n movi %" c ".4s, #0\n movi %" d ".4s, #0\n"
#define TESSERA_F32_OUT(i) "=&w"(s[i]), "=&w"(s[i + 1]), "=&w"(s[i + 2]), "=&w"(s[i + 3])
// clang-format on

// Four columns of C.
enum class Put { sums, add, scaled };  // alpha 1 and beta 0, both 1, any
template <Put put>
TESSERA_ARM_INLINE float32x4_t f32_value(float32x4_t sums, const TileOut& out, const float* c) {
  if (put == Put::sums) return sums;
  if (put == Put::add) return vaddq_f32(vld1q_f32(c), sums);
  const float32x4_t v = vmulq_n_f32(sums, out.alpha);
  return out.beta == 0 ? v : vfmaq_n_f32(v, vld1q_f32(c), out.beta);
}
template <Put put, bool offset, int... I>
TESSERA_ARM_INLINE void f32_put_rows(std::integer_sequence<int, I...>, const float32x4_t* s,
                                     const TileOut& out) {
  float* c = out.c;
  const float32x4_t none = vdupq_n_f32(0), left = offset ? vld1q_f32(out.offset) : none,
                    right = offset ? vld1q_f32(out.offset + 4) : none;
  const auto row = [&](float32x4_t x, float32x4_t y) __attribute__((always_inline)) {
    const float32x4_t to_left = f32_value<put>(x, out, c), to_right = f32_value<put>(y, out, c + 4);
    vst1q_f32(c, offset ? vaddq_f32(to_left, left) : to_left);
    vst1q_f32(c + 4, offset ? vaddq_f32(to_right, right) : to_right);
    c += out.rs;
  };
  (row(s[2 * I], s[2 * I + 1]), ...);
}
// A whole tile.
TESSERA_ARM_INLINE void f32_put_tile(const float32x4_t* s, const TileOut& out) {
  constexpr auto rows = std::make_integer_sequence<int, f32_rows>();
  if (out.alpha != 1 || (out.beta != 0 && out.beta != 1))
    return out.offset ? f32_put_rows<Put::scaled, true>(rows, s, out)
                      : f32_put_rows<Put::scaled, false>(rows, s, out);
  if (out.beta == 0)
    out.offset ? f32_put_rows<Put::sums, true>(rows, s, out)
               : f32_put_rows<Put::sums, false>(rows, s, out);
  else
    out.offset ? f32_put_rows<Put::add, true>(rows, s, out)
               : f32_put_rows<Put::add, false>(rows, s, out);
}

// Sums of k numbers of the panels at `a` and `b`.
TESSERA_ARM_INLINE void f32_sums(std::int64_t k, const void* a, const void* b, float32x4_t* s) {
  const std::int64_t skipped = -k & 15;
  const std::byte* a_at = static_cast<const std::byte*>(a) - skipped * 48;
  const std::byte* b_at = static_cast<const std::byte*>(b) - skipped * 32;
  std::int64_t left = k;
  // clang-format off
  asm("neg x16, %[left]\n"
      "and x16, x16, #15\n"
      "add %[left], %[left], x16\n"
      "mov x17, #108\n"
      "mul x16, x16, x17\n"
      "adr x17, 1f\n"
      "add x16, x16, x17\n"
      TESSERA_F32_ZERO("0", "1", "2", "3") TESSERA_F32_ZERO("4", "5", "6", "7")
      TESSERA_F32_ZERO("8", "9", "10", "11") TESSERA_F32_ZERO("12", "13", "14", "15")
      TESSERA_F32_ZERO("16", "17", "18", "19") TESSERA_F32_ZERO("20", "21", "22", "23")
      "br x16\n"
      ".p2align 5\n"
      "1:\n"
      TESSERA_F32_FOUR("0") TESSERA_F32_FOUR("4") TESSERA_F32_FOUR("8") TESSERA_F32_FOUR("12")
      "add %[a], %[a], #768\n"
      "add %[b], %[b], #512\n"
      "subs %[left], %[left], #16\n"
      "b.gt 1b\n"
      : TESSERA_F32_OUT(0), TESSERA_F32_OUT(4), TESSERA_F32_OUT(8), TESSERA_F32_OUT(12),
        TESSERA_F32_OUT(16), TESSERA_F32_OUT(20),
        [a] "+r"(a_at), [b] "+r"(b_at), [left] "+r"(left)
      : 
      : "v0", "v1", "v2", "v3", "v4", "x16", "x17", "cc", "memory");
  // clang-format on
}

// A tile of fewer columns, or one whose columns lie apart.
inline void f32_put_part(const float* part, const TileOut& out) {
  for (std::int64_t i = 0; i < std::min<std::int64_t>(out.rows, f32_rows); ++i)
    for (std::int64_t j = 0; j < out.cols; ++j) {
      float& to = out.c[i * out.rs + j * out.cs];
      const float v = part[i * f32_columns + j] * out.alpha;
      to = out.beta == 0 ? v : __builtin_fmaf(out.beta, to, v);
      if (out.offset) to += out.offset[j];
    }
}
inline void tile_f32_arm(std::int64_t k, const void* a, const void* b, const TileOut& tiles) {
  constexpr auto rows = std::make_integer_sequence<int, f32_rows>();
  TileOut out = tiles;
  const bool whole = out.cols == f32_columns && out.cs == 1;
  for (; out.rows > 0; out.rows -= f32_rows, out.c += f32_rows * out.rs) {
    out.next.fetch_share();
    if (out.beta != 0) fetch_rows(rows, out);
    float32x4_t s[24];
    f32_sums(k, a, b, s);
    a = static_cast<const float*>(a) + k * f32_rows;
    if (whole && out.rows >= f32_rows) {
      f32_put_tile(s, out);
      continue;
    }
    float part[f32_rows * f32_columns];
    f32_put_rows<Put::sums, false>(rows, s, {.c = part, .rs = f32_columns});
    f32_put_part(part, out);
  }
}

// Twelve rows whose numbers follow each other, four of each at once; the rows behind them, which
// are packed next, are fetched meanwhile.
inline void pack_f32_rows(const Lanes& l, float* to) {
  const float* const from = static_cast<const float*>(l.from);
  std::int64_t p = 0;
  for (; p + 4 <= l.k; p += 4, to += 4 * f32_rows)
    for (int i = 0; i < f32_rows; i += 4) {
      const float* const x = from + i * l.lane_step + p;
      const std::int64_t y = l.lane_step;
      if (p % 16 == 0)
        for (int r = 0; r < 4; ++r) __builtin_prefetch(x + (f32_rows + r) * y);
      const float32x4_t r0 = vld1q_f32(x), r1 = vld1q_f32(x + y), r2 = vld1q_f32(x + 2 * y),
                        r3 = vld1q_f32(x + 3 * y);
      const float64x2_t even0 = vreinterpretq_f64_f32(vtrn1q_f32(r0, r1)),
                        odd0 = vreinterpretq_f64_f32(vtrn2q_f32(r0, r1)),
                        even2 = vreinterpretq_f64_f32(vtrn1q_f32(r2, r3)),
                        odd2 = vreinterpretq_f64_f32(vtrn2q_f32(r2, r3));
      vst1q_f32(to + i, vreinterpretq_f32_f64(vtrn1q_f64(even0, even2)));
      vst1q_f32(to + f32_rows + i, vreinterpretq_f32_f64(vtrn1q_f64(odd0, odd2)));
      vst1q_f32(to + 2 * f32_rows + i, vreinterpretq_f32_f64(vtrn2q_f64(even0, even2)));
      vst1q_f32(to + 3 * f32_rows + i, vreinterpretq_f32_f64(vtrn2q_f64(odd0, odd2)));
    }
  for (; p < l.k; ++p, to += f32_rows)
    for (int i = 0; i < f32_rows; ++i) to[i] = from[i * l.lane_step + p];
}

}  // namespace tessera::exec::cpu
