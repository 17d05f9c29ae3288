// bf16 and f16 <-> f32, vectorised: what the executor puts around f32 kernels when values are
// stored in them, and what cast is made of. Convention: rounding is to nearest even; a NaN stays a
// NaN (quiet, sign and upper payload kept). No overlap between input and output,
// but where it is said.
#pragma once

#include <cstdint>

#include "base/threads.h"
#include "ir/type.h"

namespace tessera::exec::cpu {

void widen_bf16(const std::uint16_t* x, float* y, std::int64_t n);
void round_to_bf16(const float* x, std::uint16_t* y, std::int64_t n);
// y = factor x, rounded; y may be x.
void scale_bf16(const std::uint16_t* x, std::uint16_t* y, std::int64_t n, float factor);

// IEEE binary16; one element of it: base/half.h.
void widen_f16(const std::uint16_t* x, float* y, std::int64_t n);
void round_to_f16(const float* x, std::uint16_t* y, std::int64_t n);

// By the low type, which is bf16 or f16.
void widen_low(ir::DType low, const std::uint16_t* x, float* y, std::int64_t n, ThreadPool& pool);
void round_to_low(ir::DType low, const float* x, std::uint16_t* y, std::int64_t n,
                  ThreadPool& pool);

// One element, for code that is not worth a vector.
float widen_bf16(std::uint16_t x);
std::uint16_t round_to_bf16(float x);

}  // namespace tessera::exec::cpu
