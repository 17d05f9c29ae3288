// Quantised elements in registers: four to a word, and squares of them turned. Convention: bytes of
// a word in the order of memory; largest numbers are the bits of |x|, whose order is that of the
// numbers, with a NaN above all.
#pragma once

#include <cuda_fp8.h>

#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {

__device__ __forceinline__ unsigned to_i8(float x) {
  const float kept = x == x ? fminf(fmaxf(x, -127.0f), 127.0f) : 0.0f;
  return static_cast<unsigned>(__float2int_rn(kept)) & 0xffu;
}
// Two numbers as two bytes, the first the lower one.
__device__ __forceinline__ unsigned quantised_pair(float a, float b, ir::DType to) {
  if (to == ir::DType::i8) return to_i8(a) | to_i8(b) << 8;
  return to == ir::DType::f8e4m3
             ? __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3)
             : __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E5M2);
}

__device__ __forceinline__ unsigned quantised_word(float a, float b, float c, float d,
                                                   ir::DType to) {
  return quantised_pair(a, b, to) | quantised_pair(c, d, to) << 16;
}

// Bytes i of four words in a word: columns of a square of bytes.
__device__ __forceinline__ void turn_square(const unsigned (&rows)[4], unsigned (&columns)[4]) {
  const unsigned a = __byte_perm(rows[0], rows[1], 0x5140),
                 b = __byte_perm(rows[2], rows[3], 0x5140),
                 c = __byte_perm(rows[0], rows[1], 0x7362),
                 d = __byte_perm(rows[2], rows[3], 0x7362);
  columns[0] = __byte_perm(a, b, 0x5410);
  columns[1] = __byte_perm(a, b, 0x7632);
  columns[2] = __byte_perm(c, d, 0x5410);
  columns[3] = __byte_perm(c, d, 0x7632);
}

// The largest of a block of `threads` threads against what other blocks have found.
template <int threads>
__device__ __forceinline__ void note_largest(unsigned bits, unsigned* amax) {
  __shared__ unsigned parts[threads / 32];
  for (int lane = 16; lane > 0; lane /= 2)
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, lane));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = bits;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int i = 0; i < threads / 32; ++i) bits = max(bits, parts[i]);
  if (bits > __ldcg(amax)) atomicMax(amax, bits);
}

}  // namespace tessera::exec::cuda
