// The one seam to matrix multiplication: C = alpha A B + beta C for matrices of any strides, on the
// calling thread; A and B are f32 or bf16, C and all sums f32. Convention: the result depends on
// shapes, values and the micro-kernel (micro.h) only, never on who else is running; beta == 0 does
// not read C.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "exec/cpu/gemm/micro.h"

namespace tessera::exec::cpu {

// Bytes of the buffer that a product packs its operands into: the calling thread's own, so that a
// plan counts it.
inline constexpr std::size_t gemm_scratch_bytes = sizeof(float) * 384 * (384 + 12);
// Panels of A alone, and beside them rows that are gathered before they are packed.
inline constexpr std::int64_t panel_bytes = most_a_block + low_rows * low_k_block * 2;

// Room behind the rows of operands, up to multiples of panel_columns: those of C may be written
// there, those of A, whose columns are contiguous, have zeros there.
struct Roomy {
  bool a = false, c = false;
};

// A is m x k, B is k x n, C is m x n; rs_ is the distance between rows, cs_ between columns, in
// elements; `packed` has gemm_scratch_bytes, 64-byte aligned. Safe to call from many threads at
// once. T is float or Low, here and below.
template <class T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const T* a,
          std::int64_t rs_a, std::int64_t cs_a, const T* b, std::int64_t rs_b, std::int64_t cs_b,
          float beta, float* c, std::int64_t rs_c, std::int64_t cs_c, void* packed,
          Roomy roomy = {});

// B of many products, k x n, packed once: whole panels of columns, each with all of k. The same
// bits as gemm() gives. Elements are those of T.
template <class T>
std::int64_t packed_b_elements(std::int64_t k, std::int64_t n);
// Columns [n0, n0 + n_size) of B, n0 a multiple of panel_columns, or some rows of them: `first`
// and, but for the last rows, `size` are multiples of low_group. Tasks are independent.
struct PackedRows {
  std::int64_t first = 0, size = std::numeric_limits<std::int64_t>::max();  // as far as there are
};
template <class T>
void gemm_pack_b(std::int64_t k, std::int64_t n0, std::int64_t n_size, const T* b,
                 std::int64_t rs_b, std::int64_t cs_b, T* packed, PackedRows rows = {});
// The part of a packed B that a product reads: rows [k0, k0 + k) of k_all, columns from n0 on,
// which is a multiple of panel_columns. For bf16, k0 is a multiple of low_group.
template <class T>
struct PackedB {
  const T* data = nullptr;
  std::int64_t k_all = 0, k0 = 0, n0 = 0;
};
// A of many products of f32, m x k, packed once where the micro-kernel reads rows in place
// (Micro::in_place) and these do not lie so: panels of its rows, each with all of k.
std::int64_t packed_a_elements(std::int64_t m, std::int64_t k);
// Some of its k, all rows. Tasks are independent.
void gemm_pack_a(std::int64_t m, std::int64_t k, const float* a, std::int64_t rs_a,
                 std::int64_t cs_a, float* packed, PackedRows part);
// The part of a packed A that a product reads, from row m0 on, which is a multiple of
// scattered_rows.
struct PackedA {
  const float* data = nullptr;  // null: A is as it is
  std::int64_t k_all = 0, k0 = 0, m0 = 0;
};
// C = A B + beta C, C's columns contiguous; `panel` has panel_bytes. Where `finish` has a `low`
// (for which the micro-kernel has tile_low or product), results go there, and C is sums of all
// blocks of k but the last. Without one it may have an offset alone, where the micro-kernel takes
// them.
template <class T>
void gemm_packed(std::int64_t m, std::int64_t n, std::int64_t k, const T* a, std::int64_t rs_a,
                 std::int64_t cs_a, const PackedB<T>& b, float beta, float* c, std::int64_t rs_c,
                 void* panel, const Finish& finish = {}, const PackedA& packed_a = {});

// A matrix whose rows lie in pieces: row i is `parts` runs of `length` numbers, run t at rows[t *
// pitch + i]. Its last panel reads whole panels, so there are pointers (to anything readable) up to
// a multiple of scattered_rows.
inline constexpr std::int64_t scattered_rows = 12, scattered_columns = panel_columns;
template <class T>
struct Scattered {
  std::int64_t parts, length;
  const void* const* rows = nullptr;
  std::int64_t pitch = 0;

  // Parts of bf16 are padded to whole groups of four: no group is of two parts.
  std::int64_t padded_length() const {
    return sizeof(T) == sizeof(float) ? length : (length + 3) / 4 * 4;
  }
  std::int64_t k() const { return parts * padded_length(); }
  std::int64_t blocks() const {
    const std::int64_t most = micro<T>().k_block;
    return std::max<std::int64_t>(1, (k() + most - 1) / most);
  }
  std::int64_t k_step() const {  // even blocks, of whole vectors or groups
    const std::int64_t whole = sizeof(T) == sizeof(float) ? 4 : low_group;
    return std::max(whole, ((k() + blocks() - 1) / blocks() + whole - 1) / whole * whole);
  }
  // k of B as it is packed, of one block or, since the others are whole groups, of all.
  static std::int64_t packed_block(std::int64_t size) {
    return sizeof(T) == sizeof(float) ? size : (size + low_group - 1) / low_group * low_group;
  }
  std::int64_t packed_k() const { return packed_block(k()); }
};
// B of such a product, packed once for all its rows: part t of B is a matrix length x n at
// parts[t]. Tasks are independent of each other.
inline std::int64_t packed_columns(std::int64_t n) {
  return (n + scattered_columns - 1) / scattered_columns * scattered_columns;
}
template <class T>
std::int64_t packed_elements(const Scattered<T>& a, std::int64_t n) {
  return a.packed_k() * packed_columns(n);
}
template <class T>
std::int64_t pack_tasks(const Scattered<T>& a, std::int64_t n) {
  return (a.k() + a.k_step() - 1) / a.k_step() * (packed_columns(n) / scattered_columns);
}
template <class T>
void gemm_pack(const Scattered<T>& a, std::int64_t n, const T* const* parts, std::int64_t rs_b,
               std::int64_t cs_b, std::int64_t task, T* packed);
// C = A B for m rows of A and columns [n0, n0 + n_size) of B, n0 a multiple of scattered_columns;
// `panel` has panel_bytes.
template <class T>
void gemm_scattered(const Scattered<T>& a, std::int64_t m, std::int64_t n, const T* packed,
                    std::int64_t n0, std::int64_t n_size, float* c, std::int64_t rs_c,
                    const Finish& finish, void* panel);

}  // namespace tessera::exec::cpu
