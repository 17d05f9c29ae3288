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
// About this many chunks in each group keep every multiprocessor busy; a function of shapes.
inline std::int64_t chunks_of(const Rows& rows, const Limits& limits) {
  const std::int64_t per_group = (rows.samples + rows.groups - 1) / rows.groups * rows.pixels;
  // A block takes at most 32 packs of 8 channels.
  const std::int64_t across = (rows.channels + 255) / 256 * rows.groups;
  const std::int64_t wanted = std::max<std::int64_t>(1, 4 * limits.multiprocessors / across);
  return std::clamp<std::int64_t>(per_group / 32, 1, wanted);
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
  walk.end = first + min(count, from + part);
  walk.step = static_cast<int>(blockDim.y);
  walk.channel = static_cast<int>((blockIdx.y * blockDim.x + threadIdx.x) * pack);
  walk.inside = walk.channel < rows.channels;
  return walk;
}

// Calls launch(pack) with a constant: channels of one thread, 16 bytes of them where all tensors
// allow it.
template <class T, class Launch>
void with_pack(const Rows& rows, std::initializer_list<const void*> tensors, Launch&& launch) {
  bool packs = rows.channels % per_16_bytes<T> == 0;
  for (const void* tensor : tensors) packs &= aligned_16(tensor);
  if (packs)
    launch(std::integral_constant<int, per_16_bytes<T>>{});
  else
    launch(std::integral_constant<int, 1>{});
}

}  // namespace tessera::exec::cuda::channels
