// Index arithmetic on the card: division by a fixed extent without a division, and the walk of
// exec/common/walk.h as a small value that a kernel takes as a parameter. Convention: strides and
// offsets count elements.
#pragma once

#include <initializer_list>
#include <string>

#include "exec/common/walk.h"
#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {

inline constexpr int most_dims = 8;  // of a walk, after merging

// n / by. Below 2^31 it is a product, a sum and a shift (Granlund and Montgomery 1994).
struct Divider {
  std::int64_t by = 1;
  std::uint32_t magic = 1;
  int shift = 0;

  Divider() = default;
  explicit Divider(std::int64_t extent) : by(extent) {
    if (by < 1 || by >= std::int64_t{1} << 31) return;
    while ((std::int64_t{1} << shift) < by) ++shift;
    const auto over = static_cast<std::uint64_t>((std::int64_t{1} << shift) - by);
    magic = static_cast<std::uint32_t>((over << 32) / static_cast<std::uint64_t>(by) + 1);
  }
  __device__ __forceinline__ std::int64_t operator()(std::int64_t n) const {
    if (((n | by) >> 31) != 0) return n / by;
    const auto small = static_cast<std::uint32_t>(n);
    return (__umulhi(small, magic) + small) >> shift;
  }
};

// The dims of a dense tensor beside the strides that its index has in another one.
struct Index {
  int rank = 0;
  std::int64_t stride[most_dims] = {};
  Divider extent[most_dims];

  Index() = default;
  explicit Index(const Walk& walk) : rank(static_cast<int>(walk.rank())) {
    CHECK(rank <= most_dims, "a CUDA kernel walks " + std::to_string(most_dims) +
                                 " dims that cannot be merged, not " + std::to_string(rank));
    for (int i = 0; i < rank; ++i) {
      extent[i] = Divider(walk.extent[static_cast<std::size_t>(i)]);
      stride[i] = walk.stride[static_cast<std::size_t>(i)];
    }
  }
  // The offset of the other tensor's element at index n of the dense one.
  __device__ __forceinline__ std::int64_t offset(std::int64_t n) const {
    std::int64_t at = 0;
    for (int i = rank - 1; i > 0; --i) {
      const std::int64_t rest = extent[i](n);
      at += (n - rest * extent[i].by) * stride[i];
      n = rest;
    }
    return rank > 0 ? at + n * stride[0] : 0;
  }
};

// Whether `width` neighbours of the dense tensor, from a multiple of it on, are neighbours in the
// other one too (or one element there, where the inner stride is 0).
inline bool in_packs(const Walk& walk, int width) {
  if (walk.rank() == 0 || walk.inner() % width != 0) return false;
  if (walk.inner_stride() == 0) return true;
  bool whole = walk.inner_stride() == 1;
  for (std::size_t i = 0; i + 1 < walk.rank(); ++i) whole = whole && walk.stride[i] % width == 0;
  return whole;
}

// Whether n elements of all of these can be read and written 16 bytes at a time, without a rest;
// absent ones do not count.
template <class T>
bool in_16_bytes(std::int64_t n, std::initializer_list<const T*> arrays) {
  bool all = n % per_16_bytes<T> == 0;
  for (const T* array : arrays) all = all && aligned_16(array);
  return all;
}

// Calls visit(T{}) for ops that are never run in a low precision.
template <class Visit>
void with_wide(ir::DType dtype, Visit&& visit) {
  if (dtype == ir::DType::f64) return visit(double{});
  CHECK(dtype == ir::DType::f32,
        "a CUDA kernel got " + std::string(ir::name(dtype)) + " elements where f32 or f64 belong");
  visit(float{});
}

}  // namespace tessera::exec::cuda
