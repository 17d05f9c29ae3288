// Contiguous single-threaded f32 helpers, vectorised through Highway: what the kernel files of this
// folder are made of. Convention: the instruction set is chosen at run time. Outputs may be the
// inputs' storage (same start), else nothing overlaps.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/threads.h"

// These two come before any Highway header. Highway compiles a file once per instruction set.
// On the server cores known to us SVE is not faster than NEON. On x86-64 the kernels need nothing
// above the first set of AVX-512, and what lies between the baseline, which runs everywhere, and
// AVX2 serves no machine of today. Left out, a build takes half the time. The masks hold for every
// version of Highway: of one architecture the better instruction set has the lower bit.
#define HWY_DISABLED_TARGETS \
  (HWY_ARCH_X86 ? (HWY_SSSE3 | HWY_SSE4 | (HWY_AVX3 - 1)) : (HWY_NEON - 1))
// Versions before 1.0.4 have no target for the baseline of x86-64. They fall back to an emulation
// of 128-bit vectors, or to one lane (HWY_SCALAR) for compilers with GCC bug 106322, and kernels
// need four lanes. The bug is in 16-bit MulHigh, on architectures other than ours, and no kernel
// has such a multiplication: the emulation is the fallback for every compiler.
#define HWY_BROKEN_EMU128 0

namespace tessera::exec::cpu {

void vector_gelu(const float* x, float* y, std::int64_t n, bool tanh);
// For results that will be rounded to bf16.
void vector_gelu_low(const float* x, float* y, std::int64_t n, bool tanh);
void vector_relu(const float* x, float* y, std::int64_t n);
void vector_relu_grad(const float* y, const float* g, float* dx, std::int64_t n);  // g where y > 0
void vector_gelu_grad(const float* x, const float* g, float* dx, std::int64_t n, bool tanh);
void vector_exp_sub(const float* x, float* y, std::int64_t n,
                    float subtract);  // y = exp(x - subtract)
float vector_exp_sub_sum(const float* x, float* y, std::int64_t n,
                         float subtract);  // the sum of y as well; y may be null

float vector_max(const float* x, std::int64_t n);  // -inf when n == 0
float vector_sum(const float* x, std::int64_t n);
float vector_dot(const float* a, const float* b, std::int64_t n);
double vector_sumsq(const float* x, std::int64_t n);  // accumulated in double
// y[c] = sum over rows of x[row * pitch + c]; x is f32 or bf16.
void vector_column_sum(const float* x, std::int64_t rows, std::int64_t pitch, std::int64_t columns,
                       float* y);
void vector_column_sum(const std::uint16_t* x, std::int64_t rows, std::int64_t pitch,
                       std::int64_t columns, float* y);

void vector_fill(float* y, std::int64_t n, float value);
void vector_copy(const float* x, float* y, std::int64_t n);
void vector_scale(const float* x, float* y, std::int64_t n, float factor);  // y = factor * x
void vector_blend(const float* a, const float* b, float* y, std::int64_t n,
                  float keep);  // y = keep * a + (1 - keep) * b
void vector_axpy(const float* x, float* y, std::int64_t n, float factor);  // y += factor * x
void vector_add(const float* a, const float* b, float* y, std::int64_t n);
void vector_add_scalar(const float* a, float b, float* y, std::int64_t n);
void vector_sub(const float* a, const float* b, float* y, std::int64_t n);
void vector_mul(const float* a, const float* b, float* y, std::int64_t n);

// Elements of one task of an elementwise kernel: 64 KiB of f32, small enough to balance and large
// enough to hide the hand-out.
inline constexpr std::int64_t chunk = 16384;

// body(begin, size) for [0, n) in pieces of `grain`, over the threads of the pool.
template <class Body>
void for_chunks(ThreadPool& pool, std::int64_t n, std::int64_t grain, const Body& body) {
  pool.parallel_for((n + grain - 1) / grain, [&](std::int64_t task, int) {
    body(task * grain, std::min(grain, n - task * grain));
  });
}

}  // namespace tessera::exec::cpu
