// The one seam to matrix multiplication: C = alpha A B + beta C for matrices of any strides, on the calling thread.
// Convention: the result depends on shapes and values only, never on who else is running; beta == 0 does not read C.
#pragma once

#include <cstdint>

namespace tessera::exec::cpu {

// A is m x k, B is k x n, C is m x n; rs_ is the distance between rows, cs_ between columns, in elements. Safe to call from many threads at
// once.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a, std::int64_t rs_a, std::int64_t cs_a, const float* b,
          std::int64_t rs_b, std::int64_t cs_b, float beta, float* c, std::int64_t rs_c, std::int64_t cs_c);

}  // namespace tessera::exec::cpu
