// The softmax family over the last dim. A warp has a row of up to 1024 elements in registers, 32
// neighbouring ones at a time (rows need no alignment); a block walks over a longer one several
// times. Floor: bytes of operands and result.
#include <limits>

#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {

namespace {

enum class Soft { softmax, softmax_grad, log_softmax, log_softmax_grad };
constexpr bool is_gradient(Soft op) {
  return op == Soft::softmax_grad || op == Soft::log_softmax_grad;
}

constexpr int soft_threads = 256;

// An element's term in the sum of its row: u is x or y, g the gradient, top the row's maximum.
template <Soft op, class W>
__device__ __forceinline__ W soft_term(W u, W g, W top) {
  if constexpr (op == Soft::softmax_grad)
    return g * u;
  else if constexpr (op == Soft::log_softmax_grad)
    return g;
  else
    return exp(u - top);
}
template <Soft op, class W>
__device__ __forceinline__ W soft_result(W u, W g, W top, W sum) {
  if constexpr (op == Soft::softmax)
    return exp(u - top) / sum;
  else if constexpr (op == Soft::log_softmax)
    return u - top - log(sum);
  else if constexpr (op == Soft::softmax_grad)
    return u * (g - sum);
  else
    return g - exp(u) * sum;
}

template <Soft op, class T, int per_lane>
__global__ void __launch_bounds__(soft_threads)
    soft_warp_kernel(const T* x, const T* gradient, T* z, std::int64_t rows, int width) {
  using W = Wide<T>;
  const std::int64_t row = grid_thread() / 32, at = row * width;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (row >= rows) return;
  const W lowest = -std::numeric_limits<W>::infinity();
  W u[per_lane], g[per_lane], top = lowest, sum = 0;
#pragma unroll
  for (int i = 0; i < per_lane; ++i) {
    const int c = lane + 32 * i;
    u[i] = c < width ? widen(x[at + c]) : lowest;
    g[i] = is_gradient(op) && c < width ? widen(gradient[at + c]) : W(0);
    top = max(top, u[i]);
  }
  if constexpr (!is_gradient(op)) top = warp_max(top);
#pragma unroll
  for (int i = 0; i < per_lane; ++i)
    if (lane + 32 * i < width) sum += soft_term<op>(u[i], g[i], top);
  sum = warp_sum(sum);
#pragma unroll
  for (int i = 0; i < per_lane; ++i)
    if (lane + 32 * i < width)
      z[at + lane + 32 * i] = narrow<T>(soft_result<op>(u[i], g[i], top, sum));
}

template <Soft op, class T>
__global__ void __launch_bounds__(soft_threads)
    soft_block_kernel(const T* x, const T* gradient, T* z, std::int64_t rows, std::int64_t width) {
  using W = Wide<T>;
  const auto g = [&](std::int64_t i) { return is_gradient(op) ? widen(gradient[i]) : W(0); };
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::int64_t first = row * width + threadIdx.x, end = (row + 1) * width;
    W top = -std::numeric_limits<W>::infinity(), sum = 0;
    if constexpr (!is_gradient(op)) {
      for (std::int64_t i = first; i < end; i += soft_threads) top = max(top, widen(x[i]));
      top = block_max(top);
    }
    for (std::int64_t i = first; i < end; i += soft_threads)
      sum += soft_term<op>(widen(x[i]), g(i), top);
    sum = block_sum(sum);
    for (std::int64_t i = first; i < end; i += soft_threads)
      z[i] = narrow<T>(soft_result<op>(widen(x[i]), g(i), top, sum));
  }
}

template <Soft op>
void run_soft(const Call& call) {
  const std::int64_t width = call.in[0].shape.back(),
                     rows = width == 0 ? 0 : call.in[0].elements() / width;
  if (rows == 0) return;
  with_float(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = call.in[0].as<T>();
    const T* g = is_gradient(op) ? call.in[1].as<T>() : nullptr;
    T* z = call.out[0].as<T>();
    const unsigned warps = grid_for(rows * 32, soft_threads, 0x7fffffff);
    if constexpr (!std::is_same_v<T, double>) {
      if (width <= 256)
        soft_warp_kernel<op, T, 8>
            <<<warps, soft_threads, 0, call.stream>>>(x, g, z, rows, static_cast<int>(width));
      else if (width <= 1024)
        soft_warp_kernel<op, T, 32>
            <<<warps, soft_threads, 0, call.stream>>>(x, g, z, rows, static_cast<int>(width));
      if (width <= 1024) return launched("softmax");
    }
    soft_block_kernel<op, T>
        <<<grid_for(rows, 1), soft_threads, 0, call.stream>>>(x, g, z, rows, width);
    launched("softmax of long rows");
  });
}

}  // namespace

void run_softmax(const Call& call) { run_soft<Soft::softmax>(call); }
void run_softmax_grad(const Call& call) { run_soft<Soft::softmax_grad>(call); }
void run_log_softmax(const Call& call) { run_soft<Soft::log_softmax>(call); }
void run_log_softmax_grad(const Call& call) { run_soft<Soft::log_softmax_grad>(call); }

}  // namespace tessera::exec::cuda
