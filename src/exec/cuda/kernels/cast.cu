// From one element type to another. f32 to and from bf16, 8 elements a thread, is what mixed
// precision runs on (floor: 6 bytes an element); the other pairs are plain loops.
#include "exec/cuda/elements.cuh"
#include "exec/cuda/kernels/move.h"

namespace tessera::exec::cuda {
namespace {

template <class Visit>
void with_any(ir::DType dtype, Visit&& visit) {
  switch (dtype) {
    case ir::DType::f64:
      return visit(double{});
    case ir::DType::f32:
      return visit(float{});
    case ir::DType::bf16:
      return visit(Bf16{});
    case ir::DType::i64:
      return visit(std::int64_t{});
    case ir::DType::i32:
      return visit(std::int32_t{});
    case ir::DType::u8:
      return visit(std::uint8_t{});
  }
}

// As the reference: bf16 is reached and left through float.
template <class To, class From>
__device__ __forceinline__ To converted(From x) {
  if constexpr (std::is_same_v<From, Bf16>)
    return static_cast<To>(__bfloat162float(x));
  else if constexpr (std::is_same_v<To, Bf16>)
    return __float2bfloat16_rn(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

template <class To, class From>
__global__ void cast_plain(const From* x, To* y, std::int64_t n) {
  for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) y[i] = converted<To>(x[i]);
}

// 8 elements: two accesses of 16 bytes on the f32 side, one on the other.
struct Wide8 {
  Pack<float, 4> half[2];
};
__global__ void __launch_bounds__(256) cast_down(const float* x, Bf16* y, std::int64_t n) {
  const std::int64_t packs = n / 8;
  for (std::int64_t p = grid_thread(); p < packs; p += grid_threads()) {
    const Wide8 in = reinterpret_cast<const Wide8*>(x)[p];
    Pack<Bf16, 8> out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.at[i] = __float2bfloat16_rn(in.half[i / 4].at[i % 4]);
    reinterpret_cast<Pack<Bf16, 8>*>(y)[p] = out;
  }
  if (const std::int64_t i = packs * 8 + grid_thread(); i < n) y[i] = __float2bfloat16_rn(x[i]);
}
__global__ void __launch_bounds__(256) cast_up(const Bf16* x, float* y, std::int64_t n) {
  const std::int64_t packs = n / 8;
  for (std::int64_t p = grid_thread(); p < packs; p += grid_threads()) {
    const Pack<Bf16, 8> in = reinterpret_cast<const Pack<Bf16, 8>*>(x)[p];
    Wide8 out;
#pragma unroll
    for (int i = 0; i < 8; ++i) out.half[i / 4].at[i % 4] = __bfloat162float(in.at[i]);
    reinterpret_cast<Wide8*>(y)[p] = out;
  }
  if (const std::int64_t i = packs * 8 + grid_thread(); i < n) y[i] = __bfloat162float(x[i]);
}

}  // namespace

void run_cast(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  const std::int64_t n = y.elements();
  if (n == 0) return;
  if (x.dtype == y.dtype) return copy_bytes(call.stream, y.data, x.data, n * ir::size_of(y.dtype));
  const bool packs = aligned_16(x.data) && aligned_16(y.data);
  if (packs && x.dtype == ir::DType::f32 && y.dtype == ir::DType::bf16) {
    cast_down<<<grid_for(n / 8, 256), 256, 0, call.stream>>>(x.as<float>(), y.as<Bf16>(), n);
    return launched("cast_down");
  }
  if (packs && x.dtype == ir::DType::bf16 && y.dtype == ir::DType::f32) {
    cast_up<<<grid_for(n / 8, 256), 256, 0, call.stream>>>(x.as<Bf16>(), y.as<float>(), n);
    return launched("cast_up");
  }
  with_any(x.dtype, [&]<class From>(From) {
    with_any(y.dtype, [&]<class To>(To) {
      if constexpr (!std::is_same_v<From, To>)
        cast_plain<To, From>
            <<<grid_for(n, 256), 256, 0, call.stream>>>(x.as<From>(), y.as<To>(), n);
    });
  });
  launched("cast_plain");
}

}  // namespace tessera::exec::cuda
