// gelu of four registers on aarch64, with the bits of vgelu (simd/vector_math-inl.h). g++ 12 copies
// a constant for each multiply-add and lets results wait for each other; here constants that are
// added to are loaded, and the four registers take every step one after the other.
#pragma once

#include <arm_neon.h>

#include "exec/cpu/simd/gelu_fit.h"

namespace tessera::exec::cpu {

#define TESSERA_FOUR_TIMES(x) x, x, x, x
// Coefficients that are added to, those that are multiplied with and 1/2, and the limit.
alignas(64) inline constexpr float gelu_table[36] = {TESSERA_FOUR_TIMES(gelu_fit.above[0]),
                                                     TESSERA_FOUR_TIMES(gelu_fit.above[2]),
                                                     TESSERA_FOUR_TIMES(gelu_fit.above[4]),
                                                     TESSERA_FOUR_TIMES(gelu_fit.below[0]),
                                                     TESSERA_FOUR_TIMES(gelu_fit.below[2]),
                                                     TESSERA_FOUR_TIMES(gelu_fit.below[4]),
                                                     gelu_fit.above[1],
                                                     gelu_fit.above[3],
                                                     gelu_fit.above[5],
                                                     0.5f,
                                                     gelu_fit.below[1],
                                                     gelu_fit.below[3],
                                                     gelu_fit.below[5],
                                                     0.0f,
                                                     TESSERA_FOUR_TIMES(gelu_fit.most_square)};
#undef TESSERA_FOUR_TIMES

// clang-format off
// Registers a to d become the constant `at` bytes into the table.
#define TESSERA_GELU_LOAD(a, b, c, d, at)                                \
  "ldr q" a ", [%[table], #" at "]\n ldr q" b ", [%[table], #" at "]\n"  \
  "ldr q" c ", [%[table], #" at "]\n ldr q" d ", [%[table], #" at "]\n"
// They get t (v0 to v3) times a coefficient, or e to h times t^2 (v4 to v7), added.
#define TESSERA_GELU_ADD(a, b, c, d, with)                                                \
  "fmla v" a ".4s, v0.4s, v" with "\n fmla v" b ".4s, v1.4s, v" with "\n"                 \
  "fmla v" c ".4s, v2.4s, v" with "\n fmla v" d ".4s, v3.4s, v" with "\n"
#define TESSERA_GELU_JOIN(a, b, c, d, e, f, g, h)                                         \
  "fmla v" a ".4s, v" e ".4s, v4.4s\n fmla v" b ".4s, v" f ".4s, v5.4s\n"                 \
  "fmla v" c ".4s, v" g ".4s, v6.4s\n fmla v" d ".4s, v" h ".4s, v7.4s\n"

inline __attribute__((always_inline)) void gelu_of_four(float32x4_t* x) {
  asm("ldp q24, q25, [%[table], #96]\n"
      "ldr q26, [%[table], #128]\n"
      "fmul v0.4s, %0.4s, %0.4s\n fmul v1.4s, %1.4s, %1.4s\n"
      "fmul v2.4s, %2.4s, %2.4s\n fmul v3.4s, %3.4s, %3.4s\n"
      TESSERA_GELU_LOAD("8", "9", "10", "11", "32")
      TESSERA_GELU_LOAD("12", "13", "14", "15", "80")
      TESSERA_GELU_LOAD("16", "17", "18", "19", "16")
      TESSERA_GELU_LOAD("20", "21", "22", "23", "64")
      TESSERA_GELU_ADD("8", "9", "10", "11", "24.s[2]")
      "fmul v4.4s, v0.4s, v0.4s\n fmul v5.4s, v1.4s, v1.4s\n"
      "fmul v6.4s, v2.4s, v2.4s\n fmul v7.4s, v3.4s, v3.4s\n"
      TESSERA_GELU_ADD("12", "13", "14", "15", "25.s[2]")
      TESSERA_GELU_ADD("16", "17", "18", "19", "24.s[1]")
      TESSERA_GELU_ADD("20", "21", "22", "23", "25.s[1]")
      TESSERA_GELU_JOIN("16", "17", "18", "19", "8", "9", "10", "11")
      TESSERA_GELU_JOIN("20", "21", "22", "23", "12", "13", "14", "15")
      TESSERA_GELU_LOAD("8", "9", "10", "11", "0")
      TESSERA_GELU_LOAD("12", "13", "14", "15", "48")
      TESSERA_GELU_ADD("12", "13", "14", "15", "25.s[0]")
      TESSERA_GELU_ADD("8", "9", "10", "11", "24.s[0]")
      TESSERA_GELU_JOIN("12", "13", "14", "15", "20", "21", "22", "23")
      TESSERA_GELU_JOIN("8", "9", "10", "11", "16", "17", "18", "19")
      "fcmgt v16.4s, v0.4s, v26.4s\n fcmgt v17.4s, v1.4s, v26.4s\n"
      "fcmgt v18.4s, v2.4s, v26.4s\n fcmgt v19.4s, v3.4s, v26.4s\n"
      "fdiv v8.4s, v8.4s, v12.4s\n fdiv v9.4s, v9.4s, v13.4s\n"
      "fdiv v10.4s, v10.4s, v14.4s\n fdiv v11.4s, v11.4s, v15.4s\n"
      "fmul %0.4s, %0.4s, v24.s[3]\n fmul %1.4s, %1.4s, v24.s[3]\n"
      "fmul %2.4s, %2.4s, v24.s[3]\n fmul %3.4s, %3.4s, v24.s[3]\n"
      "fabs v20.4s, %0.4s\n fabs v21.4s, %1.4s\n fabs v22.4s, %2.4s\n fabs v23.4s, %3.4s\n"
      "fmul v8.4s, v8.4s, v0.4s\n fmul v9.4s, v9.4s, v1.4s\n"
      "fmul v10.4s, v10.4s, v2.4s\n fmul v11.4s, v11.4s, v3.4s\n"
      "bsl v16.16b, v20.16b, v8.16b\n bsl v17.16b, v21.16b, v9.16b\n"
      "bsl v18.16b, v22.16b, v10.16b\n bsl v19.16b, v23.16b, v11.16b\n"
      "fadd %0.4s, %0.4s, v16.4s\n fadd %1.4s, %1.4s, v17.4s\n"
      "fadd %2.4s, %2.4s, v18.4s\n fadd %3.4s, %3.4s, v19.4s\n"
      : "+w"(x[0]), "+w"(x[1]), "+w"(x[2]), "+w"(x[3])
      : [table] "r"(gelu_table), "m"(gelu_table)
      : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",
        "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26");
}
// clang-format on

#undef TESSERA_GELU_LOAD
#undef TESSERA_GELU_ADD
#undef TESSERA_GELU_JOIN

}  // namespace tessera::exec::cpu
