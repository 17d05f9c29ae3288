// Element by element. The floor of every kernel here is its bytes: operands read once, the result
// written once, 16 bytes an access and two accesses of each operand under way per thread.
// Convention: a thread reads its elements before it writes them, so results may lie over operands.
#include "exec/common/index.h"
#include "exec/cuda/kernels/gelu.cuh"
#include "exec/cuda/kernels/gelu_gradient.h"
#include "exec/cuda/kernels/index.cuh"
#include "exec/cuda/kernels/move.h"

namespace tessera::exec::cuda {
namespace {

constexpr int map_threads = 256, map_packs = 2;

// y = f(x), and for what is left of whole packs element by element.
template <class T, int width, class F>
__global__ void __launch_bounds__(map_threads) map_one(const T* x, T* y, std::int64_t n, F f) {
  using P = Pack<T, width>;
  const std::int64_t packs = n / width, tile = blockDim.x * map_packs;
  for (std::int64_t base = blockIdx.x * tile; base < packs; base += gridDim.x * tile) {
    P in[map_packs];
#pragma unroll
    for (int k = 0; k < map_packs; ++k)
      if (const std::int64_t p = base + k * blockDim.x + threadIdx.x; p < packs)
        in[k] = reinterpret_cast<const P*>(x)[p];
#pragma unroll
    for (int k = 0; k < map_packs; ++k)
      if (const std::int64_t p = base + k * blockDim.x + threadIdx.x; p < packs) {
#pragma unroll
        for (int i = 0; i < width; ++i) in[k].at[i] = narrow<T>(f(widen(in[k].at[i])));
        reinterpret_cast<P*>(y)[p] = in[k];
      }
  }
  if (const std::int64_t i = packs * width + grid_thread(); i < n) y[i] = narrow<T>(f(widen(x[i])));
}

// y = f(a, b)
template <class T, int width, class F>
__global__ void __launch_bounds__(map_threads)
    map_two(const T* a, const T* b, T* y, std::int64_t n, F f) {
  using P = Pack<T, width>;
  const std::int64_t packs = n / width, tile = blockDim.x * map_packs;
  for (std::int64_t base = blockIdx.x * tile; base < packs; base += gridDim.x * tile) {
    P left[map_packs], right[map_packs];
#pragma unroll
    for (int k = 0; k < map_packs; ++k)
      if (const std::int64_t p = base + k * blockDim.x + threadIdx.x; p < packs) {
        left[k] = reinterpret_cast<const P*>(a)[p];
        right[k] = reinterpret_cast<const P*>(b)[p];
      }
#pragma unroll
    for (int k = 0; k < map_packs; ++k)
      if (const std::int64_t p = base + k * blockDim.x + threadIdx.x; p < packs) {
#pragma unroll
        for (int i = 0; i < width; ++i)
          left[k].at[i] = narrow<T>(f(widen(left[k].at[i]), widen(right[k].at[i])));
        reinterpret_cast<P*>(y)[p] = left[k];
      }
  }
  if (const std::int64_t i = packs * width + grid_thread(); i < n)
    y[i] = narrow<T>(f(widen(a[i]), widen(b[i])));
}

// y = f(a, b at its own index). A pack of a meets a pack of b (step 1) or one element of it (0).
template <class T, int width, int step, class F>
__global__ void __launch_bounds__(map_threads)
    map_broadcast(const T* a, const T* b, T* y, std::int64_t n, const __grid_constant__ Index index,
                  F f) {
  using P = Pack<T, width>;
  constexpr int of_b = step == 0 ? 1 : width;
  const std::int64_t packs = n / width, tile = blockDim.x * map_packs;
  for (std::int64_t base = blockIdx.x * tile; base < packs; base += gridDim.x * tile) {
    P left[map_packs];
    Pack<T, of_b> right[map_packs];
#pragma unroll
    for (int k = 0; k < map_packs; ++k)
      if (const std::int64_t p = base + k * blockDim.x + threadIdx.x; p < packs) {
        left[k] = reinterpret_cast<const P*>(a)[p];
        right[k] = *reinterpret_cast<const Pack<T, of_b>*>(b + index.offset(p * width));
      }
#pragma unroll
    for (int k = 0; k < map_packs; ++k)
      if (const std::int64_t p = base + k * blockDim.x + threadIdx.x; p < packs) {
#pragma unroll
        for (int i = 0; i < width; ++i)
          left[k].at[i] = narrow<T>(f(widen(left[k].at[i]), widen(right[k].at[step == 0 ? 0 : i])));
        reinterpret_cast<P*>(y)[p] = left[k];
      }
  }
}

unsigned map_grid(std::int64_t n, int width) {
  return grid_for(n / width, map_threads * map_packs);
}

// Operation: F<T> is built from the call.
template <template <class> class F>
void run_map_one(const Call& call, auto... parameters) {
  const Tensor &x = call.in[0], &y = call.out[0];
  const std::int64_t n = y.elements();
  if (n == 0) return;
  with_float(y.dtype, [&]<class T>(T) {
    constexpr int width = per_16_bytes<T>;
    const F<T> f{static_cast<Wide<T>>(parameters)...};
    if (aligned_16(x.data) && aligned_16(y.data))
      map_one<T, width>
          <<<map_grid(n, width), map_threads, 0, call.stream>>>(x.as<T>(), y.as<T>(), n, f);
    else
      map_one<T, 1><<<map_grid(n, 1), map_threads, 0, call.stream>>>(x.as<T>(), y.as<T>(), n, f);
  });
  launched("map_one");
}

template <template <class> class F>
void run_map_two(const Call& call) {
  const Tensor &a = call.in[0], &b = call.in[1], &y = call.out[0];
  const std::int64_t n = y.elements();
  if (n == 0) return;
  with_float(y.dtype, [&]<class T>(T) {
    constexpr int width = per_16_bytes<T>;
    if (aligned_16(a.data) && aligned_16(b.data) && aligned_16(y.data))
      map_two<T, width><<<map_grid(n, width), map_threads, 0, call.stream>>>(a.as<T>(), b.as<T>(),
                                                                             y.as<T>(), n, F<T>{});
    else
      map_two<T, 1><<<map_grid(n, 1), map_threads, 0, call.stream>>>(a.as<T>(), b.as<T>(),
                                                                     y.as<T>(), n, F<T>{});
  });
  launched("map_two");
}

template <template <class> class F>
void run_broadcast_second(const Call& call) {
  const Walk& walk = call.once<Walk>([&] {
    const OperandLetters letters = parse_letters(call.attr<ir::Sig>().sig);
    std::vector<std::int64_t> stride;
    for (char letter : letters.out)
      stride.push_back(stride_of(letters.in[1], call.in[1].shape, letter));
    return Walk(call.out[0].shape, stride);
  });
  const Tensor &a = call.in[0], &b = call.in[1], &y = call.out[0];
  const std::int64_t n = y.elements();
  if (n == 0) return;
  if (walk.rank() == 0 || (walk.rank() == 1 && walk.stride[0] == 1)) return run_map_two<F>(call);
  const Index index(walk);
  with_float(y.dtype, [&]<class T>(T) {
    constexpr int width = per_16_bytes<T>;
    const bool packs = in_packs(walk, width) && aligned_16(a.data) && aligned_16(y.data);
    const auto launch = [&](auto kernel, int elements) {
      kernel<<<map_grid(n, elements), map_threads, 0, call.stream>>>(a.as<T>(), b.as<T>(),
                                                                     y.as<T>(), n, index, F<T>{});
    };
    if (packs && walk.inner_stride() == 0)
      launch(map_broadcast<T, width, 0, F<T>>, width);
    else if (packs && aligned_16(b.data))
      launch(map_broadcast<T, width, 1, F<T>>, width);
    else
      launch(map_broadcast<T, 1, 1, F<T>>, 1);
  });
  launched("map_broadcast");
}

#define FORMULA(name, arguments, formula)                       \
  template <class T>                                            \
  struct name {                                                 \
    using W = Wide<T>;                                          \
    __device__ W operator() arguments const { return formula; } \
  };
FORMULA(AddTwo, (W a, W b), a + b)
FORMULA(MulTwo, (W a, W b), a* b)
FORMULA(GeluErf, (W x), erf_gelu<T>(x))
FORMULA(GeluTanh, (W x), tanh_gelu<T>(x))
FORMULA(GeluErfGrad, (W x, W g), g* erf_gelu_slope<T>(x))
FORMULA(GeluTanhGrad, (W x, W g), g* tanh_gelu_slope<T>(x))
FORMULA(Relu, (W x), x < W(0) ? W(0) : x)
FORMULA(ReluGrad, (W y, W g), y > W(0) ? g : W(0))
#undef FORMULA
template <class T>
struct ScaleBy {
  Wide<T> factor;
  __device__ Wide<T> operator()(Wide<T> x) const { return factor * x; }
};

// y = flag != 0 ? a : b, in units of U; a copy onto itself is left out.
template <class U>
__global__ void select_units(const void* flag, ir::DType flag_type, const U* a, const U* b, U* y,
                             std::int64_t n) {
  bool set = false;
  switch (flag_type) {
    case ir::DType::f64:
      set = *static_cast<const double*>(flag) != 0;
      break;
    case ir::DType::f32:
      set = *static_cast<const float*>(flag) != 0;
      break;
    case ir::DType::bf16:
      set = widen(*static_cast<const Bf16*>(flag)) != 0;
      break;
    case ir::DType::f16:
      set = widen(*static_cast<const F16*>(flag)) != 0;
      break;
    case ir::DType::i64:
      set = *static_cast<const std::int64_t*>(flag) != 0;
      break;
    case ir::DType::i32:
      set = *static_cast<const std::int32_t*>(flag) != 0;
      break;
    case ir::DType::u8:
      set = *static_cast<const std::uint8_t*>(flag) != 0;
      break;
    default:  // a flag is no quantised element
      break;
  }
  const U* from = set ? a : b;
  if (from == y) return;
  for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) y[i] = from[i];
}

}  // namespace

void run_add(const Call& call) { run_broadcast_second<AddTwo>(call); }
void run_mul(const Call& call) { run_broadcast_second<MulTwo>(call); }
void run_scale(const Call& call) { run_map_one<ScaleBy>(call, call.attr<ir::Scale>().factor); }
void run_gelu(const Call& call) {
  call.attr<ir::Gelu>().tanh ? run_map_one<GeluTanh>(call) : run_map_one<GeluErf>(call);
}
void run_gelu_grad(const Call& call) {
  if (call.attr<ir::Gelu>().sums && call.out[1]) return gelu_grad_with_sums(call);
  call.attr<ir::Gelu>().tanh ? run_map_two<GeluTanhGrad>(call) : run_map_two<GeluErfGrad>(call);
}
void run_relu(const Call& call) { run_map_one<Relu>(call); }
void run_relu_grad(const Call& call) { run_map_two<ReluGrad>(call); }

void run_select(const Call& call) {
  const Tensor &flag = call.in[0], &a = call.in[1], &b = call.in[2], &y = call.out[0];
  const std::int64_t bytes = y.elements() * ir::size_of(y.dtype);
  if (bytes == 0) return;
  with_unit(common_unit({a.data, b.data, y.data}, {bytes}), [&]<class U>(U) {
    const std::int64_t n = bytes / static_cast<std::int64_t>(sizeof(U));
    select_units<<<grid_for(n, 256), 256, 0, call.stream>>>(flag.data, flag.dtype, a.as<U>(),
                                                            b.as<U>(), y.as<U>(), n);
  });
  launched("select_units");
}

void run_mark(const Call& call) {
  const Tensor& y = call.out[0];
  copy_bytes(call.stream, y.data, call.in[0].data, y.elements() * ir::size_of(y.dtype));
}
void run_copy(const Call& call) { run_mark(call); }

}  // namespace tessera::exec::cuda
