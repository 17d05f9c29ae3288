// A blocked matrix product on Highway: B is packed once per block into panels of NR columns, A one
// panel of R rows at a time, and a register tile of R x NR accumulators runs along k
// (gemm_tile-inl.h). Small operands (one head of an attention) matter as much as large ones, hence
// the cheap packing. Convention: every element of C is one chain of multiply-adds in the order of
// k, restarted at each block of k. (Before AVX2 a multiply-add rounds twice, so bits may differ
// between such machines and others.)
#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for; none is
                                   // scalable, so accumulators may live in arrays

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/gemm/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "exec/cpu/gemm/gemm.h"
#include "exec/cpu/gemm/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

// `packed` holds a block of B and, behind it, a panel of A.
void run(const Problem& p, float* HWY_RESTRICT packed) {
  float* HWY_RESTRICT a_panel = packed + k_block * n_block;
  const int64_t k_parts = (p.k + k_block - 1) / k_block, k_step = (p.k + k_parts - 1) / k_parts;
  for (int64_t n0 = 0; n0 < p.n; n0 += n_block) {
    const int64_t n_size = std::min(n_block, p.n - n0);
    for (int64_t k0 = 0; k0 < p.k; k0 += k_step) {
      const int64_t k_size = std::min(k_step, p.k - k0);
      // Contiguous rows of B are read along, a few at a time.
      const int64_t q_step = p.cs_b == 1 ? 16 : k_size;
      for (int64_t q = 0; q < k_size; q += q_step) {
        for (int64_t j = 0; j < n_size; j += NR) {
          pack<NR>(std::min<int64_t>(NR, n_size - j), std::min<int64_t>(q_step, k_size - q),
                   p.b + (k0 + q) * p.rs_b + (n0 + j) * p.cs_b, p.cs_b, p.rs_b,
                   packed + j * k_size + q * NR);
        }
      }
      for (int64_t i = 0; i < p.m; i += R) {
        const int64_t rows = std::min<int64_t>(R, p.m - i);
        pack<R>(rows, k_size, p.a + i * p.rs_a + k0 * p.cs_a, p.rs_a, p.cs_a, a_panel);
        for (int64_t j = 0; j < n_size; j += NR) {
          const int64_t cols = std::min<int64_t>(NR, n_size - j);
          const auto kernel = cols > lanes ? tile_of<2> : tile_of<1>;
          kernel(k_size, a_panel, packed + j * k_size, p, k0 == 0 ? p.beta : 1,
                 p.c + i * p.rs_c + (n0 + j) * p.cs_c, rows, cols);
        }
      }
    }
  }
}

// Panel j / NR of B has NR columns and all of k, one row after the other.
void pack_b(int64_t k, int64_t n0, int64_t n_size, const float* b, int64_t rs_b, int64_t cs_b,
            float* HWY_RESTRICT packed) {
  for (int64_t j = n0; j < n0 + n_size; j += NR)
    pack<NR>(std::min<int64_t>(NR, n0 + n_size - j), k, b + j * cs_b, cs_b, rs_b, packed + j * k);
}

// As run(), block by block of k, from panels that are there.
void run_packed(const Problem& p, const PackedB& b, float* HWY_RESTRICT a_panel) {
  const int64_t k_parts = (p.k + k_block - 1) / k_block, k_step = (p.k + k_parts - 1) / k_parts;
  for (int64_t k0 = 0; k0 < p.k; k0 += k_step) {
    const int64_t k_size = std::min(k_step, p.k - k0);
    for (int64_t i = 0; i < p.m; i += R) {
      const int64_t rows = std::min<int64_t>(R, p.m - i);
      pack<R>(rows, k_size, p.a + i * p.rs_a + k0 * p.cs_a, p.rs_a, p.cs_a, a_panel);
      for (int64_t j = 0; j < p.n; j += NR) {
        const int64_t cols = std::min<int64_t>(NR, p.n - j);
        const auto kernel = cols > lanes ? tile_of<2> : tile_of<1>;
        kernel(k_size, a_panel, b.data + (b.n0 + j) * b.k_all + (b.k0 + k0) * NR, p,
               k0 == 0 ? p.beta : 1, p.c + i * p.rs_c + j, rows, cols);
      }
    }
  }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(run);
HWY_EXPORT(pack_b);
HWY_EXPORT(run_packed);

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t rs_a, std::int64_t cs_a, const float* b, std::int64_t rs_b,
          std::int64_t cs_b, float beta, float* c, std::int64_t rs_c, std::int64_t cs_c,
          float* packed) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j)
        c[i * rs_c + j * cs_c] = beta == 0 ? 0 : beta * c[i * rs_c + j * cs_c];
    return;
  }
  // Vectors run along the columns of C: where its rows are the contiguous ones, compute the
  // transpose.
  if (cs_c != 1 && rs_c == 1) {
    HWY_DYNAMIC_DISPATCH(run)
    ({n, m, k, alpha, b, cs_b, rs_b, a, cs_a, rs_a, beta, c, cs_c, rs_c}, packed);
  } else {
    HWY_DYNAMIC_DISPATCH(run)
    ({m, n, k, alpha, a, rs_a, cs_a, b, rs_b, cs_b, beta, c, rs_c, cs_c}, packed);
  }
}

std::int64_t packed_b_elements(std::int64_t k, std::int64_t n) { return k * packed_columns(n); }

void gemm_pack_b(std::int64_t k, std::int64_t n0, std::int64_t n_size, const float* b,
                 std::int64_t rs_b, std::int64_t cs_b, float* packed) {
  HWY_DYNAMIC_DISPATCH(pack_b)(k, n0, n_size, b, rs_b, cs_b, packed);
}

void gemm_packed(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t rs_a,
                 std::int64_t cs_a, const PackedB& b, float beta, float* c, std::int64_t rs_c,
                 float* panel) {
  if (m <= 0 || n <= 0) return;
  if (k <= 0) {
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) c[i * rs_c + j] = beta == 0 ? 0 : beta * c[i * rs_c + j];
    return;
  }
  HWY_DYNAMIC_DISPATCH(run_packed)
  ({m, n, k, 1, a, rs_a, cs_a, nullptr, 0, 0, beta, c, rs_c, 1}, b, panel);
}

}  // namespace tessera::exec::cpu
#endif
