// From one element type to another. f32 to and from bf16 or f16, 8 elements a thread, is what mixed
// precision runs on (floor: 6 bytes an element); the other pairs are plain loops.
#include "exec/cuda/elements.cuh"
#include "exec/cuda/kernels/move.h"

namespace tessera::exec::cuda {
namespace {

template <class Visit>
void with_any(ir::DType dtype, Visit&& visit) {
  switch (dtype) {
    case ir::DType::i64:
      return visit(std::int64_t{});
    case ir::DType::i32:
      return visit(std::int32_t{});
    case ir::DType::u8:
      return visit(std::uint8_t{});
    default:
      return with_float(dtype, visit);
  }
}

// As the reference: bf16 and f16 are reached and left through float.
template <class To, class From>
__device__ __forceinline__ To converted(From x) {
  if constexpr (is_low<To>)
    return narrow<To>(is_low<From> ? static_cast<float>(widen(x)) : static_cast<float>(x));
  else if constexpr (is_low<From>)
    return static_cast<To>(widen(x));
  else
    return static_cast<To>(x);
}

// The element type of x is told at run time: all threads take the same branch, and there is one
// kernel for each type of y.
template <class To>
__global__ void cast_plain(const void* x, ir::DType from, To* y, std::int64_t n) {
  for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const auto as = [&]<class From>(From) { return converted<To>(static_cast<const From*>(x)[i]); };
    switch (from) {
      case ir::DType::f64:
        y[i] = as(double{});
        break;
      case ir::DType::f32:
        y[i] = as(float{});
        break;
      case ir::DType::bf16:
        y[i] = as(Bf16{});
        break;
      case ir::DType::f16:
        y[i] = as(F16{});
        break;
      case ir::DType::i64:
        y[i] = as(std::int64_t{});
        break;
      case ir::DType::i32:
        y[i] = as(std::int32_t{});
        break;
      case ir::DType::u8:
        y[i] = as(std::uint8_t{});
        break;
      default:  // the op takes no quantised types
        break;
    }
  }
}

// 8 elements: two accesses of 16 bytes on the f32 side, one on the other.
struct Wide8 {
  Pack<float, 4> half[2];
};
template <class Low>
__global__ void __launch_bounds__(256) cast_down(const float* x, Low* y, std::int64_t n) {
  const std::int64_t packs = n / 8;
  for (std::int64_t p = grid_thread(); p < packs; p += grid_threads()) {
    const Wide8 in = reinterpret_cast<const Wide8*>(x)[p];
    Pack<Low, 8> out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.at[i] = narrow<Low>(in.half[i / 4].at[i % 4]);
    reinterpret_cast<Pack<Low, 8>*>(y)[p] = out;
  }
  if (const std::int64_t i = packs * 8 + grid_thread(); i < n) y[i] = narrow<Low>(x[i]);
}
template <class Low>
__global__ void __launch_bounds__(256) cast_up(const Low* x, float* y, std::int64_t n) {
  const std::int64_t packs = n / 8;
  for (std::int64_t p = grid_thread(); p < packs; p += grid_threads()) {
    const Pack<Low, 8> in = reinterpret_cast<const Pack<Low, 8>*>(x)[p];
    Wide8 out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.half[i / 4].at[i % 4] = widen(in.at[i]);
    reinterpret_cast<Wide8*>(y)[p] = out;
  }
  if (const std::int64_t i = packs * 8 + grid_thread(); i < n) y[i] = widen(x[i]);
}

}  // namespace

void run_cast(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  const std::int64_t n = y.elements();
  if (n == 0) return;
  if (x.dtype == y.dtype) return copy_bytes(call.stream, y.data, x.data, n * ir::size_of(y.dtype));
  const bool packs = aligned_16(x.data) && aligned_16(y.data);
  const unsigned grid = grid_for(n / 8, 256);
  const auto by_8 = [&]<class Low>(Low) {
    if (x.dtype == ir::DType::f32)
      cast_down<<<grid, 256, 0, call.stream>>>(x.as<float>(), y.as<Low>(), n);
    else
      cast_up<<<grid, 256, 0, call.stream>>>(x.as<Low>(), y.as<float>(), n);
    launched("cast by 8 elements");
  };
  const ir::DType low = x.dtype == ir::DType::f32 ? y.dtype : x.dtype;
  if (packs && (x.dtype == ir::DType::f32 || y.dtype == ir::DType::f32) && ir::is_low(low))
    return low == ir::DType::bf16 ? by_8(Bf16{}) : by_8(F16{});
  with_any(y.dtype, [&]<class To>(To) {
    cast_plain<<<grid_for(n, 256), 256, 0, call.stream>>>(x.data, x.dtype, y.as<To>(), n);
  });
  launched("cast_plain");
}

}  // namespace tessera::exec::cuda
