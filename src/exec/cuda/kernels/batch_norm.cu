// The passes of batch norm that use its sums. Floor of each: its tensors read once and written
// once. What is the same for all rows of a channel is made by every thread for its own channels.
#include "exec/cuda/kernels/batch_norm.cuh"

namespace tessera::exec::cuda {
namespace {

using namespace channels;

// 1 / sqrt(x), correctly rounded but for the last bit.
__device__ __forceinline__ double inverse_root(double x) { return 1.0 / sqrt(x); }
__device__ __forceinline__ float inverse_root(float x) { return 1.0f / sqrtf(x); }

template <class W>
struct Statistics {
  W mean, rstd;
};
// mean = shift + s/N, variance = q/N - (s/N)^2. In double, since the difference cancels.
template <class W>
__device__ __forceinline__ Statistics<W> statistics(W sum, W squares, W shift, double per_count,
                                                    double eps) {
  const double offset = static_cast<double>(sum) * per_count;
  const double variance = static_cast<double>(squares) * per_count - offset * offset;
  // As std::max(0.0, variance): a NaN becomes 0 there, and y is NaN by way of the mean.
  return {static_cast<W>(offset + static_cast<double>(shift)),
          inverse_root(static_cast<W>((variance > 0 ? variance : 0.0) + eps))};
}

template <class W>
struct NormOperands {
  const W *sum, *squares, *shift, *gain, *bias;
  W *mean, *rstd;  // results; null: nobody reads them
  double eps;
};
// y = (x - mean) rstd gain + bias
template <class T, int pack>
__global__ void __launch_bounds__(block_threads)
    norm_kernel(Rows rows, const T* x, NormOperands<Wide<T>> of, T* y) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  if (!walk.inside) return;
  const double per_count = 1.0 / rows.count(walk.group);
  W mean[pack], scale[pack], bias[pack];
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    const int c = walk.channel + j;
    const std::int64_t at = static_cast<std::int64_t>(walk.group) * rows.channels + c;
    const Statistics<W> s = statistics(of.sum[at], of.squares[at], of.shift[c], per_count, of.eps);
    if (blockIdx.x == 0 && threadIdx.y == 0) {
      if (of.mean) of.mean[at] = s.mean;
      if (of.rstd) of.rstd[at] = s.rstd;
    }
    mean[j] = s.mean;
    scale[j] = s.rstd * of.gain[c];
    bias[j] = of.bias[c];
  }
  if (!y) return;
#pragma unroll 4
  for (std::int64_t row = walk.row; row < walk.end; row += walk.step) {
    const std::int64_t at = row * rows.channels + walk.channel;
    auto value = *reinterpret_cast<const Pack<T, pack>*>(x + at);
#pragma unroll
    for (int j = 0; j < pack; ++j)
      value.at[j] = narrow<T>((widen(value.at[j]) - mean[j]) * scale[j] + bias[j]);
    *reinterpret_cast<Pack<T, pack>*>(y + at) = value;
  }
}

template <class W>
struct GradOperands {
  const W *mean, *rstd, *gain, *sum, *products;
};
// dx = gain rstd (dy - sum_dy/N - n sum_dyn/N), n = (x - mean) rstd
template <class T, int pack>
__global__ void __launch_bounds__(block_threads)
    norm_grad_kernel(Rows rows, const T* dy, const T* x, GradOperands<Wide<T>> of, T* dx) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  if (!walk.inside) return;
  const double per_count = 1.0 / rows.count(walk.group);
  W mean[pack], scale[pack], base[pack], slope[pack];
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    const int c = walk.channel + j;
    const std::int64_t at = static_cast<std::int64_t>(walk.group) * rows.channels + c;
    mean[j] = of.mean[at];
    scale[j] = of.rstd[at] * of.gain[c];
    base[j] = static_cast<W>(static_cast<double>(of.sum[at]) * per_count);
    slope[j] = static_cast<W>(static_cast<double>(of.products[at]) * per_count *
                              static_cast<double>(of.rstd[at]));
  }
#pragma unroll 2
  for (std::int64_t row = walk.row; row < walk.end; row += walk.step) {
    const std::int64_t at = row * rows.channels + walk.channel;
    auto g = *reinterpret_cast<const Pack<T, pack>*>(dy + at);
    const auto in = *reinterpret_cast<const Pack<T, pack>*>(x + at);
#pragma unroll
    for (int j = 0; j < pack; ++j)
      g.at[j] =
          narrow<T>(scale[j] * (widen(g.at[j]) - base[j] - (widen(in.at[j]) - mean[j]) * slope[j]));
    *reinterpret_cast<Pack<T, pack>*>(dx + at) = g;
  }
}

// y = (x - mean) / sqrt(variance + eps) gain + bias
template <class T, int pack>
__global__ void __launch_bounds__(block_threads)
    fixed_kernel(Rows rows, const T* x, const Wide<T>* mean, const Wide<T>* variance,
                 const Wide<T>* gain, const Wide<T>* bias, double eps, T* y) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  if (!walk.inside) return;
  W middle[pack], scale[pack], offset[pack];
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    const int c = walk.channel + j;
    middle[j] = mean[c];
    scale[j] = gain[c] * inverse_root(static_cast<W>(static_cast<double>(variance[c]) + eps));
    offset[j] = bias[c];
  }
#pragma unroll 4
  for (std::int64_t row = walk.row; row < walk.end; row += walk.step) {
    const std::int64_t at = row * rows.channels + walk.channel;
    auto value = *reinterpret_cast<const Pack<T, pack>*>(x + at);
#pragma unroll
    for (int j = 0; j < pack; ++j)
      value.at[j] = narrow<T>((widen(value.at[j]) - middle[j]) * scale[j] + offset[j]);
    *reinterpret_cast<Pack<T, pack>*>(y + at) = value;
  }
}

// The variance that is kept is the unbiased one (of a single value: the biased one); groups count
// equally.
template <class W>
__global__ void running_kernel(Rows rows, const W* mean, const W* variance, const W* sum,
                               const W* squares, const W* shift, double momentum, W* mean_out,
                               W* variance_out) {
  const std::int64_t c = grid_thread();
  if (c >= rows.channels) return;
  double batch_mean = 0, batch_variance = 0;
  for (int g = 0; g < rows.groups; ++g) {
    const std::int64_t at = static_cast<std::int64_t>(g) * rows.channels + c;
    const double n = rows.count(g), offset = static_cast<double>(sum[at]) / n;
    batch_mean += (offset + static_cast<double>(shift[c])) / rows.groups;
    const double biased = static_cast<double>(squares[at]) / n - offset * offset;
    batch_variance += (biased > 0 ? biased : 0.0) * (n > 1 ? n / (n - 1) : 1.0) / rows.groups;
  }
  const double kept = 1 - momentum;
  if (mean_out)
    mean_out[c] = static_cast<W>(kept * static_cast<double>(mean[c]) + momentum * batch_mean);
  if (variance_out)
    variance_out[c] =
        static_cast<W>(kept * static_cast<double>(variance[c]) + momentum * batch_variance);
}

template <class W>
__global__ void scale_kernel(std::int64_t count, const W* mean, const W* variance, const W* gain,
                             const W* bias, double eps, W* scale, W* offset) {
  const std::int64_t c = grid_thread();
  if (c >= count) return;
  const double factor = static_cast<double>(gain[c]) / sqrt(static_cast<double>(variance[c]) + eps);
  if (scale) scale[c] = static_cast<W>(factor);
  if (offset)
    offset[c] =
        static_cast<W>(static_cast<double>(bias[c]) - static_cast<double>(mean[c]) * factor);
}

// f64 or f32: what is beside the statistics of a batch.
template <class Visit>
void with_statistics(ir::DType dtype, Visit&& visit) {
  if (dtype == ir::DType::f64) return visit(double{});
  CHECK(dtype == ir::DType::f32, "statistics of batch norm are f32 or f64");
  visit(float{});
}

}  // namespace

void run_batch_norm(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const Rows rows = rows_of(call.in[0].shape, attr);
  if (rows.channels == 0) return;
  with_float(call.in[0].dtype, [&]<class T>(T) {
    using W = Wide<T>;
    const NormOperands<W> of{.sum = call.in[1].as<W>(),
                             .squares = call.in[2].as<W>(),
                             .shift = call.in[3].as<W>(),
                             .gain = call.in[4].as<W>(),
                             .bias = call.in[5].as<W>(),
                             .mean = call.out[1].as<W>(),
                             .rstd = call.out[2].as<W>(),
                             .eps = attr.eps};
    const T* x = call.in[0].as<T>();
    T* y = call.out[0].as<T>();
    with_pack<T>(rows, {x, y}, [&](auto pack) {
      const Cover cover = cover_of(rows, pack, y ? chunks_of(rows, call.context.limits) : 1);
      norm_kernel<T, pack><<<cover.grid(rows), cover.block(), 0, call.stream>>>(rows, x, of, y);
      launched("batch_norm");
    });
  });
}

void run_batch_norm_grad(const Call& call) {
  const Rows rows = rows_of(call.in[0].shape, call.attr<ir::BatchNorm>());
  if (call.in[0].elements() == 0 || !call.out[0]) return;
  with_float(call.in[0].dtype, [&]<class T>(T) {
    using W = Wide<T>;
    const GradOperands<W> of{.mean = call.in[2].as<W>(),
                             .rstd = call.in[3].as<W>(),
                             .gain = call.in[4].as<W>(),
                             .sum = call.in[5].as<W>(),
                             .products = call.in[6].as<W>()};
    const T *dy = call.in[0].as<T>(), *x = call.in[1].as<T>();
    T* dx = call.out[0].as<T>();
    with_pack<T>(rows, {dy, x, dx}, [&](auto pack) {
      const Cover cover = cover_of(rows, pack, chunks_of(rows, call.context.limits));
      norm_grad_kernel<T, pack>
          <<<cover.grid(rows), cover.block(), 0, call.stream>>>(rows, dy, x, of, dx);
      launched("batch_norm_grad");
    });
  });
}

void run_running_stats(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  Rows rows = rows_of(call.in[0].shape, attr);
  if (rows.channels == 0) return;
  with_statistics(call.in[0].dtype, [&]<class W>(W) {
    running_kernel<W><<<grid_for(rows.channels, 128), 128, 0, call.stream>>>(
        rows, call.in[0].as<W>(), call.in[1].as<W>(), call.in[2].as<W>(), call.in[3].as<W>(),
        call.in[4].as<W>(), attr.momentum, call.out[0].as<W>(), call.out[1].as<W>());
    launched("running_stats");
  });
}

void run_batch_norm_fixed(const Call& call) {
  ir::BatchNorm attr = call.attr<ir::BatchNorm>();
  attr.groups = 1;
  const Rows rows = rows_of(call.in[0].shape, attr);
  if (call.in[0].elements() == 0 || !call.out[0]) return;
  with_float(call.in[0].dtype, [&]<class T>(T) {
    using W = Wide<T>;
    const T* x = call.in[0].as<T>();
    T* y = call.out[0].as<T>();
    with_pack<T>(rows, {x, y}, [&](auto pack) {
      const Cover cover = cover_of(rows, pack, chunks_of(rows, call.context.limits));
      fixed_kernel<T, pack><<<cover.grid(rows), cover.block(), 0, call.stream>>>(
          rows, x, call.in[1].as<W>(), call.in[2].as<W>(), call.in[3].as<W>(), call.in[4].as<W>(),
          attr.eps, y);
      launched("batch_norm_fixed");
    });
  });
}

void run_batch_norm_scale(const Call& call) {
  const std::int64_t count = call.in[0].elements();
  if (count == 0) return;
  with_statistics(call.in[0].dtype, [&]<class W>(W) {
    scale_kernel<W><<<grid_for(count, 128), 128, 0, call.stream>>>(
        count, call.in[0].as<W>(), call.in[1].as<W>(), call.in[2].as<W>(), call.in[3].as<W>(),
        call.attr<ir::BatchNorm>().eps, call.out[0].as<W>(), call.out[1].as<W>());
    launched("batch_norm_scale");
  });
}

}  // namespace tessera::exec::cuda
