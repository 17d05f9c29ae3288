// The seam over BLIS's typed interface, which takes strides as they are.
// Convention: every call carries its own runtime object with one thread; BLIS's global settings and environment play no part.
#include "exec/cpu/gemm.h"

#include <blis.h>

namespace tessera::exec::cpu {

namespace {

// BLIS refuses strides that look like overlap, also those of a dim that is never stepped along.
void tidy(std::int64_t rows, std::int64_t cols, std::int64_t& rs, std::int64_t& cs) {
  if (cols == 1) cs = rows == 1 ? 1 : rs * rows;
  if (rows == 1) rs = cols == 1 ? 1 : cs * cols;
}

}  // namespace

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a, std::int64_t rs_a, std::int64_t cs_a, const float* b,
          std::int64_t rs_b, std::int64_t cs_b, float beta, float* c, std::int64_t rs_c, std::int64_t cs_c) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) c[i * rs_c + j * cs_c] = beta == 0 ? 0 : beta * c[i * rs_c + j * cs_c];
    return;
  }
  tidy(m, k, rs_a, cs_a);
  tidy(k, n, rs_b, cs_b);
  tidy(m, n, rs_c, cs_c);
  rntm_t runtime;
  bli_rntm_init(&runtime);
  bli_rntm_set_num_threads(1, &runtime);
  // BLIS only reads A and B; its interface predates const.
  bli_sgemm_ex(BLIS_NO_TRANSPOSE, BLIS_NO_TRANSPOSE, m, n, k, &alpha, const_cast<float*>(a), rs_a, cs_a, const_cast<float*>(b), rs_b, cs_b, &beta,
               c, rs_c, cs_c, nullptr, &runtime);
}

}  // namespace tessera::exec::cpu
