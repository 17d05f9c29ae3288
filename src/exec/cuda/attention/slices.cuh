// The second half of a sum over many rows or samples: partial sums, one for each slice of the work,
// are added in the same order in every run.
#pragma once

#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {

inline constexpr int slice_columns = 32, slice_groups = 32;

// z[i] = sum over slices of x[slice * stride + i]: group g adds slices g, g + groups, ..., then the
// groups are added in order.
template <class W>
__global__ void __launch_bounds__(slice_columns* slice_groups)
    add_slices_kernel(const W* x, std::int64_t slices, std::int64_t stride, std::int64_t n, W* z) {
  __shared__ W parts[slice_groups][slice_columns];
  const int column = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * slice_columns + column;
  W sum = 0;
  if (i < n)
    for (std::int64_t slice = group; slice < slices; slice += slice_groups)
      sum += x[slice * stride + i];
  parts[group][column] = sum;
  __syncthreads();
  if (group != 0 || i >= n) return;
  for (int g = 1; g < slice_groups; ++g) sum += parts[g][column];
  z[i] = sum;
}

template <class W>
void add_slices(const W* x, std::int64_t slices, std::int64_t stride, std::int64_t n, W* z,
                cudaStream_t stream) {
  if (n == 0) return;
  add_slices_kernel<W><<<grid_for(n, slice_columns, (std::int64_t{1} << 31) - 1),
                         dim3(slice_columns, slice_groups), 0, stream>>>(x, slices, stride, n, z);
  launched("the sum of slices");
}

}  // namespace tessera::exec::cuda
