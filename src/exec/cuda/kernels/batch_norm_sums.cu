// The sums behind batch norm, per group of samples and channel. Floor: their tensors read once.
// Each block adds a range of rows in f32, in a fixed order; the parts of the blocks are added in
// double.
#include "exec/cuda/kernels/batch_norm.cuh"

namespace tessera::exec::cuda {
namespace {

using namespace channels;

// Adds up what the threads of a column hold, in their order, and writes it as part blockIdx.x of
// [groups, chunks, 2, channels].
template <int pack, class W>
__device__ void write_parts(const Rows& rows, const ChannelWalk& walk, const W (&sum)[pack],
                            const W (&second)[pack], W* parts) {
  __shared__ W shared[2 * block_threads];
  const int at = threadIdx.y * blockDim.x + threadIdx.x;
  W* to =
      parts + (static_cast<std::int64_t>(walk.group) * gridDim.x + blockIdx.x) * 2 * rows.channels;
#pragma unroll
  for (int j = 0; j < pack; ++j) {
    __syncthreads();
    shared[at] = sum[j];
    shared[block_threads + at] = second[j];
    __syncthreads();
    for (int half = blockDim.y / 2; half > 0; half /= 2) {
      if (threadIdx.y < half) {
        shared[at] += shared[at + half * blockDim.x];
        shared[block_threads + at] += shared[block_threads + at + half * blockDim.x];
      }
      __syncthreads();
    }
    if (threadIdx.y == 0 && walk.inside) {
      to[walk.channel + j] = shared[at];
      to[rows.channels + walk.channel + j] = shared[block_threads + at];
    }
  }
}

// sum of x - shift and of its square
template <class T, int pack>
__global__ void __launch_bounds__(block_threads)
    moments_kernel(Rows rows, const T* x, const Wide<T>* shift, Wide<T>* parts) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  W around[pack] = {}, sum[pack] = {}, squares[pack] = {};
  if (walk.inside) {
#pragma unroll
    for (int j = 0; j < pack; ++j) around[j] = shift[walk.channel + j];
#pragma unroll 4
    for (std::int64_t row = walk.row; row < walk.end; row += walk.step) {
      const auto in =
          *reinterpret_cast<const Pack<T, pack>*>(x + row * rows.channels + walk.channel);
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        const W value = widen(in.at[j]) - around[j];
        sum[j] += value;
        squares[j] += value * value;
      }
    }
  }
  write_parts<pack>(rows, walk, sum, squares, parts);
}

// sum of dy and of dy (x - mean) rstd
template <class T, int pack>
__global__ void __launch_bounds__(block_threads)
    grad_sums_kernel(Rows rows, const T* dy, const T* x, const Wide<T>* mean, const Wide<T>* rstd,
                     Wide<T>* parts) {
  using W = Wide<T>;
  const ChannelWalk walk = walk_of<pack>(rows);
  W middle[pack] = {}, scale[pack] = {}, sum[pack] = {}, products[pack] = {};
  if (walk.inside) {
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      const std::int64_t at = static_cast<std::int64_t>(walk.group) * rows.channels + walk.channel;
      middle[j] = mean[at + j];
      scale[j] = rstd[at + j];
    }
#pragma unroll 4
    for (std::int64_t row = walk.row; row < walk.end; row += walk.step) {
      const std::int64_t at = row * rows.channels + walk.channel;
      const auto g = *reinterpret_cast<const Pack<T, pack>*>(dy + at);
      const auto in = *reinterpret_cast<const Pack<T, pack>*>(x + at);
#pragma unroll
      for (int j = 0; j < pack; ++j) {
        sum[j] += widen(g.at[j]);
        products[j] += widen(g.at[j]) * ((widen(in.at[j]) - middle[j]) * scale[j]);
      }
    }
  }
  write_parts<pack>(rows, walk, sum, products, parts);
}

// The parts of each group and channel: 32 channels beside each other, 32 threads share the chunks.
template <class W>
__global__ void __launch_bounds__(1024)
    add_parts_kernel(int channels, std::int64_t chunks, const W* parts, W* sum, W* second) {
  __shared__ double shared[2][1024];
  const int channel = static_cast<int>(blockIdx.x * 32 + threadIdx.x), group = blockIdx.y;
  double total[2] = {};
  if (channel < channels)
    for (std::int64_t chunk = threadIdx.y; chunk < chunks; chunk += 32) {
      const W* at = parts + (group * chunks + chunk) * 2 * channels + channel;
      total[0] += at[0];
      total[1] += at[channels];
    }
  const int place = threadIdx.y * 32 + threadIdx.x;
  shared[0][place] = total[0];
  shared[1][place] = total[1];
  __syncthreads();
  if (threadIdx.y != 0 || channel >= channels) return;
  for (int i = 1; i < 32; ++i) {
    total[0] += shared[0][i * 32 + threadIdx.x];
    total[1] += shared[1][i * 32 + threadIdx.x];
  }
  const std::int64_t to = static_cast<std::int64_t>(group) * channels + channel;
  if (sum) sum[to] = static_cast<W>(total[0]);
  if (second) second[to] = static_cast<W>(total[1]);
}

template <class W>
void add_parts(const Rows& rows, std::int64_t chunks, const W* parts, const Call& call) {
  const dim3 grid(static_cast<unsigned>((rows.channels + 31) / 32),
                  static_cast<unsigned>(rows.groups));
  add_parts_kernel<W><<<grid, dim3(32, 32), 0, call.stream>>>(
      rows.channels, chunks, parts, call.out[0].as<W>(), call.out[1].as<W>());
  launched("sums of batch norm");
}

std::int64_t parts_bytes(const ir::Attrs& attrs, const ir::Type& x, const Limits& limits) {
  const auto& attr = std::get<ir::BatchNorm>(attrs);
  const Rows rows = rows_of(x.shape, attr);
  return attr.groups * chunks_of(rows, limits) * 2 * rows.channels *
         ir::size_of(ir::statistics_of(x.dtype));
}

}  // namespace

void run_moments(const Call& call) {
  const Rows rows = rows_of(call.in[0].shape, call.attr<ir::BatchNorm>());
  if (rows.channels == 0 || (!call.out[0] && !call.out[1])) return;
  const std::int64_t chunks = chunks_of(rows, call.context.limits);
  with_float(call.in[0].dtype, [&]<class T>(T) {
    const T* x = call.in[0].as<T>();
    with_pack<T>(rows, {x}, [&](auto pack) {
      const Cover cover = cover_of(rows, pack, chunks);
      moments_kernel<T, pack><<<cover.grid(rows), cover.block(), 0, call.stream>>>(
          rows, x, call.in[1].as<Wide<T>>(), call.scratch<Wide<T>>());
      launched("moments");
    });
    add_parts<Wide<T>>(rows, chunks, call.scratch<Wide<T>>(), call);
  });
}
std::int64_t workspace_moments(const ir::Attrs& attrs, std::span<const ir::Type> in,
                               std::span<const ir::Type>, const Limits& limits) {
  return parts_bytes(attrs, in[0], limits);
}

void run_batch_norm_sums(const Call& call) {
  const Rows rows = rows_of(call.in[0].shape, call.attr<ir::BatchNorm>());
  if (rows.channels == 0 || (!call.out[0] && !call.out[1])) return;
  const std::int64_t chunks = chunks_of(rows, call.context.limits);
  with_float(call.in[0].dtype, [&]<class T>(T) {
    const T *dy = call.in[0].as<T>(), *x = call.in[1].as<T>();
    with_pack<T>(rows, {dy, x}, [&](auto pack) {
      const Cover cover = cover_of(rows, pack, chunks);
      grad_sums_kernel<T, pack><<<cover.grid(rows), cover.block(), 0, call.stream>>>(
          rows, dy, x, call.in[2].as<Wide<T>>(), call.in[3].as<Wide<T>>(), call.scratch<Wide<T>>());
      launched("batch_norm_sums");
    });
    add_parts<Wide<T>>(rows, chunks, call.scratch<Wide<T>>(), call);
  });
}
std::int64_t workspace_batch_norm_sums(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                       std::span<const ir::Type>, const Limits& limits) {
  return parts_bytes(attrs, in[0], limits);
}

}  // namespace tessera::exec::cuda
