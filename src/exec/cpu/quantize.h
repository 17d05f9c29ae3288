// Numbers times the inverse of their scale as bytes: to nearest even, cut off at 127, a NaN is 0.
#pragma once

#include <cstdint>

#include "exec/cpu/gemm/micro.h"

namespace tessera::exec::cpu {

void to_bytes(const float* x, float inverse, std::int64_t n, std::int8_t* y);
void to_bytes(const Low* x, float inverse, std::int64_t n, std::int8_t* y);

}  // namespace tessera::exec::cpu
