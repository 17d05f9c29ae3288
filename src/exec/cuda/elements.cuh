// Parts that kernels of all families share: element types, their conversions, the accumulator of
// each, reductions within a warp and a block, and the size of a grid. Convention: arithmetic on
// float, bf16 and f16 elements is done in float, on double in double; the order of every sum is
// fixed.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "exec/cuda/kernel.h"

namespace tessera::exec::cuda {

using Bf16 = __nv_bfloat16;
using F16 = __half;
// The types of mixed precision: two bytes, f32 beside them.
template <class T>
inline constexpr bool is_low = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

// The type in which elements of type T are computed, and in which statistics beside them are kept.
template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
__device__ __forceinline__ Wide<T> widen(T x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __bfloat162float(x);
  else if constexpr (std::is_same_v<T, F16>)
    return __half2float(x);
  else
    return static_cast<Wide<T>>(x);
}
// Rounded to nearest, ties to even.
template <class T, class W>
__device__ __forceinline__ T narrow(W x) {
  if constexpr (std::is_same_v<T, Bf16>)
    return __float2bfloat16_rn(static_cast<float>(x));
  else if constexpr (std::is_same_v<T, F16>)
    return __float2half_rn(static_cast<float>(x));
  else
    return static_cast<T>(x);
}

// `count` neighbouring elements that are read or written by one instruction; the address must be a
// multiple of their size.
template <class T, int count>
struct alignas(sizeof(T) * count) Pack {
  T at[count];
};
// Elements of one access. Doubles are for checking and go one by one, which saves the compiler a
// second form of every kernel.
template <class T>
inline constexpr int per_16_bytes = std::is_same_v<T, double> ? 1
                                                              : 16 / static_cast<int>(sizeof(T));

template <class T>
__device__ __forceinline__ T warp_sum(T x) {
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}
template <class T>
__device__ __forceinline__ T warp_max(T x) {
  for (int lane = 16; lane > 0; lane /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, lane));
  return x;
}
// Every thread gets the sum over the block, whose size is a multiple of 32. Two calls in a row need
// no barrier between them.
template <class T>
__device__ __forceinline__ T block_sum(T x) {
  __shared__ T parts[32];
  x = warp_sum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  return warp_sum(lane < warps ? parts[lane] : T(0));
}
template <class T>
__device__ __forceinline__ T block_max(T x) {
  __shared__ T parts[32];
  x = warp_max(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  const int warps = static_cast<int>(blockDim.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  return warp_max(lane < warps ? parts[lane] : parts[0]);
}

// Calls visit(T{}) with the element type of a floating dtype.
template <class Visit>
void with_float(ir::DType dtype, Visit&& visit) {
  switch (dtype) {
    case ir::DType::f64:
      return visit(double{});
    case ir::DType::f32:
      return visit(float{});
    case ir::DType::bf16:
      return visit(Bf16{});
    case ir::DType::f16:
      return visit(F16{});
    default:
      CHECK(false, "a CUDA kernel got " + std::string(ir::name(dtype)) +
                       " elements where floating ones belong");
  }
}

// Blocks of `threads` threads for `items`, no more than `most`; kernels walk with a stride of the
// grid.
inline unsigned grid_for(std::int64_t items, int threads, std::int64_t most = 1 << 20) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + threads - 1) / threads, 1, most));
}
// The first item of this thread, and the stride of the grid.
__device__ __forceinline__ std::int64_t grid_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ std::int64_t grid_threads() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace tessera::exec::cuda
