// Convolution by kernels of our own, as matrix products whose first factor is gathered while tiles
// are loaded into shared memory. They serve where cuDNN is missing or refuses, and f64.
#include "exec/cuda/elements.cuh"
#include "exec/cuda/products/conv.h"

namespace tessera::exec::cuda {
namespace {

constexpr int conv_tile = 64, conv_depth = 16, conv_threads = 256, conv_each = 4;

struct Geometry {
  int b, h, w, c, p, q, o, k, l, stride, pad;
  int rows, cols, depth;  // of the matrix product
};

Geometry geometry_of(ConvPass pass, const ConvSizes& s) {
  const std::int64_t pixels = s.b * s.p * s.q, taps = s.k * s.l;
  const std::int64_t rows = pass == ConvPass::forward      ? pixels
                            : pass == ConvPass::input_grad ? s.b * s.h * s.w
                                                           : taps * s.c;
  const std::int64_t cols = pass == ConvPass::input_grad ? s.c : s.o;
  const std::int64_t depth = pass == ConvPass::forward      ? taps * s.c
                             : pass == ConvPass::input_grad ? taps * s.o
                                                            : pixels;
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1 - 1024;
  CHECK(rows <= most && cols <= most && depth <= most && s.stride <= most && s.pad <= most,
        "conv: more pixels or channels than one launch takes");
  const auto as_int = [](std::int64_t i) { return static_cast<int>(i); };
  return {.b = as_int(s.b),
          .h = as_int(s.h),
          .w = as_int(s.w),
          .c = as_int(s.c),
          .p = as_int(s.p),
          .q = as_int(s.q),
          .o = as_int(s.o),
          .k = as_int(s.k),
          .l = as_int(s.l),
          .stride = as_int(s.stride),
          .pad = as_int(s.pad),
          .rows = as_int(rows),
          .cols = as_int(cols),
          .depth = as_int(depth)};
}

// A pixel of the rows, or a tap with its channel: (outermost, middle, innermost) of a number.
struct Triple {
  int x, y, z;
};
__device__ __forceinline__ Triple split_number(int number, int middle, int inner) {
  const int rest = number / inner;
  return {rest / middle, rest % middle, number % inner};
}

// The value that the pixel (image, p, q) of the results reads under a tap.
template <class T>
__device__ __forceinline__ Wide<T> under_tap(const Geometry& g, const T* images, Triple pixel,
                                             Triple tap) {
  const int row = pixel.y * g.stride + tap.x - g.pad, col = pixel.z * g.stride + tap.y - g.pad;
  if (row < 0 || row >= g.h || col < 0 || col >= g.w) return Wide<T>(0);
  const std::int64_t at = (static_cast<std::int64_t>(pixel.x) * g.h + row) * g.w + col;
  return widen(images[at * g.c + tap.z]);
}
// The gradient that reaches the pixel (image, row, col) of the images through a tap.
template <class T>
__device__ __forceinline__ Wide<T> through_tap(const Geometry& g, const T* dy, Triple pixel,
                                               Triple tap) {
  const int row = pixel.y + g.pad - tap.x, col = pixel.z + g.pad - tap.y;
  if (row < 0 || col < 0 || row % g.stride != 0 || col % g.stride != 0) return Wide<T>(0);
  const int p = row / g.stride, q = col / g.stride;
  if (p >= g.p || q >= g.q) return Wide<T>(0);
  const std::int64_t at = (static_cast<std::int64_t>(pixel.x) * g.p + p) * g.q + q;
  return widen(dy[at * g.o + tap.z]);
}

// Loads of one tile: left[depth][row], right[depth][col], each thread 4 elements of either.
// Neighbouring threads read neighbouring channels.
template <ConvPass pass, class T, class W>
__device__ __forceinline__ void load_tiles(const Geometry& g, const T* first, const T* second,
                                           int row0, int col0, int depth0, int depth_end,
                                           W (&left)[conv_depth][conv_tile + 1],
                                           W (&right)[conv_depth][conv_tile + 1]) {
  const int t = threadIdx.x;
  constexpr bool filter = pass == ConvPass::filter_grad, input = pass == ConvPass::input_grad;
#pragma unroll
  for (int i = 0; i < conv_each; ++i) {
    // Left: along channels, which are the depth of images and the rows of a filter gradient.
    const int r = filter ? t % conv_tile : t / conv_depth + conv_depth * i;
    const int d = filter ? t / conv_tile + conv_each * i : t % conv_depth;
    const int row = row0 + r, depth = depth0 + d;
    W value(0);
    if (row < g.rows && depth < depth_end) {
      if constexpr (filter) {
        const Triple tap_row = split_number(row, g.l, g.c);
        value = under_tap(g, second, split_number(depth, g.p, g.q), tap_row);
      } else if constexpr (input) {
        value = through_tap(g, first, split_number(row, g.h, g.w), split_number(depth, g.l, g.o));
      } else {
        value = under_tap(g, first, split_number(row, g.p, g.q), split_number(depth, g.l, g.c));
      }
    }
    left[d][r] = value;
    const int n = input ? t / conv_depth + conv_depth * i : t % conv_tile;
    const int e = input ? t % conv_depth : t / conv_tile + conv_each * i;
    const int col = col0 + n, at = depth0 + e;
    W other(0);
    if (col < g.cols && at < depth_end) {
      if constexpr (input) {
        const int tap = at / g.o, o = at % g.o;
        other = widen(second[(static_cast<std::int64_t>(tap) * g.c + col) * g.o + o]);
      } else {
        other = widen((filter ? first : second)[static_cast<std::int64_t>(at) * g.o + col]);
      }
    }
    right[e][n] = other;
  }
}

// The operands that a result of a forward pass meets on its way out.
template <class T>
struct Ending {
  const Wide<T>*scale = nullptr, *offset = nullptr;
  const T* addend = nullptr;
  bool relu = false;

  __device__ __forceinline__ T of(Wide<T> z, std::int64_t at, std::int64_t channel) const {
    if (scale) z = z * scale[channel] + offset[channel];
    if (addend) z += widen(addend[at]);
    if (relu && z < Wide<T>(0)) z = Wide<T>(0);  // a NaN stays
    return narrow<T>(z);
  }
};

// A block makes 64 x 64 elements, a thread 4 x 4 of them at distances of 16. `parts`: the sum over
// a part of the depth, blockIdx.z of gridDim.z, goes there; null: the whole goes to `out`.
template <ConvPass pass, class T>
__global__ void __launch_bounds__(conv_threads)
    conv_kernel(Geometry g, const T* first, const T* second, T* out, Wide<T>* parts,
                Ending<T> ending) {
  using W = Wide<T>;
  __shared__ W left[conv_depth][conv_tile + 1], right[conv_depth][conv_tile + 1];
  const unsigned across = (g.cols + conv_tile - 1) / conv_tile;
  const int row0 = static_cast<int>(blockIdx.x / across) * conv_tile;
  const int col0 = static_cast<int>(blockIdx.x % across) * conv_tile;
  const std::int64_t whole = g.depth, part = (whole + gridDim.z - 1) / gridDim.z;
  const int begin = static_cast<int>(min(whole, part * blockIdx.z));
  const int end = static_cast<int>(min(whole, part * (blockIdx.z + 1)));
  const int row = threadIdx.x / 16, col = threadIdx.x % 16;
  W sum[conv_each][conv_each] = {};
  for (int depth = begin; depth < end; depth += conv_depth) {
    load_tiles<pass>(g, first, second, row0, col0, depth, end, left, right);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < conv_depth; ++d) {
      W x[conv_each], y[conv_each];
#pragma unroll
      for (int i = 0; i < conv_each; ++i) x[i] = left[d][row + 16 * i];
#pragma unroll
      for (int j = 0; j < conv_each; ++j) y[j] = right[d][col + 16 * j];
#pragma unroll
      for (int i = 0; i < conv_each; ++i)
#pragma unroll
        for (int j = 0; j < conv_each; ++j) sum[i][j] += x[i] * y[j];
    }
    __syncthreads();
  }
  const std::int64_t base = static_cast<std::int64_t>(blockIdx.z) * g.rows;
#pragma unroll
  for (int i = 0; i < conv_each; ++i)
#pragma unroll
    for (int j = 0; j < conv_each; ++j) {
      const std::int64_t m = row0 + row + 16 * i, n = col0 + col + 16 * j;
      if (m >= g.rows || n >= g.cols) continue;
      if (parts)
        parts[(base + m) * g.cols + n] = sum[i][j];
      else
        out[m * g.cols + n] = ending.of(sum[i][j], m * g.cols + n, n);
    }
}

template <class T>
__global__ void add_filter_parts_kernel(std::int64_t elements, std::int64_t count,
                                        const Wide<T>* parts, T* out) {
  for (std::int64_t i = grid_thread(); i < elements; i += grid_threads()) {
    double sum = 0;
    for (std::int64_t part = 0; part < count; ++part)
      sum += static_cast<double>(parts[part * elements + i]);
    out[i] = narrow<T>(sum);
  }
}

template <ConvPass pass, class T>
void launch_conv(const ConvSizes& sizes, const void* first, const void* second, void* out,
                 void* parts, std::int64_t count, const Ending<T>& ending, cudaStream_t stream) {
  const Geometry g = geometry_of(pass, sizes);
  const std::int64_t tiles = ((static_cast<std::int64_t>(g.rows) + conv_tile - 1) / conv_tile) *
                             ((static_cast<std::int64_t>(g.cols) + conv_tile - 1) / conv_tile);
  CHECK(tiles < (std::int64_t{1} << 31), "conv: more tiles than one launch takes");
  const dim3 grid(static_cast<unsigned>(tiles), 1, static_cast<unsigned>(count));
  conv_kernel<pass, T><<<grid, conv_threads, 0, stream>>>(
      g, static_cast<const T*>(first), static_cast<const T*>(second), static_cast<T*>(out),
      count > 1 ? static_cast<Wide<T>*>(parts) : nullptr, ending);
  launched("conv (plain)");
  if (count == 1) return;
  const std::int64_t elements = sizes.filters();
  add_filter_parts_kernel<T><<<grid_for(elements, 256), 256, 0, stream>>>(
      elements, count, static_cast<const Wide<T>*>(parts), static_cast<T*>(out));
  launched("conv_filter_grad (parts)");
}

}  // namespace

std::int64_t conv_parts(const ConvSizes& s, const Limits& limits) {
  const std::int64_t tiles =
      (s.k * s.l * s.c + conv_tile - 1) / conv_tile * ((s.o + conv_tile - 1) / conv_tile);
  if (tiles == 0) return 1;
  const std::int64_t most = std::min<std::int64_t>(256, s.b * s.p * s.q / 256);
  return std::clamp<std::int64_t>(4 * limits.multiprocessors / tiles, 1,
                                  std::max<std::int64_t>(1, most));
}

void conv_plain(const ConvSizes& sizes, ir::DType dtype, const void* images, const void* filters,
                const ConvFinish& finish, cudaStream_t stream) {
  if (sizes.results() == 0) return;
  with_float(dtype, [&]<class T>(T) {
    const Ending<T> ending{.scale = static_cast<const Wide<T>*>(finish.scale),
                           .offset = static_cast<const Wide<T>*>(finish.offset),
                           .addend = static_cast<const T*>(finish.addend),
                           .relu = finish.relu};
    launch_conv<ConvPass::forward, T>(sizes, images, filters, finish.y, nullptr, 1, ending, stream);
  });
}

void conv_plain_grad(ConvPass pass, const ConvSizes& sizes, ir::DType dtype, const void* first,
                     const void* second, void* out, void* parts, const Limits& limits,
                     cudaStream_t stream) {
  with_float(dtype, [&]<class T>(T) {
    if (pass == ConvPass::input_grad && sizes.images() > 0)
      launch_conv<ConvPass::input_grad, T>(sizes, first, second, out, nullptr, 1, {}, stream);
    if (pass == ConvPass::filter_grad && sizes.filters() > 0)
      launch_conv<ConvPass::filter_grad, T>(sizes, first, second, out, parts,
                                            parts ? conv_parts(sizes, limits) : 1, {}, stream);
  });
}

}  // namespace tessera::exec::cuda
