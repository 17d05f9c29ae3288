// Tensors as rows of channels, and how launches of batch norm walk them: a thread keeps a few
// neighbouring channels and goes down rows, so that what belongs to a channel stays in registers.
#pragma once

#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda::channels {

inline constexpr int block_threads = 256;

// Rows of x [samples, pixels..., channels], cut into groups of samples as ir::split does.
struct Rows {
  std::int64_t samples = 0, pixels = 0;  // pixels: rows of one sample
  int channels = 0, groups = 1;
  std::int64_t all_samples = 0, all_pixels = 0;  // behind the statistics, over all ranks

  __host__ __device__ static std::int64_t begin_of(std::int64_t extent, int parts, int index) {
    const std::int64_t more = extent % parts;
    return extent / parts * index + (index < more ? index : more);
  }
  __device__ std::int64_t begin(int group) const {
    return begin_of(samples, groups, group) * pixels;
  }
  // Values of a channel behind the statistics of a group.
  __device__ double count(int group) const {
    return static_cast<double>(
        (begin_of(all_samples, groups, group + 1) - begin_of(all_samples, groups, group)) *
        all_pixels);
  }
};

inline Rows rows_of(const ir::Shape& x, const ir::BatchNorm& attr) {
  const std::int64_t channels = x.back(), all = ir::elements(x);
  CHECK(channels < (1 << 30) && attr.groups <= 65535,
        "batch norm: too many channels or groups for one launch");
  return {.samples = x[0],
          .pixels = all == 0 ? 0 : all / x[0] / channels,
          .channels = static_cast<int>(channels),
          .groups = static_cast<int>(attr.groups),
          .all_samples = attr.samples,
          .all_pixels = attr.pixels};
}

// How a launch covers the rows: blocks of `wide` x `high` threads, `chunks` of rows in each group.
struct Cover {
  int wide = 1, high = 1, across = 1;
  std::int64_t chunks = 1;

  dim3 grid(const Rows& rows) const {
    return dim3(static_cast<unsigned>(chunks), static_cast<unsigned>(across),
                static_cast<unsigned>(rows.groups));
  }
  dim3 block() const { return dim3(static_cast<unsigned>(wide), static_cast<unsigned>(high)); }
};
// Chunks of each group for so many blocks on each multiprocessor; a function of shapes. A thread
// gets `rows_each` rows or more where that leaves a block for each of them.
inline std::int64_t chunks_of(const Rows& rows, const Limits& limits, int blocks,
                              int rows_each = 1) {
  const std::int64_t per_group = (rows.samples + rows.groups - 1) / rows.groups * rows.pixels;
  // A block takes at most 32 packs of 4 channels.
  const std::int64_t across = (rows.channels + 127) / 128 * rows.groups;
  const std::int64_t most = std::max<std::int64_t>(1, blocks * limits.multiprocessors / across),
                     least = std::max<std::int64_t>(1, limits.multiprocessors / across);
  const std::int64_t high = std::max<std::int64_t>(8, 1024 / std::max(1, rows.channels));
  return std::clamp<std::int64_t>(std::min(per_group / 32, most), 1,
                                  std::max(least, per_group / (high * rows_each)));
}
inline Cover cover_of(const Rows& rows, int pack, std::int64_t chunks) {
  const int packs = (rows.channels + pack - 1) / pack;
  Cover cover;
  while (cover.wide < packs && cover.wide < 32) cover.wide *= 2;
  cover.high = block_threads / cover.wide;
  cover.across = (packs + cover.wide - 1) / cover.wide;
  cover.chunks = chunks;
  CHECK(cover.across <= 65535, "batch norm: too many channels for one launch");
  return cover;
}

// The rows and the first channel of this thread; rows are `step` apart.
struct ChannelWalk {
  std::int64_t row, end;
  int step, channel, group;
  bool inside;
};
template <int pack>
__device__ __forceinline__ ChannelWalk walk_of(const Rows& rows) {
  ChannelWalk walk;
  walk.group = static_cast<int>(blockIdx.z);
  const std::int64_t first = rows.begin(walk.group), count = rows.begin(walk.group + 1) - first;
  const std::int64_t part = (count + gridDim.x - 1) / gridDim.x;
  const std::int64_t from = min(count, part * blockIdx.x);
  walk.row = first + from + threadIdx.y;
  walk.end = max(walk.row, first + min(count, from + part));
  walk.step = static_cast<int>(blockDim.y);
  walk.channel = static_cast<int>((blockIdx.y * blockDim.x + threadIdx.x) * pack);
  walk.inside = walk.channel < rows.channels;
  return walk;
}

// Visits the rows of this thread, `batch` at a time: load(k, at) for each of them, then use(k, at).
// All loads of a batch are under way together, also where results lie over operands.
template <int batch, class Load, class Use>
__device__ __forceinline__ void for_rows(const Rows& rows, const ChannelWalk& walk,
                                         const Load& load, const Use& use) {
  const std::int64_t step = static_cast<std::int64_t>(walk.step) * rows.channels;
  std::int64_t at = walk.row * rows.channels + walk.channel;
  int left = static_cast<int>((walk.end - walk.row + walk.step - 1) / walk.step);
  for (; left >= batch; left -= batch, at += batch * step) {
#pragma unroll
    for (int k = 0; k < batch; ++k) load(k, at + k * step);
#pragma unroll
    for (int k = 0; k < batch; ++k) use(k, at + k * step);
  }
  for (; left > 0; --left, at += step) {
    load(0, at);
    use(0, at);
  }
}

// Works out the numbers of a channel once in a block: value(channel, to) writes `count` numbers for
// one channel, and each thread gets those of its own.
template <int pack, int count, class W, class Value>
__device__ __forceinline__ void per_channel(const Rows& rows, const ChannelWalk& walk,
                                            W (&to)[count][pack], const Value& value) {
  __shared__ W shared[count][32 * pack];
  const int columns = static_cast<int>(blockDim.x) * pack,
            first = static_cast<int>(blockIdx.y) * columns,
            thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int i = thread; i < columns && first + i < rows.channels; i += block_threads) {
    W made[count];
    value(first + i, made);
#pragma unroll
    for (int k = 0; k < count; ++k) shared[k][i] = made[k];
  }
  __syncthreads();
  if (!walk.inside) return;
#pragma unroll
  for (int k = 0; k < count; ++k)
#pragma unroll
    for (int j = 0; j < pack; ++j) to[k][j] = shared[k][threadIdx.x * pack + j];
}

// The norm itself, by the one multiply-add that its gradient repeats.
template <class W>
__device__ __forceinline__ W normalised(W x, W mean, W scale, W bias) {
  return fma(x - mean, scale, bias);
}
// A product that the compiler does not join with the sum behind it, as it would in some kernels and
// not in others: kernels that add up the same give the same bits.
__device__ __forceinline__ float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double rounded_product(double a, double b) { return __dmul_rn(a, b); }
// Whether a ReLU behind the norm, whose result is rounded to T, lets a gradient through.
template <class T, class W>
__device__ __forceinline__ bool is_open(W norm) {
  return widen(narrow<T>(norm)) > W(0);
}

template <class T, int pack>
__device__ __forceinline__ Pack<T, pack> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, pack>*>(from);
}
template <class T, int pack>
__device__ __forceinline__ void store_pack(T* to, const Pack<T, pack>& value) {
  *reinterpret_cast<Pack<T, pack>*>(to) = value;
}

// Channels of one thread: what belongs to more of them does not fit into registers four blocks at a
// time. A warp reads 256 bytes or more of a row at once.
template <class T>
inline constexpr int channels_each = std::is_same_v<T, double> ? 1 : 4;

// Calls launch(pack) with a constant: channels of one thread, one where a tensor is not aligned.
template <class T, class Launch>
void with_pack(const Rows& rows, std::initializer_list<const void*> tensors, Launch&& launch) {
  bool packs = rows.channels % channels_each<T> == 0;
  for (const void* tensor : tensors) packs &= aligned_16(tensor);
  if (packs)
    launch(std::integral_constant<int, channels_each<T>>{});
  else
    launch(std::integral_constant<int, 1>{});
}

}  // namespace tessera::exec::cuda::channels
