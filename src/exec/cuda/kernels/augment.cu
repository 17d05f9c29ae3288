// Pictures of a batch to numbers, augmented on the way, and out of a set that lies on the card. The
// floor is the bytes: one pixel read (two where samples are mixed) and one element written per
// value. A picture is a row of the grid, so that its draws are read once per block and no index is
// divided by more than a width; numbers come from the table that the host computed, the kernel's
// parameter.
#include <vector>

#include "exec/common/augmented.h"
#include "exec/common/pixel_table.h"
#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int picture_threads = 256;
constexpr std::int64_t most_rows = 65535;  // of a grid
constexpr int channels_at_once = 3;        // tables of so many fit into a kernel's parameters

struct ChannelTables {
  int first = 0, count = 0;
  float of[channels_at_once][256] = {};
};
struct PicturePair {
  const std::uint8_t* pixels[2] = {};
  const PictureDraw* draws[2] = {};  // [1]: null where nothing is mixed
};

// Where the pixel of a result lies in its picture, in values; -1: the padding, -2: it is hidden.
__device__ __forceinline__ std::int64_t pixel_at(const PictureDraw& draw, const PictureShape& shape,
                                                 bool reflect, int y, int x) {
  if (is_hidden(draw, y, x)) return -2;
  const std::int64_t row = shown_row(draw, shape, y, reflect),
                     column = shown_column(draw, shape, x, reflect);
  return row < 0 || column < 0 ? -1 : row * shape.row() + column * shape.c;
}

__device__ __forceinline__ float number_at(const float* table, const std::uint8_t* picture,
                                           std::int64_t at, int channel) {
  if (at == -2) return 0.0f;
  return table[at < 0 ? 0 : picture[at + channel]];
}

template <class T>
__global__ void __launch_bounds__(picture_threads)
    augment_pictures(PicturePair in, T* out, std::int64_t samples, PictureShape shape, bool reflect,
                     const __grid_constant__ ChannelTables tables) {
  __shared__ float table[channels_at_once * 256];
  for (int i = static_cast<int>(threadIdx.x); i < channels_at_once * 256; i += picture_threads)
    table[i] = tables.of[i / 256][i % 256];
  __syncthreads();
  const int width = static_cast<int>(shape.w), pixels = static_cast<int>(shape.h) * width;
  for (std::int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    const PictureDraw draw = in.draws[0][sample];
    const bool mixes = in.draws[1] && reads_partner(draw);
    const PictureDraw other = in.draws[mixes ? 1 : 0][sample];
    const std::int64_t begin = sample * shape.values();
    for (int p = static_cast<int>(blockIdx.x) * picture_threads + static_cast<int>(threadIdx.x);
         p < pixels; p += static_cast<int>(gridDim.x) * picture_threads) {
      const int y = p / width, x = p - y * width;
      const bool patched = mixes && draw.patch.holds(y, x),
                 blends = mixes && !patched && draw.keep != PictureDraw::whole;
      const std::int64_t own = pixel_at(draw, shape, reflect, y, x),
                         theirs = patched || blends ? pixel_at(other, shape, reflect, y, x) : -2;
      for (int k = 0; k < tables.count; ++k) {
        const int channel = tables.first + k;
        float value = number_at(table + k * 256, in.pixels[0] + begin, own, channel);
        if (patched || blends) {
          const float partner = number_at(table + k * 256, in.pixels[1] + begin, theirs, channel);
          value = patched ? partner : blended(draw.keep, value, partner);
        }
        out[begin + static_cast<std::int64_t>(p) * shape.c + channel] = narrow<T>(value);
      }
    }
  }
}

// A sample is `units` of U; one that the set does not have is zeros.
template <class U>
__global__ void __launch_bounds__(picture_threads)
    gather_units(const U* set, std::int64_t count, const std::int32_t* indices, U* out,
                 std::int64_t samples, std::int64_t units) {
  for (std::int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    const std::int64_t index = indices[sample];
    const bool there = index >= 0 && index < count;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * picture_threads + threadIdx.x;
         i < units; i += static_cast<std::int64_t>(gridDim.x) * picture_threads)
      out[sample * units + i] = there ? set[index * units + i] : U{};
  }
}

// `most`: blocks of the grid, about; each then takes several pictures.
dim3 grid_of_pictures(std::int64_t items, std::int64_t samples, std::int64_t most) {
  const unsigned across = grid_for(items, picture_threads, 64);
  const std::int64_t rows = std::clamp<std::int64_t>(most / across, 1, most_rows);
  return {across, static_cast<unsigned>(std::min(samples, rows)), 1};
}

std::vector<ChannelTables> channel_tables(const ir::Augment& attrs, std::int64_t channels) {
  const PixelTable rows = pixel_table(numbers_of(attrs), static_cast<std::size_t>(channels));
  std::vector<ChannelTables> all;
  for (std::int64_t k = 0; k < channels; ++k) {
    if (k % channels_at_once == 0) all.push_back({static_cast<int>(k), 0, {}});
    const std::array<float, 256>& row = rows[static_cast<std::size_t>(k)];
    std::copy(row.begin(), row.end(), all.back().of[all.back().count++]);
  }
  return all;
}

}  // namespace

void run_augment(const Call& call) {
  const ir::Augment& attrs = call.attr<ir::Augment>();
  const ir::Shape& dims = call.in[0].shape;
  const PictureShape shape{dims[1], dims[2], dims[3]};
  if (call.out[0].elements() == 0) return;
  CHECK(shape.h * shape.w <= 1 << 30, "a picture has fewer pixels than an int counts");
  PicturePair pair;
  for (std::size_t i = 0; 2 * i < call.in.size(); ++i) {
    pair.pixels[i] = call.in[2 * i].as<std::uint8_t>();
    pair.draws[i] = call.in[2 * i + 1].as<PictureDraw>();
  }
  // Reading the tables out of the parameters takes a block longer than a few pixels do: no more
  // blocks than run at once.
  const dim3 grid =
      grid_of_pictures(shape.h * shape.w, dims[0], 8 * call.context.limits.multiprocessors);
  const auto& tables =
      call.once<std::vector<ChannelTables>>([&] { return channel_tables(attrs, shape.c); });
  with_float(call.out[0].dtype, [&]<class T>(T) {
    for (const ChannelTables& few : tables) {
      augment_pictures<T><<<grid, picture_threads, 0, call.stream>>>(
          pair, call.out[0].as<T>(), dims[0], shape, attrs.reflect, few);
      launched("augment_pictures");
    }
  });
}

void run_gather_samples(const Call& call) {
  const Tensor &set = call.in[0], &indices = call.in[1], &out = call.out[0];
  if (out.elements() == 0) return;
  const std::int64_t samples = indices.elements(),
                     bytes = out.elements() / samples * ir::size_of(out.dtype);
  const auto launch = [&]<class U>(U) {
    const std::int64_t units = bytes / static_cast<std::int64_t>(sizeof(U));
    gather_units<U><<<grid_of_pictures(units, samples, 1 << 20), picture_threads, 0, call.stream>>>(
        set.as<U>(), set.shape[0], indices.as<std::int32_t>(), out.as<U>(), samples, units);
    launched("gather_units");
  };
  if (bytes % 16 == 0 && aligned_16(set.data) && aligned_16(out.data))
    launch(uint4{});
  else
    launch(std::uint8_t{});
}

}  // namespace tessera::exec::cuda
