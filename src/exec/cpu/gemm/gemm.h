// The one seam to matrix multiplication: C = alpha A B + beta C for matrices of any strides, on the
// calling thread. Convention: the result depends on shapes and values only, never on who else is
// running; beta == 0 does not read C.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tessera::exec::cpu {

// What a product packs its operands into: the calling thread's own, so that a plan counts it.
inline constexpr std::size_t gemm_scratch_bytes = sizeof(float) * 384 * (384 + 12);

// A is m x k, B is k x n, C is m x n; rs_ is the distance between rows, cs_ between columns, in
// elements; `packed` has gemm_scratch_bytes, 64-byte aligned. Safe to call from many threads at
// once.
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const float* a,
          std::int64_t rs_a, std::int64_t cs_a, const float* b, std::int64_t rs_b,
          std::int64_t cs_b, float beta, float* c, std::int64_t rs_c, std::int64_t cs_c,
          float* packed);

// B of many products, k x n, packed once: whole panels of columns, each with all of k. The same
// bits as gemm() gives.
std::int64_t packed_b_elements(std::int64_t k, std::int64_t n);
// Columns [n0, n0 + n_size) of B, n0 a multiple of scattered_columns; tasks are independent.
void gemm_pack_b(std::int64_t k, std::int64_t n0, std::int64_t n_size, const float* b,
                 std::int64_t rs_b, std::int64_t cs_b, float* packed);
// The part of a packed B that a product reads: rows [k0, k0 + k) of k_all, columns from n0 on,
// which is a multiple of scattered_columns.
struct PackedB {
  const float* data = nullptr;
  std::int64_t k_all = 0, k0 = 0, n0 = 0;
};
// C = A B + beta C, C's columns contiguous; `panel` has scattered_scratch floats.
void gemm_packed(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t rs_a,
                 std::int64_t cs_a, const PackedB& b, float beta, float* c, std::int64_t rs_c,
                 float* panel);

// A matrix whose rows lie in pieces: row i is `parts` runs of `length` numbers, run t at rows[t *
// pitch + i]. Its last panel reads whole panels, so there are pointers (to anything readable) up to
// a multiple of scattered_rows.
inline constexpr std::int64_t scattered_rows = 12, scattered_columns = 32, scattered_block = 384;
inline constexpr std::int64_t scattered_scratch =
    scattered_block * scattered_rows;  // floats of one thread
struct Scattered {
  std::int64_t parts, length;
  const float* const* rows = nullptr;
  std::int64_t pitch = 0;

  std::int64_t k() const { return parts * length; }
  std::int64_t blocks() const {
    return std::max<std::int64_t>(1, (k() + scattered_block - 1) / scattered_block);
  }
  std::int64_t k_step() const {
    return std::max<std::int64_t>(4, ((k() + blocks() - 1) / blocks() + 3) / 4 * 4);
  }  // even blocks, of whole vectors
};
// B of such a product, packed once for all its rows: part t of B is a matrix length x n at
// parts[t]. Tasks are independent of each other.
inline std::int64_t packed_columns(std::int64_t n) {
  return (n + scattered_columns - 1) / scattered_columns * scattered_columns;
}
inline std::int64_t packed_elements(const Scattered& a, std::int64_t n) {
  return a.k() * packed_columns(n);
}
inline std::int64_t pack_tasks(const Scattered& a, std::int64_t n) {
  return (a.k() + a.k_step() - 1) / a.k_step() * (packed_columns(n) / scattered_columns);
}
void gemm_pack(const Scattered& a, std::int64_t n, const float* const* parts, std::int64_t rs_b,
               std::int64_t cs_b, std::int64_t task, float* packed);
// What happens to C's rows while they are in cache: relu(C scale + offset + addend). Columns of
// scale and offset start with the product's, the addend lies like C.
struct Finish {
  const float *scale = nullptr, *offset = nullptr;
  const float* addend = nullptr;
  bool relu = false;

  bool nothing() const { return !scale && !addend && !relu; }
};
// C = A B for m rows of A and columns [n0, n0 + n_size) of B, n0 a multiple of scattered_columns;
// `panel` has scattered_scratch floats.
void gemm_scattered(const Scattered& a, std::int64_t m, std::int64_t n, const float* packed,
                    std::int64_t n0, std::int64_t n_size, float* c, std::int64_t rs_c,
                    const Finish& finish, float* panel);

}  // namespace tessera::exec::cpu
