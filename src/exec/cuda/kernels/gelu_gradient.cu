// gelu_grad with the sum of its result over rows, the gradient of the bias before the activation. A
// thread owns `width` neighbouring columns of every eighth row of a part of the rows; parts lie in
// the workspace [parts, c] and are added in order. What is added up is what was written, rounded.
// Floor: bytes of x, g and dx.
#include "exec/cuda/attention/slices.cuh"
#include "exec/cuda/kernels/gelu.cuh"
#include "exec/cuda/kernels/gelu_gradient.h"

namespace tessera::exec::cuda {
namespace {

constexpr int lanes = 32, lines = 8;

// In the type T; bf16 and f16 two at a time, which is one instruction.
template <class T, class W, int width>
__device__ __forceinline__ Pack<T, width> rounded(const Pack<W, width>& x) {
  Pack<T, width> out;
  if constexpr (is_low<T> && width % 2 == 0) {
#pragma unroll
    for (int i = 0; i < width; i += 2) {
      if constexpr (std::is_same_v<T, Bf16>) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(x.at[i], x.at[i + 1]);
        out.at[i] = two.x;
        out.at[i + 1] = two.y;
      } else {
        const __half2 two = __floats2half2_rn(x.at[i], x.at[i + 1]);
        out.at[i] = two.x;
        out.at[i + 1] = two.y;
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < width; ++i) out.at[i] = narrow<T>(x.at[i]);
  }
  return out;
}

template <class T, int width, bool tanh>
__global__ void __launch_bounds__(lanes* lines)
    gelu_grad_columns(const T* x, const T* g, T* dx, Wide<T>* partial, std::int64_t rows,
                      std::int64_t columns) {
  using P = Pack<T, width>;
  using W = Wide<T>;
  __shared__ Pack<W, width> sums[lines][lanes];
  const int lane = static_cast<int>(threadIdx.x), line = static_cast<int>(threadIdx.y);
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * lanes + lane) * width;
  const std::int64_t part = blockIdx.y, parts = gridDim.y;
  const std::int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
  Pack<W, width> sum{};
  if (column < columns)
#pragma unroll 2
    for (std::int64_t row = begin + line; row < end; row += lines) {
      const std::int64_t at = row * columns + column;
      const P at_x = *reinterpret_cast<const P*>(x + at);
      const P at_g = *reinterpret_cast<const P*>(g + at);
      Pack<W, width> slope;
#pragma unroll
      for (int i = 0; i < width; ++i) {
        const W value = widen(at_x.at[i]);
        slope.at[i] =
            widen(at_g.at[i]) * (tanh ? tanh_gelu_slope<T>(value) : erf_gelu_slope<T>(value));
      }
      const P out = rounded<T>(slope);
#pragma unroll
      for (int i = 0; i < width; ++i) sum.at[i] += widen(out.at[i]);
      *reinterpret_cast<P*>(dx + at) = out;
    }
  sums[line][lane] = sum;
  __syncthreads();
  if (line != 0 || column >= columns) return;
  for (int other = 1; other < lines; ++other)
#pragma unroll
    for (int i = 0; i < width; ++i) sum.at[i] += sums[other][lane].at[i];
  for (int i = 0; i < width; ++i) partial[part * columns + column + i] = sum.at[i];
}

// Enough blocks to fill the card several times, of at least 64 rows.
std::int64_t parts_of(std::int64_t rows, std::int64_t columns, const Limits& limits) {
  const std::int64_t blocks = std::max<std::int64_t>(1, columns / (lanes * 8));
  return std::clamp<std::int64_t>(24 * limits.multiprocessors / blocks, 1,
                                  std::min<std::int64_t>(65535, (rows + 63) / 64));
}

template <class T, int width, bool tanh>
void launch(const Call& call, std::int64_t rows, std::int64_t columns) {
  const std::int64_t parts = parts_of(rows, columns, call.context.limits);
  CHECK(call.workspace_bytes >= parts * columns * static_cast<std::int64_t>(sizeof(Wide<T>)),
        "gelu_grad: workspace too small");
  const dim3 grid(grid_for(columns, lanes * width), static_cast<unsigned>(parts));
  gelu_grad_columns<T, width, tanh><<<grid, dim3(lanes, lines), 0, call.stream>>>(
      call.in[0].as<T>(), call.in[1].as<T>(), call.out[0].as<T>(), call.scratch<Wide<T>>(), rows,
      columns);
  launched("gelu_grad with its sums");
  add_slices(call.scratch<Wide<T>>(), parts, columns, columns, call.out[1].as<Wide<T>>(),
             call.stream);
}

}  // namespace

std::int64_t workspace_gelu_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                 std::span<const ir::Type>, const Limits& limits) {
  if (!std::get<ir::Gelu>(attrs).sums || in[0].elements() == 0) return 0;
  const std::int64_t columns = in[0].shape.back();
  return parts_of(in[0].elements() / columns, columns, limits) * columns *
         (in[0].dtype == ir::DType::f64 ? 8 : 4);
}

void gelu_grad_with_sums(const Call& call) {
  const std::int64_t columns = call.out[1].elements(), n = call.in[0].elements();
  if (columns == 0) return;
  if (n == 0) {
    must(::cudaMemsetAsync(call.out[1].data, 0, columns * ir::size_of(call.out[1].dtype),
                           call.stream),
         "clear a sum");
    return;
  }
  const bool packs = aligned_16(call.in[0].data) && aligned_16(call.in[1].data) &&
                     aligned_16(call.out[0].data),
             tanh = call.attr<ir::Gelu>().tanh;
  with_float(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int most = per_16_bytes<T>;
    const auto run = [&](auto form) {
      if (packs && columns % most == 0)
        launch<T, most, form>(call, n / columns, columns);
      else
        launch<T, 1, form>(call, n / columns, columns);
    };
    tanh ? run(std::true_type{}) : run(std::false_type{});
  });
}

}  // namespace tessera::exec::cuda
