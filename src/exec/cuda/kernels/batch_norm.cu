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
// The addend of a norm: none, a tensor of values, or a second norm.
enum class Added { nothing, values, norm };

// Mean, factor and offset of a channel, and for the first block of rows its statistics.
template <class W>
__device__ __forceinline__ void norm_of_channel(const Rows& rows, int group, int c,
                                                const NormOperands<W>& of, W* to) {
  const std::int64_t at = static_cast<std::int64_t>(group) * rows.channels + c;
  const Statistics<W> s =
      statistics(of.sum[at], of.squares[at], of.shift[c], 1.0 / rows.count(group), of.eps);
  if (blockIdx.x == 0) {
    if (of.mean) of.mean[at] = s.mean;
    if (of.rstd) of.rstd[at] = s.rstd;
  }
  to[0] = s.mean;
  to[1] = s.rstd * of.gain[c];
  to[2] = of.bias[c];
}

// y = (x - mean) rstd gain + bias (+ what is added), then relu where it is asked for
template <class T, int pack, Added added>
__global__ void __launch_bounds__(block_threads, 4)
    norm_kernel(Rows rows, const T* x, const T* addend, NormOperands<Wide<T>> of,
                NormOperands<Wide<T>> of_addend, bool relu, T* y) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  constexpr int numbers = added == Added::norm ? 6 : 3;
  W norm[numbers][pack];  // mean, scale, bias
  per_channel<pack>(rows, walk, norm, [&](int c, W(&to)[numbers]) {
    norm_of_channel(rows, walk.group, c, of, to);
    if constexpr (added == Added::norm) norm_of_channel(rows, walk.group, c, of_addend, to + 3);
  });
  if (!walk.inside || !y) return;
  constexpr int batch = added == Added::nothing ? 8 : added == Added::values ? 4 : 2;
  Pack<T, pack> in[batch], more[batch];
  for_rows<batch>(
      rows, walk,
      [&](int k, std::int64_t at) {
        in[k] = load_pack<T, pack>(x + at);
        if constexpr (added != Added::nothing) more[k] = load_pack<T, pack>(addend + at);
      },
      [&](int k, std::int64_t at) {
#pragma unroll
        for (int j = 0; j < pack; ++j) {
          W v = normalised(widen(in[k].at[j]), norm[0][j], norm[1][j], norm[2][j]);
          if constexpr (added == Added::values) v += widen(more[k].at[j]);
          if constexpr (added == Added::norm)
            v += normalised(widen(more[k].at[j]), norm[3][j], norm[4][j], norm[5][j]);
          in[k].at[j] = narrow<T>(relu && v < W(0) ? W(0) : v);
        }
        store_pack<T, pack>(y + at, in[k]);
      });
}

template <class W>
struct GradOperands {
  const W *mean, *rstd, *gain, *sum, *products, *bias;
};
// dx = gain rstd (dy - sum_dy/N - n sum_dyn/N), n = (x - mean) rstd; dy counts where the ReLU
// behind the norm is open
template <class T, int pack, bool relu>
__global__ void __launch_bounds__(block_threads, 4)
    norm_grad_kernel(Rows rows, const T* dy, const T* x, GradOperands<Wide<T>> of, T* dx) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  const double per_count = 1.0 / rows.count(walk.group);
  constexpr int numbers = relu ? 5 : 4;
  W of_channel[numbers][pack];
  per_channel<pack>(rows, walk, of_channel, [&](int c, W(&to)[numbers]) {
    const std::int64_t at = static_cast<std::int64_t>(walk.group) * rows.channels + c;
    to[0] = of.mean[at];
    to[1] = of.rstd[at] * of.gain[c];
    to[2] = static_cast<W>(static_cast<double>(of.sum[at]) * per_count);
    to[3] = static_cast<W>(static_cast<double>(of.products[at]) * per_count *
                           static_cast<double>(of.rstd[at]));
    if constexpr (relu) to[4] = of.bias[c];
  });
  if (!walk.inside) return;
  const auto &mean = of_channel[0], &scale = of_channel[1], &base = of_channel[2],
             &slope = of_channel[3], &bias = of_channel[numbers - 1];
  Pack<T, pack> g[4], in[4];
  for_rows<4>(
      rows, walk,
      [&](int k, std::int64_t at) {
        g[k] = load_pack<T, pack>(dy + at);
        in[k] = load_pack<T, pack>(x + at);
      },
      [&](int k, std::int64_t at) {
#pragma unroll
        for (int j = 0; j < pack; ++j) {
          const W value = widen(in[k].at[j]);
          W v = widen(g[k].at[j]);
          if constexpr (relu)
            if (!is_open<T>(normalised(value, mean[j], scale[j], bias[j]))) v = W(0);
          g[k].at[j] = narrow<T>(scale[j] * (v - base[j] - (value - mean[j]) * slope[j]));
        }
        store_pack<T, pack>(dx + at, g[k]);
      });
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
      value.at[j] = narrow<T>(normalised(widen(value.at[j]), middle[j], scale[j], offset[j]));
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
  const bool two = call.in.size() == 12;
  with_float(call.in[0].dtype, [&]<class T>(T) {
    using W = Wide<T>;
    // Operands of the norm that begins with in[6 k].
    const auto operands = [&](std::size_t k) {
      return NormOperands<W>{.sum = call.in[6 * k + 1].as<W>(),
                             .squares = call.in[6 * k + 2].as<W>(),
                             .shift = call.in[6 * k + 3].as<W>(),
                             .gain = call.in[6 * k + 4].as<W>(),
                             .bias = call.in[6 * k + 5].as<W>(),
                             .mean = call.out[2 * k + 1].as<W>(),
                             .rstd = call.out[2 * k + 2].as<W>(),
                             .eps = attr.eps};
    };
    const T *x = call.in[0].as<T>(), *addend = call.in.size() > 6 ? call.in[6].as<T>() : nullptr;
    T* y = call.out[0].as<T>();
    with_pack<T>(rows, {x, y, addend}, [&](auto pack) {
      const Cover cover =
          cover_of(rows, pack, y ? chunks_of(rows, call.context.limits, 16, 16) : 1);
      const auto kernel = two      ? norm_kernel<T, pack, Added::norm>
                          : addend ? norm_kernel<T, pack, Added::values>
                                   : norm_kernel<T, pack, Added::nothing>;
      kernel<<<cover.grid(rows), cover.block(), 0, call.stream>>>(
          rows, x, addend, operands(0), two ? operands(1) : NormOperands<W>{}, attr.relu, y);
      launched("batch_norm");
    });
  });
}

void run_batch_norm_grad(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const Rows rows = rows_of(call.in[0].shape, attr);
  if (call.in[0].elements() == 0 || !call.out[0]) return;
  with_float(call.in[0].dtype, [&]<class T>(T) {
    using W = Wide<T>;
    const GradOperands<W> of{.mean = call.in[2].as<W>(),
                             .rstd = call.in[3].as<W>(),
                             .gain = call.in[4].as<W>(),
                             .sum = call.in[5].as<W>(),
                             .products = call.in[6].as<W>(),
                             .bias = attr.relu ? call.in[7].as<W>() : nullptr};
    const T *dy = call.in[0].as<T>(), *x = call.in[1].as<T>();
    T* dx = call.out[0].as<T>();
    with_pack<T>(rows, {dy, x, dx}, [&](auto pack) {
      const Cover cover = cover_of(rows, pack, chunks_of(rows, call.context.limits, 16, 16));
      const auto kernel =
          attr.relu ? norm_grad_kernel<T, pack, true> : norm_grad_kernel<T, pack, false>;
      kernel<<<cover.grid(rows), cover.block(), 0, call.stream>>>(rows, dy, x, of, dx);
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
      const Cover cover = cover_of(rows, pack, chunks_of(rows, call.context.limits, 4));
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
