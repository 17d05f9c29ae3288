// layer_norm and add_norm: y = (x - mean) rstd gain + bias over the last dim, where add_norm first
// makes x + r. A row is read once and written once; the variance is that of the centred row.
// Floor: bytes of x (and r, and x + r) and y.
#include "exec/cuda/kernels/norm.cuh"
#include "exec/cuda/quantised/norm_bytes.h"

namespace tessera::exec::cuda {

namespace {

using norm::Columns;
using norm::Rows;

// R: of what is added; T, or the type of y.
template <class T, class R, class Y>
struct NormCall {
  const T* x;
  const R* r;  // null, or what is added to x
  const Wide<T>*gain, *bias;
  T* s;  // x + r; null: not wanted
  Y* y;  // the same
  Wide<T>*mean, *rstd;
  std::int64_t rows, width;
  Wide<T> eps;
};

template <class T, class R, class Y, int group, int per_thread>
__global__ void __launch_bounds__(norm::row_threads) norm_kernel(NormCall<T, R, Y> a) {
  using Own = Columns<T, group, per_thread>;
  constexpr int vector = Own::vector;
  const int width = static_cast<int>(a.width);
  const std::int64_t row = grid_thread() / group, at = row * a.width;
  if (row >= a.rows) return;  // a whole group: it is a warp or the block
  float v[per_thread];
  Own::load(v, a.x + at, width);
  if (a.r) {
    float r[per_thread];
    Own::load(r, a.r + at, width);
#pragma unroll
    for (int i = 0; i < per_thread; ++i) v[i] += r[i];
    if (a.s) Own::store(v, a.s + at, width);
  }
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < per_thread; ++i) sum += v[i];
  const float mean = norm::group_sum<group>(sum) / static_cast<float>(width);
#pragma unroll
  for (int k = 0; k < Own::vectors; ++k)
    if (Own::column(k) < width)
#pragma unroll
      for (int i = 0; i < vector; ++i) {
        const float centred = v[k * vector + i] - mean;
        squares += centred * centred;
      }
  squares = norm::group_sum<group>(squares);
  const float rstd = 1.0f / sqrtf(squares / static_cast<float>(width) + a.eps);
  if (threadIdx.x % group == 0) {
    if (a.mean) a.mean[row] = mean;
    if (a.rstd) a.rstd[row] = rstd;
  }
  if (!a.y) return;
#pragma unroll
  for (int k = 0; k < Own::vectors; ++k)
    if (Own::column(k) < width) {
      float gain[vector], bias[vector];
      Own::load_floats(gain, a.gain, k);
      Own::load_floats(bias, a.bias, k);
#pragma unroll
      for (int i = 0; i < vector; ++i)
        v[k * vector + i] = (v[k * vector + i] - mean) * rstd * gain[i] + bias[i];
    }
  Own::store(v, a.y + at, width);
}

// Any width and any address: three walks over the row. An element is read before it is written, by
// the thread that writes it.
template <class T, class R, class Y>
__global__ void __launch_bounds__(norm::plain_threads) norm_plain_kernel(NormCall<T, R, Y> a) {
  using W = Wide<T>;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* x = a.x + row * a.width;
    const R* r = a.r ? a.r + row * a.width : nullptr;
    const auto value = [&](std::int64_t i) { return r ? widen(x[i]) + widen(r[i]) : widen(x[i]); };
    W sum = 0, squares = 0;
    for (std::int64_t i = threadIdx.x; i < a.width; i += norm::plain_threads) sum += value(i);
    const W mean = block_sum(sum) / static_cast<W>(a.width);
    for (std::int64_t i = threadIdx.x; i < a.width; i += norm::plain_threads)
      squares += (value(i) - mean) * (value(i) - mean);
    const W rstd = W(1) / sqrt(block_sum(squares) / static_cast<W>(a.width) + a.eps);
    for (std::int64_t i = threadIdx.x; i < a.width; i += norm::plain_threads) {
      const W v = value(i);
      if (r && a.s) a.s[row * a.width + i] = narrow<T>(v);
      if (a.y) a.y[row * a.width + i] = narrow<Y>((v - mean) * rstd * a.gain[i] + a.bias[i]);
    }
    if (threadIdx.x == 0) {
      if (a.mean) a.mean[row] = mean;
      if (a.rstd) a.rstd[row] = rstd;
    }
  }
}

template <class T, class R, class Y>
void normalise(const Call& call, const NormCall<T, R, Y>& a) {
  if (a.rows == 0) return;
  if constexpr (!std::is_same_v<T, double>)
    if (norm::in_registers<T>(a.width, {a.x, a.r, a.gain, a.bias, a.s, a.y})) {
      norm::with_group(a.width, [&](auto group, auto per_thread) {
        const unsigned blocks = grid_for(a.rows * group, norm::row_threads, 0x7fffffff);
        norm_kernel<T, R, Y, group, per_thread><<<blocks, norm::row_threads, 0, call.stream>>>(a);
      });
      return launched("layer_norm");
    }
  norm_plain_kernel<T, R, Y><<<grid_for(a.rows, 1), norm::plain_threads, 0, call.stream>>>(a);
  launched("layer_norm, any width");
}

// Operands x, [r], gain, bias; results [x + r], y, mean, rstd.
void run_norm(const Call& call, bool adds) {
  if (const auto to = call.attr<ir::Norm>().to; to && ir::is_quantised(*to))
    return run_norm_bytes(call, adds);
  with_float(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::size_t first = adds ? 2 : 1, result = adds ? 1 : 0;
    const Rows rows = norm::rows_of(call.in[0].shape);
    const ir::DType wide = std::is_same_v<T, double> ? ir::DType::f64 : ir::DType::f32;
    CHECK(call.in[first].dtype == wide && call.in[first + 1].dtype == wide,
          "layer_norm: gain and bias are " + std::string(ir::name(wide)) + " beside " +
              std::string(ir::name(call.in[0].dtype)));
    const ir::Norm& attrs = call.attr<ir::Norm>();
    norm::with_result<T>(attrs.to.value_or(call.in[0].dtype), [&]<class Y>(Y) {
      const auto with_added = [&]<class R>(R) {
        normalise<T, R, Y>(call, {.x = call.in[0].as<T>(),
                                  .r = adds ? call.in[1].as<R>() : nullptr,
                                  .gain = call.in[first].as<Wide<T>>(),
                                  .bias = call.in[first + 1].as<Wide<T>>(),
                                  .s = adds ? call.out[0].as<T>() : nullptr,
                                  .y = call.out[result].as<Y>(),
                                  .mean = call.out[result + 1].as<Wide<T>>(),
                                  .rstd = call.out[result + 2].as<Wide<T>>(),
                                  .rows = rows.count,
                                  .width = rows.width,
                                  .eps = static_cast<Wide<T>>(attrs.eps)});
      };
      if (adds && call.in[1].dtype != call.in[0].dtype)
        with_added(Y{});
      else
        with_added(T{});
    });
  });
}

}  // namespace

void run_layer_norm(const Call& call) { run_norm(call, false); }
void run_add_norm(const Call& call) { run_norm(call, true); }

}  // namespace tessera::exec::cuda
