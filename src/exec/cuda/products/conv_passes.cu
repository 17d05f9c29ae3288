// The passes around a convolution: scale, offset, addend and relu over its result or, where a
// product has the rest in its epilogue, over its filters; filters turned from [k,l,c,o] to the
// [o,k,l,c] that cuDNN wants and back; pictures widened to the channels that it reads at once.
// Floor: read once, written once.
#include "exec/cuda/elements.cuh"
#include "exec/cuda/products/conv.h"

namespace tessera::exec::cuda {
namespace {

template <class T, int pack>
__global__ void __launch_bounds__(256)
    finish_conv_kernel(T* y, const Wide<T>* scale, const Wide<T>* offset, const T* addend,
                       bool relu, int channels, std::int64_t items) {
  using W = Wide<T>;
  const int packs = channels / pack;
  for (std::int64_t item = grid_thread(); item < items; item += grid_threads()) {
    auto value = reinterpret_cast<const Pack<T, pack>*>(y)[item];
    Pack<T, pack> more{};
    if (addend) more = reinterpret_cast<const Pack<T, pack>*>(addend)[item];
    const int channel = static_cast<int>(item % packs) * pack;
#pragma unroll
    for (int j = 0; j < pack; ++j) {
      W z = widen(value.at[j]);
      if (scale) z = z * scale[channel + j] + offset[channel + j];
      if (addend) z += widen(more.at[j]);
      if (relu && z < W(0)) z = W(0);  // a NaN stays
      value.at[j] = narrow<T>(z);
    }
    reinterpret_cast<Pack<T, pack>*>(y)[item] = value;
  }
}

// Tiles of 32 x 32 through shared memory, so that both sides are read and written along rows.
template <class T>
__global__ void __launch_bounds__(256)
    transpose_kernel(const T* from, std::int64_t rows, std::int64_t cols, T* to) {
  __shared__ T tile[32][33];
  const std::int64_t across = (cols + 31) / 32;
  const std::int64_t row0 = blockIdx.x / across * 32, col0 = blockIdx.x % across * 32;
  for (int i = threadIdx.y; i < 32; i += 8)
    if (row0 + i < rows && col0 + threadIdx.x < cols)
      tile[i][threadIdx.x] = from[(row0 + i) * cols + col0 + threadIdx.x];
  __syncthreads();
  for (int i = threadIdx.y; i < 32; i += 8)
    if (col0 + i < cols && row0 + threadIdx.x < rows)
      to[(col0 + i) * rows + row0 + threadIdx.x] = tile[threadIdx.x][i];
}

// One thread an element of the turned filters [o,taps,wide].
template <class T, bool back>
__global__ void __launch_bounds__(256)
    turn_few_channels_kernel(const T* from, std::int64_t taps, std::int64_t wide, std::int64_t c,
                             std::int64_t o, T* to) {
  const std::int64_t items = o * taps * wide;
  for (std::int64_t item = grid_thread(); item < items; item += grid_threads()) {
    const std::int64_t channel = item % wide, tap = item / wide % taps, out = item / wide / taps;
    const std::int64_t own = (tap * c + channel) * o + out;
    if constexpr (back) {
      if (channel < c) to[own] = from[item];
    } else {
      to[item] = channel < c ? from[own] : T(0);
    }
  }
}

__global__ void __launch_bounds__(256)
    widen_channels_kernel(const std::uint16_t* from, std::int64_t pixels, int c,
                          Pack<std::uint16_t, 8>* to) {
  for (std::int64_t pixel = grid_thread(); pixel < pixels; pixel += grid_threads()) {
    Pack<std::uint16_t, 8> wide{};
#pragma unroll
    for (int j = 0; j < 8; ++j)
      if (j < c) wide.at[j] = from[pixel * c + j];
    to[pixel] = wide;
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    scale_filters_kernel(const T* filters, const Wide<T>* scale, const Wide<T>* offset,
                         std::int64_t c, std::int64_t o, T* scaled, T* narrow_offset) {
  const std::int64_t items = (c + 1) * o;  // the last row is the offset's
  for (std::int64_t item = grid_thread(); item < items; item += grid_threads()) {
    const std::int64_t row = item / o, out = item % o;
    if (row < c)
      scaled[item] = narrow<T>(widen(filters[item]) * scale[out]);
    else
      narrow_offset[out] = narrow<T>(offset[out]);
  }
}

template <bool back>
void turn_few_channels(const void* from, const ConvSizes& s, std::int64_t c, void* to,
                       ir::DType dtype, cudaStream_t stream) {
  CHECK(ir::size_of(dtype) == 2, "filters of few channels: elements of 2 bytes");
  const std::int64_t taps = s.k * s.l;
  turn_few_channels_kernel<std::uint16_t, back>
      <<<grid_for(s.o * taps * s.c, 256), 256, 0, stream>>>(static_cast<const std::uint16_t*>(from),
                                                            taps, s.c, c, s.o,
                                                            static_cast<std::uint16_t*>(to));
  launched("filters of few channels");
}

// to[col, row] = from[row, col]; elements of 2 or 4 bytes.
void transpose(const void* from, std::int64_t rows, std::int64_t cols, void* to,
               std::int64_t element_bytes, cudaStream_t stream) {
  const std::int64_t tiles = (rows + 31) / 32 * ((cols + 31) / 32);
  if (tiles == 0) return;
  CHECK(tiles < (std::int64_t{1} << 31), "transpose: more tiles than one launch takes");
  const auto grid = static_cast<unsigned>(tiles);
  if (element_bytes == 2) {
    transpose_kernel<<<grid, dim3(32, 8), 0, stream>>>(static_cast<const std::uint16_t*>(from),
                                                       rows, cols, static_cast<std::uint16_t*>(to));
  } else {
    CHECK(element_bytes == 4, "transpose: elements of 2 or 4 bytes");
    transpose_kernel<<<grid, dim3(32, 8), 0, stream>>>(static_cast<const std::uint32_t*>(from),
                                                       rows, cols, static_cast<std::uint32_t*>(to));
  }
  launched("transpose of filters");
}

}  // namespace

void finish_conv(const ConvFinish& f, const ConvSizes& sizes, ir::DType dtype,
                 cudaStream_t stream) {
  const std::int64_t elements = sizes.results();
  if (elements == 0 || (!f.scale && !f.addend && !f.relu)) return;
  with_float(dtype, [&]<class T>(T) {
    constexpr int pack = per_16_bytes<T>;
    const bool packs = sizes.o % pack == 0 && aligned_16(f.y) && aligned_16(f.addend);
    const std::int64_t items = packs ? elements / pack : elements;
    const unsigned grid = grid_for(items, 256);
    auto* y = static_cast<T*>(f.y);
    const auto *scale = static_cast<const Wide<T>*>(f.scale),
               *offset = static_cast<const Wide<T>*>(f.offset);
    const auto* addend = static_cast<const T*>(f.addend);
    const auto channels = static_cast<int>(sizes.o);
    if (packs)
      finish_conv_kernel<T, pack>
          <<<grid, 256, 0, stream>>>(y, scale, offset, addend, f.relu, channels, items);
    else
      finish_conv_kernel<T, 1>
          <<<grid, 256, 0, stream>>>(y, scale, offset, addend, f.relu, channels, items);
    launched("conv (scale, offset, addend, relu)");
  });
}

void scale_filters(const void* filters, const ConvFinish& finish, const ConvSizes& s,
                   ir::DType dtype, void* scaled, void* offset, cudaStream_t stream) {
  with_float(dtype, [&]<class T>(T) {
    scale_filters_kernel<T><<<grid_for((s.c + 1) * s.o, 256), 256, 0, stream>>>(
        static_cast<const T*>(filters), static_cast<const Wide<T>*>(finish.scale),
        static_cast<const Wide<T>*>(finish.offset), s.c, s.o, static_cast<T*>(scaled),
        static_cast<T*>(offset));
    launched("conv (scale of filters)");
  });
}

void turn_filters(const void* filters, const ConvSizes& s, std::int64_t c, void* turned,
                  ir::DType dtype, cudaStream_t stream) {
  if (c == s.c)
    transpose(filters, s.k * s.l * c, s.o, turned, ir::size_of(dtype), stream);
  else
    turn_few_channels<false>(filters, s, c, turned, dtype, stream);
}

void return_filters(const void* turned, const ConvSizes& s, std::int64_t c, void* filters,
                    ir::DType dtype, cudaStream_t stream) {
  if (c == s.c)
    transpose(turned, s.o, s.k * s.l * c, filters, ir::size_of(dtype), stream);
  else
    turn_few_channels<true>(turned, s, c, filters, dtype, stream);
}

void widen_channels(const void* from, std::int64_t pixels, std::int64_t c, std::int64_t to_c,
                    void* to, cudaStream_t stream) {
  CHECK(c < to_c && to_c == 8, "pictures of fewer than 8 channels become pictures of 8");
  if (pixels == 0) return;
  widen_channels_kernel<<<grid_for(pixels, 256), 256, 0, stream>>>(
      static_cast<const std::uint16_t*>(from), pixels, static_cast<int>(c),
      static_cast<Pack<std::uint16_t, 8>*>(to));
  launched("conv (widened channels)");
}

}  // namespace tessera::exec::cuda
