// Parts that layer norm and its gradient share: which kernel a row length takes. Rows of up to
// `widest` columns that are read by 16 bytes stay in registers (a warp for each, or a block); any
// other row is walked several times by a block.
#pragma once

#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda::norm {

struct Rows {
  std::int64_t count = 0, width = 0;
};
inline Rows rows_of(const ir::Shape& shape) {
  const std::int64_t width = shape.back();
  return {width == 0 ? 0 : ir::elements(shape) / width, width};
}

inline constexpr int row_threads = 128;  // of a block of a kernel that keeps rows in registers
inline constexpr int plain_threads = 256;
inline constexpr std::int64_t widest = row_threads * 32;

// Calls visit(group, per_thread) with the threads that share a row and the columns each of them
// holds, both as constants.
template <class Visit>
void with_group(std::int64_t width, Visit&& visit) {
  using std::integral_constant;
  if (width <= 256) return visit(integral_constant<int, 32>{}, integral_constant<int, 8>{});
  if (width <= 768) return visit(integral_constant<int, 32>{}, integral_constant<int, 24>{});
  visit(integral_constant<int, row_threads>{}, integral_constant<int, 32>{});
}

template <int group, class W>
__device__ __forceinline__ W group_sum(W x) {
  if constexpr (group == 32)
    return warp_sum(x);
  else
    return block_sum(x);
}

// The columns of a row that this thread of its group holds: vectors of 16 bytes, `group` apart.
// Elements behind the end of the row are 0.
template <class T, int group, int per_thread>
struct Columns {
  static constexpr int vector = per_16_bytes<T>, vectors = per_thread / vector;

  static __device__ __forceinline__ int column(int k) {
    return (static_cast<int>(threadIdx.x) % group + group * k) * vector;
  }
  // U, here and below: T, or a type that takes less room.
  template <class U>
  static __device__ __forceinline__ void load(float (&v)[per_thread], const U* row, int width) {
#pragma unroll
    for (int k = 0; k < vectors; ++k) {
      Pack<U, vector> pack{};
      if (column(k) < width) pack = *reinterpret_cast<const Pack<U, vector>*>(row + column(k));
#pragma unroll
      for (int i = 0; i < vector; ++i) v[k * vector + i] = widen(pack.at[i]);
    }
  }
  template <class U>
  static __device__ __forceinline__ void store(const float (&v)[per_thread], U* row, int width) {
#pragma unroll
    for (int k = 0; k < vectors; ++k) {
      Pack<U, vector> pack;
#pragma unroll
      for (int i = 0; i < vector; ++i) pack.at[i] = narrow<U>(v[k * vector + i]);
      if (column(k) < width) *reinterpret_cast<Pack<U, vector>*>(row + column(k)) = pack;
    }
  }
  // The same columns of a vector of floats, a whole pack of columns at a time.
  static __device__ __forceinline__ void load_floats(float (&v)[vector], const float* x, int k) {
#pragma unroll
    for (int i = 0; i < vector; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(x + column(k) + i);
      v[i] = four.x;
      v[i + 1] = four.y;
      v[i + 2] = four.z;
      v[i + 3] = four.w;
    }
  }
};

// Calls visit(U{}) with the type of a result beside operands of T: T itself, or beside f32 one that
// takes less room.
template <class T, class Visit>
void with_result(ir::DType dtype, Visit&& visit) {
  if constexpr (std::is_same_v<T, float>) {
    if (dtype == ir::DType::bf16) return visit(Bf16{});
    if (dtype == ir::DType::f16) return visit(F16{});
  }
  visit(T{});
}

// Whether rows of this width at these addresses can stay in registers.
template <class T>
bool in_registers(std::int64_t width, std::initializer_list<const void*> addresses) {
  bool fits = !std::is_same_v<T, double> && width <= widest && width % per_16_bytes<T> == 0;
  for (const void* address : addresses) fits = fits && aligned_16(address);
  return fits;
}

}  // namespace tessera::exec::cuda::norm
