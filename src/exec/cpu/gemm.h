// The one seam to matrix multiplication: C = alpha A B + beta C for matrices of any strides, on the calling thread.
// Convention: the result depends on shapes and values only, never on who else is running; beta == 0 does not read C.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::exec::cpu {

// What a product packs its operands into: the calling thread's own, so that a plan counts it.
inline constexpr std::size_t gemm_scratch_bytes = sizeof(float) * 384 * (384 + 12);

// A is m x k, B is k x n, C is m x n; rs_ is the distance between rows, cs_ between columns, in elements; `packed` has gemm_scratch_bytes,
// 64-byte aligned. Safe to call from many threads at once.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a, std::int64_t rs_a, std::int64_t cs_a, const float* b,
          std::int64_t rs_b, std::int64_t cs_b, float beta, float* c, std::int64_t rs_c, std::int64_t cs_c, float* packed);

}  // namespace tessera::exec::cpu
