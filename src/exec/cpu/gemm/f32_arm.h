// The register tile of f32 on aarch64: 6 rows and 16 columns in 24 registers, so that whole lines
// of C are written and few rows are empty at an edge. Convention: as in tile-inl.h, panels are
// [k][6] and [k][16].
#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/gemm/mmla_arm.h"

namespace tessera::exec::cpu {

inline constexpr int f32_rows = 6, f32_columns = 16;

// clang-format off
// The columns in register b with six rows, whose numbers of A are elements of registers.
#define TESSERA_F32_COLUMNS(s0, s1, s2, s3, s4, s5, b, a0, a1, a2, a3, a4, a5)            \
  "fmla %" s0 ".4s, v" b ".4s, v" a0 "\n" "fmla %" s1 ".4s, v" b ".4s, v" a1 "\n"         \
  "fmla %" s2 ".4s, v" b ".4s, v" a2 "\n" "fmla %" s3 ".4s, v" b ".4s, v" a3 "\n"         \
  "fmla %" s4 ".4s, v" b ".4s, v" a4 "\n" "fmla %" s5 ".4s, v" b ".4s, v" a5 "\n"
#define TESSERA_F32_EVEN(s0, s1, s2, s3, s4, s5, b)                                       \
  TESSERA_F32_COLUMNS(s0, s1, s2, s3, s4, s5, b, "0.s[0]", "0.s[1]", "0.s[2]", "0.s[3]",  \
                      "1.s[0]", "1.s[1]")
#define TESSERA_F32_ODD(s0, s1, s2, s3, s4, s5, b)                                        \
  TESSERA_F32_COLUMNS(s0, s1, s2, s3, s4, s5, b, "1.s[2]", "1.s[3]", "2.s[0]", "2.s[1]",  \
                      "2.s[2]", "2.s[3]")
// Numbers 2n and 2n + 1 of k of a turn of 32; the pointer to B is 1,024 bytes ahead.
#define TESSERA_F32_TWO(n)                                                                \
  "ldp q0, q1, [%[a], #" n " * 48]\n"                                                     \
  "ldp q3, q4, [%[b], #" n " * 128 - 1024]\n"                                             \
  "ldr q2, [%[a], #" n " * 48 + 32]\n"                                                    \
  "ldp q5, q6, [%[b], #" n " * 128 - 992]\n"                                              \
  TESSERA_F32_EVEN("0", "4", "8", "12", "16", "20", "3")                                  \
  TESSERA_F32_EVEN("1", "5", "9", "13", "17", "21", "4")                                  \
  "ldp q3, q4, [%[b], #" n " * 128 - 960]\n"                                              \
  TESSERA_F32_EVEN("2", "6", "10", "14", "18", "22", "5")                                 \
  TESSERA_F32_EVEN("3", "7", "11", "15", "19", "23", "6")                                 \
  "ldp q5, q6, [%[b], #" n " * 128 - 928]\n"                                              \
  TESSERA_F32_ODD("0", "4", "8", "12", "16", "20", "3")                                   \
  TESSERA_F32_ODD("1", "5", "9", "13", "17", "21", "4")                                   \
  TESSERA_F32_ODD("2", "6", "10", "14", "18", "22", "5")                                  \
  TESSERA_F32_ODD("3", "7", "11", "15", "19", "23", "6")
#define TESSERA_F32_EIGHT(n)                                                              \
  TESSERA_F32_TWO("(" n ")") TESSERA_F32_TWO("(" n " + 1)")                               \
  TESSERA_F32_TWO("(" n " + 2)") TESSERA_F32_TWO("(" n " + 3)")
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
  const float32x4_t none = vdupq_n_f32(0);
  const float32x4_t o0 = offset ? vld1q_f32(out.offset) : none,
                    o1 = offset ? vld1q_f32(out.offset + 4) : none,
                    o2 = offset ? vld1q_f32(out.offset + 8) : none,
                    o3 = offset ? vld1q_f32(out.offset + 12) : none;
  const auto put_four = [&](float32x4_t x, float* c, float32x4_t o) __attribute__((always_inline)) {
    const float32x4_t v = f32_value<put>(x, out, c);
    vst1q_f32(c, offset ? vaddq_f32(v, o) : v);
  };
  float* c = out.c;
  const auto row = [&](const float32x4_t* x) __attribute__((always_inline)) {
    put_four(x[0], c, o0);
    put_four(x[1], c + 4, o1);
    put_four(x[2], c + 8, o2);
    put_four(x[3], c + 12, o3);
    c += out.rs;
  };
  (row(s + 4 * I), ...);
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

// Sums of k numbers of the panels at `a` and `b`. Two numbers of k of six rows are three registers;
// an odd one comes first. The first turn begins late where there are no whole turns of 32.
TESSERA_ARM_INLINE void f32_sums(std::int64_t k, const void* a, const void* b, float32x4_t* s) {
  const std::byte* a_at = static_cast<const std::byte*>(a);
  const std::byte* b_at = static_cast<const std::byte*>(b);
  std::int64_t left = k;
  // clang-format off
  asm(TESSERA_F32_ZERO("0", "1", "2", "3") TESSERA_F32_ZERO("4", "5", "6", "7")
      TESSERA_F32_ZERO("8", "9", "10", "11") TESSERA_F32_ZERO("12", "13", "14", "15")
      TESSERA_F32_ZERO("16", "17", "18", "19") TESSERA_F32_ZERO("20", "21", "22", "23")
      "tbz %[left], #0, 2f\n"
      "ldr q0, [%[a]], #16\n"
      "ldr d1, [%[a]], #8\n"
      "ldp q3, q4, [%[b]], #32\n"
      "ldp q5, q6, [%[b]], #32\n"
      TESSERA_F32_EVEN("0", "4", "8", "12", "16", "20", "3")
      TESSERA_F32_EVEN("1", "5", "9", "13", "17", "21", "4")
      TESSERA_F32_EVEN("2", "6", "10", "14", "18", "22", "5")
      TESSERA_F32_EVEN("3", "7", "11", "15", "19", "23", "6")
      "2:\n"
      "lsr %[left], %[left], #1\n"
      "cbz %[left], 3f\n"
      "neg x16, %[left]\n"
      "and x16, x16, #15\n"
      "add %[left], %[left], x16\n"
      "mov x17, #48\n"
      "msub %[a], x16, x17, %[a]\n"
      "sub %[b], %[b], x16, lsl #7\n"
      "add %[b], %[b], #1024\n"
      "mov x17, #216\n"
      "mul x16, x16, x17\n"
      "adr x17, 1f\n"
      "add x16, x16, x17\n"
      "br x16\n"
      ".p2align 5\n"
      "1:\n"
      TESSERA_F32_EIGHT("0") TESSERA_F32_EIGHT("4") TESSERA_F32_EIGHT("8") TESSERA_F32_EIGHT("12")
      ".if . - 1b - 16 * 216\n .error \"two numbers of k are not 216 bytes of code\"\n .endif\n"
      "add %[a], %[a], #768\n"
      "add %[b], %[b], #2048\n"
      "subs %[left], %[left], #16\n"
      "b.gt 1b\n"
      "3:\n"
      : TESSERA_F32_OUT(0), TESSERA_F32_OUT(4), TESSERA_F32_OUT(8), TESSERA_F32_OUT(12),
        TESSERA_F32_OUT(16), TESSERA_F32_OUT(20),
        [a] "+r"(a_at), [b] "+r"(b_at), [left] "+r"(left)
      :
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "x16", "x17", "cc", "memory");
  // clang-format on
}

// A tile of fewer columns, or one whose columns lie apart; rows of sums are `pitch` apart.
inline void f32_put_part(const float* part, std::int64_t pitch, std::int64_t rows,
                         const TileOut& out) {
  for (std::int64_t i = 0; i < std::min(out.rows, rows); ++i)
    for (std::int64_t j = 0; j < out.cols; ++j) {
      float& to = out.c[i * out.rs + j * out.cs];
      const float v = part[i * pitch + j] * out.alpha;
      to = out.beta == 0 ? v : __builtin_fmaf(out.beta, to, v);
      if (out.offset) to += out.offset[j];
    }
}
// A single column (49 and 65 tokens leave one): four panels of A at a time, whose rows are elements
// of registers; where fewer are left, the last one is taken again.
inline void f32_column(std::int64_t k, const float* a, const float* b, TileOut out) {
  constexpr int panels = 4;
  constexpr std::int64_t rows = panels * f32_rows;
  for (; out.rows > 0; out.rows -= rows, out.c += rows * out.rs, a += rows * k) {
    const float* panel[panels];
    for (int i = 0; i < panels; ++i)
      panel[i] = a + std::min<std::int64_t>(i, (out.rows - 1) / f32_rows) * f32_rows * k;
    float32x4_t four[panels] = {};
    float32x2_t two[panels] = {};
    for (std::int64_t p = 0; p < k; ++p)
#pragma GCC unroll 4
      for (int i = 0; i < panels; ++i) {
        four[i] = vfmaq_n_f32(four[i], vld1q_f32(panel[i] + p * f32_rows), b[p * f32_columns]);
        two[i] = vfma_n_f32(two[i], vld1_f32(panel[i] + p * f32_rows + 4), b[p * f32_columns]);
      }
    float sums[rows];
    for (int i = 0; i < panels; ++i) {
      vst1q_f32(sums + i * f32_rows, four[i]);
      vst1_f32(sums + i * f32_rows + 4, two[i]);
    }
    f32_put_part(sums, 1, rows, out);
  }
}
inline void tile_f32_arm(std::int64_t k, const void* a, const void* b, const TileOut& tiles) {
  constexpr auto rows = std::make_integer_sequence<int, f32_rows>();
  TileOut out = tiles;
  if (out.cols == 1)
    return f32_column(k, static_cast<const float*>(a), static_cast<const float*>(b), out);
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
    f32_put_part(part, f32_columns, f32_rows, out);
  }
}

// Four numbers of k of six rows, [k][row], from registers that have those of one row each.
struct SixRows {
  float32x4_t r[f32_rows];
};
TESSERA_ARM_INLINE void put_six(const SixRows& x, float* to) {
  const auto pair = [](float32x4_t v) { return vreinterpretq_f64_f32(v); };
  const auto put = [to](int i, float64x2_t v) { vst1q_f32(to + i, vreinterpretq_f32_f64(v)); };
  const float64x2_t even01 = pair(vtrn1q_f32(x.r[0], x.r[1])),
                    odd01 = pair(vtrn2q_f32(x.r[0], x.r[1])),
                    even23 = pair(vtrn1q_f32(x.r[2], x.r[3])),
                    odd23 = pair(vtrn2q_f32(x.r[2], x.r[3])),
                    even45 = pair(vtrn1q_f32(x.r[4], x.r[5])),
                    odd45 = pair(vtrn2q_f32(x.r[4], x.r[5]));
  put(0, vtrn1q_f64(even01, even23));
  put(4, vtrn1q_f64(even45, odd01));
  put(8, vtrn1q_f64(odd23, odd45));
  put(12, vtrn2q_f64(even01, even23));
  put(16, vtrn2q_f64(even45, odd01));
  put(20, vtrn2q_f64(odd23, odd45));
}
// `size` numbers of six rows into a panel; those `next` elements behind them are packed next and
// those behind these are fetched into the second-level cache meanwhile, unless it is 0.
TESSERA_ARM_INLINE void pack_six(const float* const* row, std::int64_t size, std::int64_t next,
                                 float* to) {
  std::int64_t p = 0;
  for (; p + 4 <= size; p += 4, to += 4 * f32_rows) {
    if (next != 0 && p % 16 == 0)
      for (int r = 0; r < f32_rows; ++r) __builtin_prefetch(row[r] + p + 2 * next, 0, 2);
    put_six({{vld1q_f32(row[0] + p), vld1q_f32(row[1] + p), vld1q_f32(row[2] + p),
              vld1q_f32(row[3] + p), vld1q_f32(row[4] + p), vld1q_f32(row[5] + p)}},
            to);
  }
  for (; p < size; ++p, to += f32_rows)
    for (int r = 0; r < f32_rows; ++r) to[r] = row[r][p];
}
// Lane i of some whose numbers follow each other; a panel that lacks lanes has its last one again,
// since nothing reads what becomes of it.
TESSERA_ARM_INLINE const float* f32_lane(const Lanes& l, std::int64_t i) {
  return static_cast<const float*>(l.from) + std::min(i, l.used - 1) * l.lane_step;
}
inline void pack_f32_rows(const Lanes& l, float* to) {
  const float* row[f32_rows];
  for (int r = 0; r < f32_rows; ++r) row[r] = f32_lane(l, r);
  pack_six(row, l.k, l.used == f32_rows ? f32_rows * l.lane_step : 0, to);
}
// Four numbers of k of four columns, [k][column].
TESSERA_ARM_INLINE void put_four_columns(float32x4_t c0, float32x4_t c1, float32x4_t c2,
                                         float32x4_t c3, float* to) {
  const auto pair = [](float32x4_t v) { return vreinterpretq_f64_f32(v); };
  const auto put = [to](int k, float64x2_t v) {
    vst1q_f32(to + k * f32_columns, vreinterpretq_f32_f64(v));
  };
  const float64x2_t even01 = pair(vtrn1q_f32(c0, c1)), odd01 = pair(vtrn2q_f32(c0, c1)),
                    even23 = pair(vtrn1q_f32(c2, c3)), odd23 = pair(vtrn2q_f32(c2, c3));
  put(0, vtrn1q_f64(even01, even23));
  put(1, vtrn1q_f64(odd01, odd23));
  put(2, vtrn2q_f64(even01, even23));
  put(3, vtrn2q_f64(odd01, odd23));
}
inline void pack_f32_columns(const Lanes& l, float* to) {
  std::int64_t p = 0;
  const float* column[f32_columns];
  for (int i = 0; i < f32_columns; ++i) column[i] = f32_lane(l, i);
  const std::int64_t next = l.used == f32_columns ? f32_columns * l.lane_step : 0;
  for (; p + 4 <= l.k; p += 4, to += 4 * f32_columns) {
    if (next != 0 && p % 16 == 0)
      for (const float* from : column) __builtin_prefetch(from + p + next, 0, 2);
    for (int i = 0; i < f32_columns; i += 4)
      put_four_columns(vld1q_f32(column[i] + p), vld1q_f32(column[i + 1] + p),
                       vld1q_f32(column[i + 2] + p), vld1q_f32(column[i + 3] + p), to + i);
  }
  for (; p < l.k; ++p, to += f32_columns)
    for (int i = 0; i < f32_columns; ++i) to[i] = column[i][p];
}
// Several panels of lanes that lie side by side: as many lanes as fill whole groups of panels, and
// says how many that were. Pieces of eight rows are walked across, as pack_beside of bf16 does.
template <int width>
std::int64_t pack_f32_beside(const Lanes& l, void* panels) {
  constexpr std::int64_t piece = 8, at_once = width == f32_rows ? 48 : 32, line = 16;
  static_assert(at_once % width == 0 && at_once % line == 0);
  const std::int64_t lanes = l.used / at_once * at_once, pitch = l.pitch * width, step = l.k_step;
  float* const to = static_cast<float*>(panels);
  for (std::int64_t k = 0; k < l.k; k += piece) {
    const std::int64_t ahead = k + 2 * piece < l.k ? 2 * piece * step : 0;
    for (std::int64_t lane = 0; lane < lanes; lane += at_once) {
      const float* row = static_cast<const float*>(l.from) + k * step + lane;
      float* group = to + lane / width * pitch + k * width;
      for (std::int64_t p = std::min(piece, l.k - k); p > 0; --p, row += step, group += width) {
        for (std::int64_t at = 0; at < at_once; at += line)
          __builtin_prefetch(row + ahead + at, 0, 2);
        for (std::int64_t at = 0; at < at_once; at += width)
          __builtin_memcpy(group + at / width * pitch, row + at, width * sizeof(float));
      }
    }
  }
  return lanes;
}
inline void pack_f32_pieces(const void* const* rows, std::int64_t from, std::int64_t size,
                            void* panel) {
  const float* row[f32_rows];
  for (int r = 0; r < f32_rows; ++r) row[r] = static_cast<const float*>(rows[r]) + from;
  pack_six(row, size, 0, static_cast<float*>(panel));
}

}  // namespace tessera::exec::cpu
