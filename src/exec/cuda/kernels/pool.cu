// Max pooling over [b,h,w,c]. A thread has a few neighbouring channels of one pixel of the result.
// Floor: images and results pass through memory once (windows overlap in cache). The gradient asks,
// for each pixel, which windows it won, in the order of the windows: nothing is added by atomics.
#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {
namespace {

struct Windows {
  int images, rows, cols, channels;  // of the images
  int down, across;                  // windows
  int size, stride, pad;
};

Windows windows_of(const ir::Shape& x, const ir::Shape& y, const ir::Pool& attr) {
  constexpr std::int64_t most = (std::int64_t{1} << 31) - 1;
  CHECK(x[0] * x[1] * x[2] <= most && x[3] <= most && attr.stride <= most / 2,
        "max_pool: images " + ir::to_string(x) + " have more pixels than one launch takes");
  const auto narrow_int = [](std::int64_t i) { return static_cast<int>(i); };
  return {.images = narrow_int(x[0]),
          .rows = narrow_int(x[1]),
          .cols = narrow_int(x[2]),
          .channels = narrow_int(x[3]),
          .down = narrow_int(y[1]),
          .across = narrow_int(y[2]),
          .size = narrow_int(attr.size),
          .stride = narrow_int(attr.stride),
          .pad = narrow_int(attr.pad)};
}

// The first largest pixel of a window, row by row; a NaN is larger than everything.
template <class T, int pack>
__global__ void __launch_bounds__(256)
    max_pool_kernel(Windows w, const T* x, std::int64_t items, T* y, std::uint8_t* which) {
  const int packs = w.channels / pack;
  for (std::int64_t item = grid_thread(); item < items; item += grid_threads()) {
    const auto pixel = static_cast<int>(item / packs);
    const int channel = static_cast<int>(item - static_cast<std::int64_t>(pixel) * packs) * pack;
    const int q = pixel % w.across, p = pixel / w.across % w.down, b = pixel / w.across / w.down;
    Pack<T, pack> best{};
    Pack<std::uint8_t, pack> place{};
    bool first = true;
    for (int k = 0; k < w.size; ++k) {
      const int row = p * w.stride + k - w.pad;
      if (row < 0 || row >= w.rows) continue;
      for (int l = 0; l < w.size; ++l) {
        const int col = q * w.stride + l - w.pad;
        if (col < 0 || col >= w.cols) continue;
        const std::int64_t at =
            ((static_cast<std::int64_t>(b) * w.rows + row) * w.cols + col) * w.channels + channel;
        const auto value = *reinterpret_cast<const Pack<T, pack>*>(x + at);
        const auto number = static_cast<std::uint8_t>(k * w.size + l);
#pragma unroll
        for (int j = 0; j < pack; ++j) {
          const auto now = widen(value.at[j]), so_far = widen(best.at[j]);
          const bool wins = first || now > so_far || (now != now && so_far == so_far);
          best.at[j] = wins ? value.at[j] : best.at[j];
          place.at[j] = wins ? number : place.at[j];
        }
        first = false;
      }
    }
    const std::int64_t to = static_cast<std::int64_t>(pixel) * w.channels + channel;
    if (y) *reinterpret_cast<Pack<T, pack>*>(y + to) = best;
    if (which) *reinterpret_cast<Pack<std::uint8_t, pack>*>(which + to) = place;
  }
}

// Windows p that hold row r: p stride - pad <= r < p stride - pad + size.
struct Span {
  int first, last;
};
__device__ __forceinline__ Span holding(int r, int windows, const Windows& w) {
  const int low = r + w.pad - w.size + 1;
  return {low <= 0 ? 0 : (low + w.stride - 1) / w.stride, min(windows - 1, (r + w.pad) / w.stride)};
}

template <class T, int pack>
__global__ void __launch_bounds__(256)
    max_pool_grad_kernel(Windows w, const T* dy, const std::uint8_t* which, std::int64_t items,
                         T* dx) {
  const int packs = w.channels / pack;
  for (std::int64_t item = grid_thread(); item < items; item += grid_threads()) {
    const auto pixel = static_cast<int>(item / packs);
    const int channel = static_cast<int>(item - static_cast<std::int64_t>(pixel) * packs) * pack;
    const int col = pixel % w.cols, row = pixel / w.cols % w.rows, b = pixel / w.cols / w.rows;
    const Span ps = holding(row, w.down, w), qs = holding(col, w.across, w);
    Wide<T> sum[pack] = {};
    for (int p = ps.first; p <= ps.last; ++p)
      for (int q = qs.first; q <= qs.last; ++q) {
        const auto number = static_cast<std::uint8_t>((row - p * w.stride + w.pad) * w.size + col -
                                                      q * w.stride + w.pad);
        const std::int64_t at =
            ((static_cast<std::int64_t>(b) * w.down + p) * w.across + q) * w.channels + channel;
        const auto g = *reinterpret_cast<const Pack<T, pack>*>(dy + at);
        const auto place = *reinterpret_cast<const Pack<std::uint8_t, pack>*>(which + at);
#pragma unroll
        for (int j = 0; j < pack; ++j)
          sum[j] += place.at[j] == number ? widen(g.at[j]) : Wide<T>(0);
      }
    Pack<T, pack> out;
#pragma unroll
    for (int j = 0; j < pack; ++j) out.at[j] = narrow<T>(sum[j]);
    *reinterpret_cast<Pack<T, pack>*>(dx + static_cast<std::int64_t>(pixel) * w.channels +
                                      channel) = out;
  }
}

// 16 bytes of channels where both tensors of elements and that of bytes allow it.
template <class T>
bool packs_channels(int channels, const void* a, const void* b, const void* bytes) {
  constexpr int pack = per_16_bytes<T>;
  return channels % pack == 0 && aligned_16(a) && aligned_16(b) &&
         reinterpret_cast<std::uintptr_t>(bytes) % pack == 0;
}

}  // namespace

void run_max_pool(const Call& call) {
  // Where activations are recomputed only the second result may be read.
  const Tensor& made = call.out[0] ? call.out[0] : call.out[1];
  if (!made || made.elements() == 0) return;
  const Windows w = windows_of(call.in[0].shape, made.shape, call.attr<ir::Pool>());
  with_float(call.in[0].dtype, [&]<class T>(T) {
    const T* x = call.in[0].as<T>();
    T* y = call.out[0].as<T>();
    std::uint8_t* which = call.out[1].as<std::uint8_t>();
    constexpr int pack = per_16_bytes<T>;
    const bool packs = packs_channels<T>(w.channels, x, y, which);
    const std::int64_t items = made.elements() / (packs ? pack : 1);
    const unsigned grid = grid_for(items, 256);
    if (packs)
      max_pool_kernel<T, pack><<<grid, 256, 0, call.stream>>>(w, x, items, y, which);
    else
      max_pool_kernel<T, 1><<<grid, 256, 0, call.stream>>>(w, x, items, y, which);
    launched("max_pool");
  });
}

void run_max_pool_grad(const Call& call) {
  if (call.out[0].elements() == 0 || !call.out[0]) return;
  const Windows w = windows_of(call.out[0].shape, call.in[0].shape, call.attr<ir::Pool>());
  with_float(call.in[0].dtype, [&]<class T>(T) {
    const T* dy = call.in[0].as<T>();
    T* dx = call.out[0].as<T>();
    const std::uint8_t* which = call.in[1].as<std::uint8_t>();
    constexpr int pack = per_16_bytes<T>;
    const bool packs = packs_channels<T>(w.channels, dy, dx, which);
    const std::int64_t items = call.out[0].elements() / (packs ? pack : 1);
    const unsigned grid = grid_for(items, 256);
    if (packs)
      max_pool_grad_kernel<T, pack><<<grid, 256, 0, call.stream>>>(w, dy, which, items, dx);
    else
      max_pool_grad_kernel<T, 1><<<grid, 256, 0, call.stream>>>(w, dy, which, items, dx);
    launched("max_pool_grad");
  });
}

}  // namespace tessera::exec::cuda
