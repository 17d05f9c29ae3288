// The kernels of our own behind contract: a matrix product over arbitrary strides, and the pass
// that adds addends and applies the activation. Convention: strides count elements.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "exec/common/contraction.h"
#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

inline constexpr int most_loops = 8;    // around a plain product, and dims of a result
inline constexpr int most_addends = 4;  // of one pass

struct PlainLoop {
  std::int64_t extent = 1, a = 0, b = 0, c = 0;
};
// C[m,n] = sum over k of A[m,k] B[k,n] for each step of `outer`, summed over the steps of `inner`.
struct PlainProduct {
  const void *a = nullptr, *b = nullptr;
  void* c = nullptr;
  ir::DType a_type{}, b_type{};  // of quantised factors
  PlainLoop m{}, n{}, k{};
  int outer_count = 0, inner_count = 0;
  std::array<PlainLoop, most_loops> outer{}, inner{};
  std::int64_t outer_steps = 1, inner_steps = 1;
};
// Elements of A and B are `factors`, those of C `result`: f64, f32, bf16, f16, or f32 of a low type
// and back; of quantised ones, which may differ, f32, bf16 or f16. With `products` there are no
// rows (m is one step), and n may stride through A as well.
void multiply_plain(const PlainProduct& product, bool products, ir::DType factors, ir::DType result,
                    cudaStream_t stream);

// A product of which one factor has at most this many rows; both have their depth side by side, at
// multiples of 16 bytes, and as many numbers of it.
inline constexpr int most_thin_rows = 4;
struct ThinProduct {
  const void *few_rows = nullptr, *many_rows = nullptr;
  const void* bias = nullptr;  // one for each of the many; null: none
  void* c = nullptr;
  std::int64_t few = 1, many = 1, depth = 1;
  std::int64_t few_row = 0, many_row = 0;  // elements between rows
  std::int64_t c_few = 0, c_many = 0;
};
// Factors are bf16 or f16, the result and the bias are too, or f32.
void multiply_thin(const ThinProduct& product, ir::DType factors, ir::DType result,
                   cudaStream_t stream);

// y = gelu(A B^T + bias) of bf16 factors, or of e4m3 ones times both scales; the bias is bf16; A is
// [m, k], B [n, k], results are dense: y and `before` (the value before gelu) [m, n] in bf16. With
// a scale of its own y is e4m3, y / scale, and may come turned, as [n, m], and with its largest
// magnitude, whose place holds 0 before.
struct GeluProduct {
  const void *a = nullptr, *b = nullptr;
  const float *a_scale = nullptr, *b_scale = nullptr;       // on the card; null: factors are bf16
  const float* y_scale = nullptr;                           // on the card; null: y is bf16
  const void* bias = nullptr;                               // one for each column; null: none
  void *y = nullptr, *before = nullptr, *turned = nullptr;  // null: not written
  float* amax = nullptr;
  std::int64_t m = 1, n = 1, k = 1;
  std::int64_t a_row = 0, b_row = 0;  // elements between rows
};
// Whether the card has a kernel for it that is faster than the library and a pass.
bool takes_gelu_product(const GeluProduct& product, const Limits& limits);
void multiply_gelu(const GeluProduct& product, const Limits& limits, cudaStream_t stream);

enum class Act : int { none, gelu, gelu_tanh };

struct Addend {
  const void* data = nullptr;
  ir::DType dtype = ir::DType::f32;
  std::array<std::int64_t, most_loops> strides{};  // along each dim
};
// z = sum times scales + addends, y = act(z), over a dense result. `sum` may be the storage of
// `before` or `y`.
struct Finish {
  const void* sum = nullptr;
  ir::DType sum_type = ir::DType::f32;
  void *before = nullptr, *y = nullptr;  // null: not written
  ir::DType type = ir::DType::f32;       // of before and y
  Act act = Act::none;
  int dims = 0;
  std::array<std::int64_t, most_loops> extents{};
  int addend_count = 0, scale_count = 0;  // the first addends are factors
  std::array<Addend, most_addends> addends{};
};
void finish_contract(const Finish& finish, cudaStream_t stream);

}  // namespace tessera::exec::cuda
