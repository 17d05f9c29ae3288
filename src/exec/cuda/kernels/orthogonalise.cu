// Gram-Schmidt in double by one block, each column twice: rounding cannot leave columns that are
// not orthogonal. The matrices have few columns, so what it costs are the barriers of the dot
// products; four of them are taken at once. A column in which nothing is left becomes a random one,
// as in the reference. Convention: a thread reads and writes the same rows of every column, so only
// the products need barriers.
#include "base/rng.h"
#include "exec/cuda/kernels/index.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int basis_threads = 512, most_draws = 64;

// As normal() of base/rng.h.
__device__ double normal_at(Key key, std::uint64_t counter) {
  const double u = (static_cast<double>(random_bits(key, 2 * counter) >> 11) + 0.5) * 0x1.0p-53;
  const double v = static_cast<double>(random_bits(key, 2 * counter + 1) >> 11) * 0x1.0p-53;
  return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

__device__ double length_of(const double* x, std::int64_t rows) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows; i += basis_threads) sum += x[i] * x[i];
  return sqrt(block_sum(sum));
}

// x -= its parts along `count` (at most 4) columns of the basis
__device__ void take_off(double* x, const double* basis, int count, std::int64_t rows) {
  double along[4] = {};
  for (std::int64_t i = threadIdx.x; i < rows; i += basis_threads) {
    const double value = x[i];
#pragma unroll
    for (int b = 0; b < 4; ++b)
      if (b < count) along[b] += value * basis[b * rows + i];
  }
#pragma unroll
  for (int b = 0; b < 4; ++b)
    if (b < count) along[b] = block_sum(along[b]);
  for (std::int64_t i = threadIdx.x; i < rows; i += basis_threads) {
    double value = x[i];
#pragma unroll
    for (int b = 0; b < 4; ++b)
      if (b < count) value -= along[b] * basis[b * rows + i];
    x[i] = value;
  }
}

// Leaves in x its part at right angles to all of the basis, with length 1; false when that part is
// next to nothing.
__device__ bool stands_apart(double* x, const double* basis, std::int64_t columns,
                             std::int64_t rows) {
  const double before = length_of(x, rows);
  for (int twice = 0; twice < 2; ++twice)
    for (std::int64_t b = 0; b < columns; b += 4)
      take_off(x, basis + b * rows, static_cast<int>(min(std::int64_t{4}, columns - b)), rows);
  const double after = length_of(x, rows);
  if (!(after > 1e-7 * before)) return false;  // NaN and 0 too
  for (std::int64_t i = threadIdx.x; i < rows; i += basis_threads) x[i] /= after;
  return true;
}

template <class T>
__global__ void __launch_bounds__(basis_threads)
    orthonormal_columns(const T* x, T* y, double* basis, std::int64_t rows, std::int64_t columns,
                        Key key) {
  for (std::int64_t c = 0; c < columns; ++c) {
    if (c >= rows) {  // there are no more directions than rows
      for (std::int64_t i = threadIdx.x; i < rows; i += basis_threads) y[i * columns + c] = T(0);
      continue;
    }
    double* column = basis + c * rows;
    for (std::int64_t i = threadIdx.x; i < rows; i += basis_threads)
      column[i] = static_cast<double>(x[i * columns + c]);
    // A draw fails almost never; the bound keeps a card from hanging.
    for (std::uint64_t draw = 0; !stands_apart(column, basis, c, rows) && draw < most_draws; ++draw)
      for (std::int64_t i = threadIdx.x; i < rows; i += basis_threads)
        column[i] = normal_at(key.with(static_cast<std::uint64_t>(c)).with(draw),
                              static_cast<std::uint64_t>(i));
    for (std::int64_t i = threadIdx.x; i < rows; i += basis_threads)
      y[i * columns + c] = static_cast<T>(column[i]);
  }
}

}  // namespace

void run_orthogonalise(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (y.elements() == 0) return;
  const Key key = Key{}.with(call.attr<ir::Stream>().stream).with("orthogonalise");
  with_wide(x.dtype, [&]<class T>(T) {
    orthonormal_columns<<<1, basis_threads, 0, call.stream>>>(
        x.as<T>(), y.as<T>(), call.scratch<double>(), x.shape[0], x.shape[1], key);
  });
  launched("orthonormal_columns");
}

std::int64_t workspace_orthogonalise(const ir::Attrs&, std::span<const ir::Type> in,
                                     std::span<const ir::Type>, const Limits&) {
  return in[0].shape[0] * std::min(in[0].shape[0], in[0].shape[1]) *
         static_cast<std::int64_t>(sizeof(double));
}

}  // namespace tessera::exec::cuda
