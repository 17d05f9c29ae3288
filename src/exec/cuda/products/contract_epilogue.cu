// One pass over the result of a contraction: addends by their strides, then the activation.
// Floor: the sum is read once, and what was asked for is written once; addends are small or read
// once. A thread has 16 bytes of the result where its last dim allows it, one element otherwise.
#include "exec/cuda/elements.cuh"
#include "exec/cuda/kernels/gelu.cuh"
#include "exec/cuda/products/contract.h"

namespace tessera::exec::cuda {
namespace {

template <class W>
__device__ __forceinline__ W load_as(const void* data, ir::DType dtype, std::int64_t at) {
  if (dtype == ir::DType::bf16) return static_cast<W>(widen(static_cast<const Bf16*>(data)[at]));
  if (dtype == ir::DType::f16) return static_cast<W>(widen(static_cast<const F16*>(data)[at]));
  if (dtype == ir::DType::f32) return static_cast<W>(static_cast<const float*>(data)[at]);
  return static_cast<W>(static_cast<const double*>(data)[at]);
}

// S: elements of the sum, T: of the results. `count` neighbours lie in one row of the last dim.
template <class S, class T, int count>
__global__ void __launch_bounds__(256)
    finish_kernel(const __grid_constant__ Finish f, std::int64_t items) {
  using W = Wide<T>;
  for (std::int64_t item = grid_thread(); item < items; item += grid_threads()) {
    const std::int64_t first = item * count;
    const auto sum = *reinterpret_cast<const Pack<S, count>*>(static_cast<const S*>(f.sum) + first);
    W z[count];
#pragma unroll
    for (int j = 0; j < count; ++j) z[j] = static_cast<W>(widen(sum.at[j]));
    if (f.addend_count > 0) {
      std::int64_t offset[most_addends] = {}, index = first;
#pragma unroll 1
      for (int d = f.dims - 1; d >= 0; --d) {
        const std::int64_t step = index % f.extents[d];
        index /= f.extents[d];
#pragma unroll
        for (int a = 0; a < most_addends; ++a) offset[a] += step * f.addends[a].strides[d];
      }
#pragma unroll
      for (int a = 0; a < most_addends; ++a) {
        if (a >= f.addend_count) continue;
        const std::int64_t along = f.addends[a].strides[f.dims - 1];
#pragma unroll
        for (int j = 0; j < count; ++j) {
          const W with = load_as<W>(f.addends[a].data, f.addends[a].dtype, offset[a] + j * along);
          z[j] = a < f.scale_count ? z[j] * with : z[j] + with;
        }
      }
    }
    Pack<T, count> out;
    if (f.before) {
#pragma unroll
      for (int j = 0; j < count; ++j) out.at[j] = narrow<T>(z[j]);
      reinterpret_cast<Pack<T, count>*>(f.before)[item] = out;
    }
    if (!f.y) continue;
#pragma unroll
    for (int j = 0; j < count; ++j)
      out.at[j] = narrow<T>(f.act == Act::gelu        ? erf_gelu<T>(z[j])
                            : f.act == Act::gelu_tanh ? tanh_gelu<T>(z[j])
                                                      : z[j]);
    reinterpret_cast<Pack<T, count>*>(f.y)[item] = out;
  }
}

// GELU alone, of what the product has left; two packs a thread are on their way at once.
template <class S, class T, int count>
__global__ void __launch_bounds__(256) gelu_kernel(const S* sum, T* y, std::int64_t items) {
  constexpr int each = 2;
  const std::int64_t first = std::int64_t{blockIdx.x} * each * 256 + threadIdx.x;
  Pack<S, count> in[each];
#pragma unroll
  for (int k = 0; k < each; ++k)
    if (first + k * 256 < items)
      in[k] = reinterpret_cast<const Pack<S, count>*>(sum)[first + k * 256];
#pragma unroll
  for (int k = 0; k < each; ++k) {
    if (first + k * 256 >= items) return;
    Pack<T, count> out;
#pragma unroll
    for (int j = 0; j < count; ++j) {
      const auto z = static_cast<Wide<T>>(widen(in[k].at[j]));
      out.at[j] = narrow<T>(erf_gelu<T>(z));
    }
    reinterpret_cast<Pack<T, count>*>(y)[first + k * 256] = out;
  }
}

template <class S, class T>
void launch_finish(const Finish& f, cudaStream_t stream) {
  std::int64_t elements = 1;
  for (int d = 0; d < f.dims; ++d) elements *= f.extents[static_cast<std::size_t>(d)];
  if (elements == 0 || (!f.before && !f.y)) return;
  // 8 bf16 or f16, 4 f32 or one f64; of sums in f32 beside a low type that is two loads.
  constexpr int count = per_16_bytes<T>;
  constexpr std::uintptr_t bytes = sizeof(Pack<S, count>);
  const std::int64_t row = f.dims == 0 ? 1 : f.extents[static_cast<std::size_t>(f.dims - 1)];
  const bool packs = row % count == 0 && reinterpret_cast<std::uintptr_t>(f.sum) % bytes == 0 &&
                     aligned_16(f.before) && aligned_16(f.y);
  const std::int64_t items = packs ? elements / count : elements;
  const unsigned grid = grid_for(items, 256);
  const bool alone = f.act == Act::gelu && f.addend_count == 0 && !f.before;
  if (packs && alone)
    gelu_kernel<S, T, count><<<static_cast<unsigned>((items + 511) / 512), 256, 0, stream>>>(
        static_cast<const S*>(f.sum), static_cast<T*>(f.y), items);
  else if (packs)
    finish_kernel<S, T, count><<<grid, 256, 0, stream>>>(f, items);
  else
    finish_kernel<S, T, 1><<<grid, 256, 0, stream>>>(f, items);
  launched("contract (addends and activation)");
}

}  // namespace

void finish_contract(const Finish& finish, cudaStream_t stream) {
  CHECK(finish.dims >= 1 || finish.addend_count == 0, "contract: addends of a scalar have one dim");
  using enum ir::DType;
  if (finish.type == f64 && finish.sum_type == f64)
    launch_finish<double, double>(finish, stream);
  else if (finish.type == f32 && finish.sum_type == f32)
    launch_finish<float, float>(finish, stream);
  else if (finish.type == bf16 && finish.sum_type == bf16)
    launch_finish<Bf16, Bf16>(finish, stream);
  else if (finish.type == bf16 && finish.sum_type == f32)
    launch_finish<float, Bf16>(finish, stream);
  else if (finish.type == f16 && finish.sum_type == f16)
    launch_finish<F16, F16>(finish, stream);
  else if (finish.type == f16 && finish.sum_type == f32)
    launch_finish<float, F16>(finish, stream);
  else
    CHECK(false, "contract: sums in " + std::string(ir::name(finish.sum_type)) +
                     " do not become results in " + std::string(ir::name(finish.type)));
}

}  // namespace tessera::exec::cuda
