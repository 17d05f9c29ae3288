// gelu of four registers on aarch64, with the bits of vgelu_low (simd/vector_math-inl.h). g++ 12
// copies a constant for each multiply-add and lets results wait for each other; here constants that
// are added to are loaded, and the four registers take every step one after the other.
#pragma once

#include <arm_neon.h>

#include "exec/cpu/simd/gelu_fit.h"

namespace tessera::exec::cpu {

#define TESSERA_FOUR_TIMES(x) x, x, x, x
// Coefficients that are added to, those that are multiplied with, and the limits of u.
alignas(64) inline constexpr float gelu_table[36] = {TESSERA_FOUR_TIMES(gelu_low_fit.above[0]),
                                                     TESSERA_FOUR_TIMES(gelu_low_fit.above[2]),
                                                     TESSERA_FOUR_TIMES(gelu_low_fit.below[0]),
                                                     TESSERA_FOUR_TIMES(gelu_low_fit.below[2]),
                                                     TESSERA_FOUR_TIMES(gelu_low_fit.half),
                                                     TESSERA_FOUR_TIMES(gelu_low_fit.most),
                                                     TESSERA_FOUR_TIMES(-gelu_low_fit.most),
                                                     gelu_low_fit.above[1],
                                                     gelu_low_fit.above[3],
                                                     gelu_low_fit.below[1],
                                                     gelu_low_fit.below[3]};
#undef TESSERA_FOUR_TIMES

// clang-format off
// Registers a to d become the constant `at` bytes into the table.
#define TESSERA_GELU_LOAD(a, b, c, d, at)                                \
  "ldr q" a ", [%[table], #" at "]\n ldr q" b ", [%[table], #" at "]\n"  \
  "ldr q" c ", [%[table], #" at "]\n ldr q" d ", [%[table], #" at "]\n"
// They get t (v4 to v7) times a coefficient, or e to h times t^2 (v8 to v11), added.
#define TESSERA_GELU_ADD(a, b, c, d, with)                                                \
  "fmla v" a ".4s, v4.4s, v" with "\n fmla v" b ".4s, v5.4s, v" with "\n"                 \
  "fmla v" c ".4s, v6.4s, v" with "\n fmla v" d ".4s, v7.4s, v" with "\n"
#define TESSERA_GELU_JOIN(a, b, c, d, e, f, g, h)                                         \
  "fmla v" a ".4s, v" e ".4s, v8.4s\n fmla v" b ".4s, v" f ".4s, v9.4s\n"                 \
  "fmla v" c ".4s, v" g ".4s, v10.4s\n fmla v" d ".4s, v" h ".4s, v11.4s\n"

inline __attribute__((always_inline)) void gelu_of_four(float32x4_t* x) {
  asm("ldp q24, q25, [%[table], #80]\n"
      "ldr q26, [%[table], #112]\n"
      "fmin v0.4s, %0.4s, v24.4s\n fmin v1.4s, %1.4s, v24.4s\n"
      "fmin v2.4s, %2.4s, v24.4s\n fmin v3.4s, %3.4s, v24.4s\n"
      "fmax v0.4s, v0.4s, v25.4s\n fmax v1.4s, v1.4s, v25.4s\n"
      "fmax v2.4s, v2.4s, v25.4s\n fmax v3.4s, v3.4s, v25.4s\n"
      TESSERA_GELU_LOAD("12", "13", "14", "15", "48")
      "fmul v4.4s, v0.4s, v0.4s\n fmul v5.4s, v1.4s, v1.4s\n"
      "fmul v6.4s, v2.4s, v2.4s\n fmul v7.4s, v3.4s, v3.4s\n"
      TESSERA_GELU_LOAD("16", "17", "18", "19", "32")
      TESSERA_GELU_ADD("12", "13", "14", "15", "26.s[3]")
      "fmul v8.4s, v4.4s, v4.4s\n fmul v9.4s, v5.4s, v5.4s\n"
      "fmul v10.4s, v6.4s, v6.4s\n fmul v11.4s, v7.4s, v7.4s\n"
      TESSERA_GELU_LOAD("20", "21", "22", "23", "16")
      TESSERA_GELU_ADD("16", "17", "18", "19", "26.s[2]")
      TESSERA_GELU_ADD("20", "21", "22", "23", "26.s[1]")
      TESSERA_GELU_JOIN("16", "17", "18", "19", "12", "13", "14", "15")
      TESSERA_GELU_LOAD("12", "13", "14", "15", "0")
      TESSERA_GELU_ADD("12", "13", "14", "15", "26.s[0]")
      TESSERA_GELU_JOIN("12", "13", "14", "15", "20", "21", "22", "23")
      TESSERA_GELU_LOAD("20", "21", "22", "23", "64")
      "fdiv v12.4s, v12.4s, v16.4s\n fdiv v13.4s, v13.4s, v17.4s\n"
      "fdiv v14.4s, v14.4s, v18.4s\n fdiv v15.4s, v15.4s, v19.4s\n"
      "fmla v20.4s, v0.4s, v12.4s\n fmla v21.4s, v1.4s, v13.4s\n"
      "fmla v22.4s, v2.4s, v14.4s\n fmla v23.4s, v3.4s, v15.4s\n"
      "fmul %0.4s, %0.4s, v20.4s\n fmul %1.4s, %1.4s, v21.4s\n"
      "fmul %2.4s, %2.4s, v22.4s\n fmul %3.4s, %3.4s, v23.4s\n"
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
