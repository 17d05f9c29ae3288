// The sums behind batch norm, per group of samples and channel. Floor: their tensors read once.
// Each block adds a range of rows in f32, in a fixed order; the parts of the blocks are added in
// double.
#include "exec/cuda/kernels/batch_norm.cuh"

namespace tessera::exec::cuda {
namespace {

using namespace channels;

// Blocks on a multiprocessor at a time, as far as registers go: one wave of them.
constexpr int wave_blocks = 4;

// Adds up what the threads of a column hold, in their order, and writes it as part blockIdx.x of
// [groups, chunks, count, channels].
template <int count, int pack, class W>
__device__ void write_parts(const Rows& rows, const ChannelWalk& walk, const W (&sums)[count][pack],
                            W* parts) {
  // The odd 8 spread what a warp reads over the banks.
  __shared__ W shared[count * pack][block_threads + 8];
  const int wide = static_cast<int>(blockDim.x), high = static_cast<int>(blockDim.y),
            thread = static_cast<int>(threadIdx.y) * wide + static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < count; ++i)
#pragma unroll
    for (int j = 0; j < pack; ++j) shared[i * pack + j][thread] = sums[i][j];
  __syncthreads();
  W* to = parts +
          (static_cast<std::int64_t>(walk.group) * gridDim.x + blockIdx.x) * count * rows.channels;
  for (int i = thread; i < count * pack * wide; i += block_threads) {
    const int k = i / wide, x = i % wide,
              channel = (static_cast<int>(blockIdx.y) * wide + x) * pack + k % pack;
    W total = 0;
    for (int y = 0; y < high; ++y) total += shared[k][y * wide + x];
    if (channel < rows.channels) to[k / pack * rows.channels + channel] = total;
  }
}

// sum of x - shift and of its square
template <class T, int pack>
__global__ void __launch_bounds__(block_threads, wave_blocks)
    moments_kernel(Rows rows, const T* x, const Wide<T>* shift, Wide<T>* parts) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  W around[pack] = {}, sums[2][pack] = {};
  if (walk.inside) {
#pragma unroll
    for (int j = 0; j < pack; ++j) around[j] = shift[walk.channel + j];
    Pack<T, pack> in[8];
    for_rows<8>(
        rows, walk, [&](int k, std::int64_t at) { in[k] = load_pack<T, pack>(x + at); },
        [&](int k, std::int64_t) {
#pragma unroll
          for (int j = 0; j < pack; ++j) {
            const W value = widen(in[k].at[j]) - around[j];
            sums[0][j] += value;
            sums[1][j] += value * value;
          }
        });
  }
  write_parts(rows, walk, sums, parts);
}

// Operands that the gradients read beside the tensors.
template <class W>
struct Norm {
  const W *mean, *rstd, *gain, *bias;  // the last two where a ReLU follows
};

// sum of dy and of dy (x - mean) rstd; dy counts where the ReLU behind the norm is open
template <class T, int pack, bool relu>
__global__ void __launch_bounds__(block_threads, wave_blocks)
    grad_sums_kernel(Rows rows, const T* dy, const T* x, Norm<Wide<T>> of, Wide<T>* parts) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  W norm[3][pack] = {}, sums[2][pack] = {};  // mean, scale, bias
  const std::int64_t first = static_cast<std::int64_t>(walk.group) * rows.channels;
  if (walk.inside) {
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      const int c = walk.channel + j;
      norm[0][j] = of.mean[first + c];
      if constexpr (relu) {
        norm[1][j] = of.rstd[first + c] * of.gain[c];
        norm[2][j] = of.bias[c];
      }
    }
    Pack<T, pack> g[4], in[4];
    for_rows<4>(
        rows, walk,
        [&](int k, std::int64_t at) {
          g[k] = load_pack<T, pack>(dy + at);
          in[k] = load_pack<T, pack>(x + at);
        },
        [&](int k, std::int64_t) {
#pragma unroll
          for (int j = 0; j < pack; ++j) {
            const W value = widen(in[k].at[j]);
            W v = widen(g[k].at[j]);
            if constexpr (relu)
              if (!is_open<T>(normalised(value, norm[0][j], norm[1][j], norm[2][j]))) v = W(0);
            sums[0][j] += v;
            sums[1][j] = fma(v, value - norm[0][j], sums[1][j]);
          }
        });
#pragma unroll
    for (int j = 0; j < pack; ++j)
      sums[1][j] = rounded_product(sums[1][j], of.rstd[first + walk.channel + j]);
  }
  write_parts(rows, walk, sums, parts);
}

// dz = g (+ h) where y > 0, as it is rounded; sum of dz and of dz (x - mean) rstd for `norms` norms
template <class T, int pack, int norms, bool adds>
__global__ void __launch_bounds__(block_threads, wave_blocks)
    relu_sums_kernel(Rows rows, const T* y, const T* g, const T* h, const T* x, Norm<Wide<T>> of,
                     const T* x2, Norm<Wide<T>> of2, T* dz, Wide<T>* parts) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  W mean[norms][pack] = {}, sums[1 + norms][pack] = {};
  const std::int64_t first = static_cast<std::int64_t>(walk.group) * rows.channels + walk.channel;
  if (walk.inside) {
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      mean[0][j] = of.mean[first + j];
      if constexpr (norms == 2) mean[1][j] = of2.mean[first + j];
    }
    constexpr int batch = norms == 2 ? 1 : 2;
    Pack<T, pack> open[batch], in[batch], more[batch], value[norms][batch];
    for_rows<batch>(
        rows, walk,
        [&](int k, std::int64_t at) {
          open[k] = load_pack<T, pack>(y + at);
          in[k] = load_pack<T, pack>(g + at);
          if constexpr (adds) more[k] = load_pack<T, pack>(h + at);
          value[0][k] = load_pack<T, pack>(x + at);
          if constexpr (norms == 2) value[1][k] = load_pack<T, pack>(x2 + at);
        },
        [&](int k, std::int64_t at) {
#pragma unroll
          for (int j = 0; j < pack; ++j) {
            W v = widen(in[k].at[j]);
            if constexpr (adds) v += widen(more[k].at[j]);
            in[k].at[j] = narrow<T>(widen(open[k].at[j]) > W(0) ? v : W(0));
            v = widen(in[k].at[j]);
            sums[0][j] += v;
#pragma unroll
            for (int n = 0; n < norms; ++n)
              sums[1 + n][j] = fma(v, widen(value[n][k].at[j]) - mean[n][j], sums[1 + n][j]);
          }
          if (dz) store_pack<T, pack>(dz + at, in[k]);
        });
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      sums[1][j] = rounded_product(sums[1][j], of.rstd[first + j]);
      if constexpr (norms == 2) sums[2][j] = rounded_product(sums[2][j], of2.rstd[first + j]);
    }
  }
  write_parts(rows, walk, sums, parts);
}

// The results of sums, null where nobody reads them.
template <class W, int count>
struct Sums {
  W* at[count];
};
// The parts of each group and channel: 8 channels beside each other, 128 threads share the chunks.
constexpr int sum_wide = 8, sum_high = 128;
template <class W, int count>
__global__ void __launch_bounds__(sum_wide* sum_high)
    add_parts_kernel(int channels, std::int64_t chunks, const W* parts, Sums<W, count> sums) {
  __shared__ double shared[count][sum_high][sum_wide];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y),
            channel = static_cast<int>(blockIdx.x) * sum_wide + x,
            group = static_cast<int>(blockIdx.y);
  double total[count] = {};
  if (channel < channels)
#pragma unroll 4
    for (std::int64_t chunk = y; chunk < chunks; chunk += sum_high) {
      const W* at = parts + (group * chunks + chunk) * count * channels + channel;
#pragma unroll
      for (int i = 0; i < count; ++i) total[i] += at[i * channels];
    }
#pragma unroll
  for (int i = 0; i < count; ++i) shared[i][y][x] = total[i];
  for (int half = sum_high / 2; half > 0; half /= 2) {
    __syncthreads();
    if (y >= half) continue;
#pragma unroll
    for (int i = 0; i < count; ++i) shared[i][y][x] += shared[i][y + half][x];
  }
  if (y != 0 || channel >= channels) return;
  const std::int64_t to = static_cast<std::int64_t>(group) * channels + channel;
#pragma unroll
  for (int i = 0; i < count; ++i)
    if (sums.at[i]) sums.at[i][to] = static_cast<W>(shared[i][0][x]);
}

// `first`: the index of the first of the results.
template <class W, int count>
void add_parts(const Rows& rows, std::int64_t chunks, const W* parts, const Call& call,
               std::size_t first = 0) {
  const dim3 grid(static_cast<unsigned>((rows.channels + sum_wide - 1) / sum_wide),
                  static_cast<unsigned>(rows.groups));
  Sums<W, count> sums;
  for (std::size_t i = 0; i < count; ++i) sums.at[i] = call.out[first + i].as<W>();
  add_parts_kernel<W, count>
      <<<grid, dim3(sum_wide, sum_high), 0, call.stream>>>(rows.channels, chunks, parts, sums);
  launched("sums of batch norm");
}

std::int64_t parts_bytes(const ir::Attrs& attrs, const ir::Type& x, const Limits& limits,
                         int count = 2) {
  const auto& attr = std::get<ir::BatchNorm>(attrs);
  const Rows rows = rows_of(x.shape, attr);
  return attr.groups * chunks_of(rows, limits, wave_blocks) * count * rows.channels *
         ir::size_of(ir::statistics_of(x.dtype));
}

}  // namespace

void run_moments(const Call& call) {
  const Rows rows = rows_of(call.in[0].shape, call.attr<ir::BatchNorm>());
  if (rows.channels == 0 || (!call.out[0] && !call.out[1])) return;
  const std::int64_t chunks = chunks_of(rows, call.context.limits, wave_blocks);
  with_float(call.in[0].dtype, [&]<class T>(T) {
    const T* x = call.in[0].as<T>();
    with_pack<T>(rows, {x}, [&](auto pack) {
      const Cover cover = cover_of(rows, pack, chunks);
      moments_kernel<T, pack><<<cover.grid(rows), cover.block(), 0, call.stream>>>(
          rows, x, call.in[1].as<Wide<T>>(), call.scratch<Wide<T>>());
      launched("moments");
    });
    add_parts<Wide<T>, 2>(rows, chunks, call.scratch<Wide<T>>(), call);
  });
}
std::int64_t workspace_moments(const ir::Attrs& attrs, std::span<const ir::Type> in,
                               std::span<const ir::Type>, const Limits& limits) {
  return parts_bytes(attrs, in[0], limits);
}

void run_batch_norm_sums(const Call& call) {
  const auto& attr = call.attr<ir::BatchNorm>();
  const Rows rows = rows_of(call.in[0].shape, attr);
  if (rows.channels == 0 || (!call.out[0] && !call.out[1])) return;
  const std::int64_t chunks = chunks_of(rows, call.context.limits, wave_blocks);
  with_float(call.in[0].dtype, [&]<class T>(T) {
    using W = Wide<T>;
    const T *dy = call.in[0].as<T>(), *x = call.in[1].as<T>();
    const Norm<W> of{.mean = call.in[2].as<W>(),
                     .rstd = call.in[3].as<W>(),
                     .gain = attr.relu ? call.in[4].as<W>() : nullptr,
                     .bias = attr.relu ? call.in[5].as<W>() : nullptr};
    with_pack<T>(rows, {dy, x}, [&](auto pack) {
      const Cover cover = cover_of(rows, pack, chunks);
      const auto kernel =
          attr.relu ? grad_sums_kernel<T, pack, true> : grad_sums_kernel<T, pack, false>;
      kernel<<<cover.grid(rows), cover.block(), 0, call.stream>>>(rows, dy, x, of,
                                                                  call.scratch<W>());
      launched("batch_norm_sums");
    });
    add_parts<W, 2>(rows, chunks, call.scratch<W>(), call);
  });
}
std::int64_t workspace_batch_norm_sums(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                       std::span<const ir::Type>, const Limits& limits) {
  return parts_bytes(attrs, in[0], limits);
}

void run_relu_grad_sums(const Call& call) {
  const Rows rows = rows_of(call.in[0].shape, call.attr<ir::BatchNorm>());
  if (rows.channels == 0) return;
  const std::int64_t chunks = chunks_of(rows, call.context.limits, wave_blocks);
  const bool two = call.in.size() >= 8;
  with_float(call.in[0].dtype, [&]<class T>(T) {
    using W = Wide<T>;
    const T *y = call.in[0].as<T>(), *g = call.in[1].as<T>(), *x = call.in[2].as<T>(),
            *x2 = two ? call.in[5].as<T>() : nullptr,
            *h = call.in.size() % 3 == 0 ? call.in.back().as<T>() : nullptr;
    // Statistics of the norm that begins with in[i].
    const auto norm = [&](std::size_t i) {
      return Norm<W>{.mean = call.in[i + 1].as<W>(),
                     .rstd = call.in[i + 2].as<W>(),
                     .gain = nullptr,
                     .bias = nullptr};
    };
    T* dz = call.out[0].as<T>();
    with_pack<T>(rows, {y, g, h, x, x2, dz}, [&](auto pack) {
      const Cover cover = cover_of(rows, pack, chunks);
      const auto kernel =
          two ? (h ? relu_sums_kernel<T, pack, 2, true> : relu_sums_kernel<T, pack, 2, false>)
              : (h ? relu_sums_kernel<T, pack, 1, true> : relu_sums_kernel<T, pack, 1, false>);
      kernel<<<cover.grid(rows), cover.block(), 0, call.stream>>>(
          rows, y, g, h, x, norm(2), x2, two ? norm(5) : Norm<W>{}, dz, call.scratch<W>());
      launched("relu_grad_sums");
    });
    if (two)
      add_parts<W, 3>(rows, chunks, call.scratch<W>(), call, 1);
    else
      add_parts<W, 2>(rows, chunks, call.scratch<W>(), call, 1);
  });
}
std::int64_t workspace_relu_grad_sums(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                      std::span<const ir::Type>, const Limits& limits) {
  return parts_bytes(attrs, in[0], limits, in.size() >= 8 ? 3 : 2);
}

}  // namespace tessera::exec::cuda
