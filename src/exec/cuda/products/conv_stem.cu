// The first convolution of a ResNet: 7 x 7 taps over three channels at every second pixel, 64
// results, bf16 or f16. Three channels are too few for cuDNN's tensor-core engines, which want them
// widened to eight. Here a row of taps is 21 numbers that lie side by side in a row of the picture,
// so rows of the picture in shared memory are the first factor as they are. A block has some rows
// of the results, a warp 16 neighbouring pixels of each; the filters stay in shared memory. Floor:
// bytes of images and results, or 2 x 168 x 64 operations for each pixel.
#include <algorithm>
#include <limits>

#include "exec/cuda/mma.cuh"
#include "exec/cuda/products/conv.h"

namespace tessera::exec::cuda {
namespace {

using mma::Word;

constexpr int taps = 7, channels = 3, results = 64, stride = 2, pad = 3;
constexpr int warps = 7;  // 16 pixels each: the 112 pixels of a row of the usual results
// The depth of the product: of each row of taps 24, of which the first and the last two are
// nothing, since pairs of numbers are read at even places. Two rows of taps make three steps of 16.
constexpr int row_depth = 24, halves = taps * row_depth / 8, steps = (halves + 1) / 2;
constexpr int left_pad = 16;  // numbers before the first of a row: zeros, as many behind the last
constexpr int widest = 512;

struct Stem {
  int b, h, w, p, q;
  const float *scale, *offset;  // null: neither
  bool relu;

  __host__ __device__ int pitch() const { return w * channels + 2 * left_pad; }  // of a row
};

template <int rows>
constexpr int picture_rows = (rows - 1) * stride + taps;
constexpr int filter_bytes = steps * 16 * results * 2;
template <int rows>
int stem_bytes(const Stem& s) {
  return filter_bytes + 2 * picture_rows<rows> * s.pitch() * 2;
}

// Filters [7,7,3,64] as rows of the depth.
template <class T>
__device__ __forceinline__ void copy_filters(mma::Tile<results> to, const T* filters) {
  for (int i = static_cast<int>(threadIdx.x); i < steps * 16 * 8;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / 8, chunk = i % 8, tap_row = row / row_depth, j = row % row_depth - 1;
    const bool there = tap_row < taps && j >= 0 && j < taps * channels;
    mma::copy_16(to.at(static_cast<unsigned>(row), static_cast<unsigned>(chunk)),
                 filters + (there ? (tap_row * taps * channels + j) * results + chunk * 8 : 0),
                 there);
  }
}

// Rows of a picture under `rows` rows of results from `first` on; zeros above and below it.
template <int rows, class T>
__device__ __forceinline__ void copy_picture(const Stem& s, Word to, const T* images, int image,
                                             int first) {
  const int chunks = s.w * channels / 8;
  for (int i = static_cast<int>(threadIdx.x); i < picture_rows<rows> * chunks;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / chunks, chunk = i % chunks, y = first * stride - pad + row;
    const bool there = y >= 0 && y < s.h;
    const std::int64_t from =
        there ? (static_cast<std::int64_t>(image) * s.h + y) * s.w * channels + chunk * 8 : 0;
    mma::copy_16(to + static_cast<Word>((row * s.pitch() + left_pad + chunk * 8) * 2),
                 images + from, there);
  }
}

// 16 pixels from `column` on of `rows` rows of results.
template <int rows, class T>
__device__ __forceinline__ void multiply_pixels(float (&sum)[rows][results / 8][4], const Stem& s,
                                                const T* picture, mma::Tile<results> filters,
                                                int column) {
  const int g = mma::lane_id() / 4, t = mma::lane_id() % 4, pitch = s.pitch() / 2;
  // The pair before the first tap is read for its second number, the last pair for nothing.
  const Word first_pair = t == 0 ? 0xffff0000u : 0xffffffffu, last_pair = t == 3 ? 0u : 0xffffffffu;
  constexpr int before = left_pad - pad * channels - 1;  // even: words begin there
  // Pixels behind the last read the last one's numbers; nobody stores them.
  const int low = min(column + g, s.q - 1), high = min(column + g + 8, s.q - 1);
  const Word* const words = reinterpret_cast<const Word*>(picture) + before / 2 + t;
  const int low_at = low * stride * channels / 2, high_at = high * stride * channels / 2;
  const Word place = filters.across();
#pragma unroll
  for (int step = 0; step < steps; ++step) {
    Word right[results / 16][4];
#pragma unroll
    for (int n = 0; n < results / 16; ++n)
      mma::load_transposed(right[n], filters.moved(place, step * 16, n));
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      Word left[4] = {};
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int half = 2 * step + part;
        if (half >= halves) break;
        const int at = (half / 3 + r * stride) * pitch + half % 3 * 4;
        const Word keeps = half % 3 == 0 ? first_pair : half % 3 == 2 ? last_pair : 0xffffffffu;
        left[2 * part] = words[at + low_at] & keeps;
        left[2 * part + 1] = words[at + high_at] & keeps;
      }
#pragma unroll
      for (int n = 0; n < results / 16; ++n) {
        mma::multiply<T>(sum[r][2 * n], left, right[n][0], right[n][1]);
        mma::multiply<T>(sum[r][2 * n + 1], left, right[n][2], right[n][3]);
      }
    }
  }
}

template <int rows>
__device__ __forceinline__ void finish_pixels(float (&sum)[rows][results / 8][4], const Stem& s) {
  const int t = mma::lane_id() % 4;
#pragma unroll
  for (int n = 0; n < results / 8; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int o = 8 * n + 2 * t + e;
      const float scale = s.scale ? s.scale[o] : 1.0f, offset = s.scale ? s.offset[o] : 0.0f;
#pragma unroll
      for (int r = 0; r < rows; ++r)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& x = sum[r][n][2 * half + e];
          x = x * scale + offset;
          if (s.relu && x < 0) x = 0;  // NaN stays
        }
    }
}

// A unit of the work is `rows` rows of one image's results; the next unit's picture arrives while
// this one is worked on.
template <int rows, class T>
__global__ void __launch_bounds__(warps * 32, rows == 1 ? 3 : 2)
    stem_kernel(Stem s, const T* images, const T* weights, T* y) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  extern __shared__ __align__(128) unsigned char memory[];
  const mma::Tile<results> filters{mma::shared_address(memory)};
  T* const pictures = reinterpret_cast<T*>(memory + filter_bytes);
  const int picture = picture_rows<rows> * s.pitch();
  const int units_of_image = (s.p + rows - 1) / rows, units = s.b * units_of_image;
  const auto start = [&](int unit, int half) {
    copy_picture<rows>(s, mma::shared_address(pictures + half * picture), images,
                       unit / units_of_image, unit % units_of_image * rows);
  };
  int unit = static_cast<int>(blockIdx.x), half = 0;
  if (unit >= units) return;
  copy_filters(filters, weights);
  start(unit, 0);
  for (int i = static_cast<int>(threadIdx.x); i < 2 * picture_rows<rows> * 2 * left_pad;
       i += static_cast<int>(blockDim.x)) {
    const int row = i / (2 * left_pad), x = i % (2 * left_pad);
    pictures[row * s.pitch() + (x < left_pad ? x : x - left_pad + s.w * channels + left_pad)] =
        narrow<T>(0.0f);
  }
  for (; unit < units; unit += static_cast<int>(gridDim.x), half ^= 1) {
    mma::wait_for_copies();
    __syncthreads();  // this picture is there, and nobody reads the one before any more
    if (const int next = unit + static_cast<int>(gridDim.x); next < units) start(next, half ^ 1);
    const int image = unit / units_of_image, first = unit % units_of_image * rows;
    for (int column = static_cast<int>(threadIdx.x) / 32 * 16; column < s.q; column += warps * 16) {
      float sum[rows][results / 8][4] = {};
      multiply_pixels(sum, s, pictures + half * picture, filters, column);
      finish_pixels(sum, s);
#pragma unroll
      for (int r = 0; r < rows; ++r)
        if (first + r < s.p)
          mma::store_rows<results>(
              sum[r], 1, 1,
              y + ((static_cast<std::int64_t>(image) * s.p + first + r) * s.q + column) * results,
              results, s.q - column);
    }
  }
#endif
}

template <int rows, class T>
void launch_stem(const Stem& s, const void* images, const void* filters, void* y,
                 const Limits& limits, cudaStream_t stream) {
  const int bytes = stem_bytes<rows>(s), units = s.b * ((s.p + rows - 1) / rows);
  must(cudaFuncSetAttribute(stem_kernel<rows, T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            bytes),
       "shared memory of conv");
  const int blocks = std::min(units, limits.multiprocessors * (rows == 1 ? 3 : 2));
  stem_kernel<rows, T>
      <<<static_cast<unsigned>(blocks), warps * 32, static_cast<std::size_t>(bytes), stream>>>(
          s, static_cast<const T*>(images), static_cast<const T*>(filters), static_cast<T*>(y));
  launched("conv of three channels");
}

}  // namespace

bool is_stem(const ConvSizes& s, ir::DType dtype, const Limits& limits) {
  return ir::is_low(dtype) && limits.arch >= 80 && s.k == taps && s.l == taps && s.c == channels &&
         s.o == results && s.stride == stride && s.pad == pad && s.w % 8 == 0 && s.w <= widest &&
         s.images() > 0 && s.b * s.p < std::numeric_limits<int>::max() &&
         limits.shared_per_block >= 80 * 1024;
}

void conv_stem(const ConvSizes& sizes, ir::DType dtype, const void* images, const void* filters,
               const ConvFinish& finish, const Limits& limits, cudaStream_t stream) {
  const auto as_int = [](std::int64_t i) { return static_cast<int>(i); };
  const Stem s{.b = as_int(sizes.b),
               .h = as_int(sizes.h),
               .w = as_int(sizes.w),
               .p = as_int(sizes.p),
               .q = as_int(sizes.q),
               .scale = static_cast<const float*>(finish.scale),
               .offset = static_cast<const float*>(finish.offset),
               .relu = finish.relu};
  const bool few = sizes.b * sizes.p < std::int64_t{4} * limits.multiprocessors;
  const auto launch = [&]<class T>(T) {
    few ? launch_stem<1, T>(s, images, filters, finish.y, limits, stream)
        : launch_stem<2, T>(s, images, filters, finish.y, limits, stream);
  };
  dtype == ir::DType::f16 ? launch(F16{}) : launch(Bf16{});
}

}  // namespace tessera::exec::cuda
