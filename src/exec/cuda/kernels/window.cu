// Shifted windows: cutting an image of tokens into windows and back, the mask of the shifted ones,
// and the bias by relative position. Legend: b batch, h w image of tokens, c channel, n window, t
// token of a window (i, j: two of them). Floor: bytes of operand and result.
#include "exec/cuda/elements.cuh"
#include "exec/cuda/kernels/move.h"

namespace tessera::exec::cuda {

namespace {

constexpr int window_threads = 256;

// Where token `t` of window `n` lies in the padded image; positions fit 32 bits, as the ops check.
struct WindowGrid {
  int wh, ww, rows, columns;  // of a window; windows along each dim
  int sh, sw;                 // the shift
  int h, w;                   // the image without its padding

  WindowGrid(const ir::Shape& size, const ir::Shape& shift, std::int64_t height, std::int64_t width)
      : wh(static_cast<int>(size[0])),
        ww(static_cast<int>(size[1])),
        rows(static_cast<int>((height + wh - 1) / wh)),
        columns(static_cast<int>((width + ww - 1) / ww)),
        sh(static_cast<int>(shift[0])),
        sw(static_cast<int>(shift[1])),
        h(static_cast<int>(height)),
        w(static_cast<int>(width)) {}
  std::int64_t windows() const { return static_cast<std::int64_t>(rows) * columns; }
};

// A block moves one window, or its share of it (blockIdx.y), `vectors` units of U per token;
// `cuts`: from image to windows.
template <class U, bool cuts>
__global__ void __launch_bounds__(window_threads)
    window_kernel(const U* x, U* y, WindowGrid grid, std::int64_t windows, int vectors) {
  const std::int64_t tokens = static_cast<std::int64_t>(grid.wh) * grid.ww;
  for (std::int64_t window = blockIdx.x; window < windows; window += gridDim.x) {
    const std::int64_t per_image = static_cast<std::int64_t>(grid.rows) * grid.columns;
    const std::int64_t b = window / per_image;
    const int n = static_cast<int>(window % per_image);
    const int top = n / grid.columns * grid.wh + grid.sh,
              left = n % grid.columns * grid.ww + grid.sw;
    const int height = grid.rows * grid.wh, width = grid.columns * grid.ww;
    // Few threads share a token when it is short: the others have the next tokens.
    const unsigned across = min(static_cast<unsigned>(vectors), blockDim.x);
    const unsigned lane = threadIdx.x % across, down = blockDim.x / across;
    if (threadIdx.x >= across * down) continue;
    for (std::int64_t t = blockIdx.y * down + threadIdx.x / across; t < tokens;
         t += static_cast<std::int64_t>(gridDim.y) * down) {
      int row = top + static_cast<int>(t / grid.ww), column = left + static_cast<int>(t % grid.ww);
      if (row >= height) row -= height;
      if (column >= width) column -= width;
      const bool inside = row < grid.h && column < grid.w;
      const std::int64_t in_window = (window * tokens + t) * vectors;
      const std::int64_t in_image =
          ((b * grid.h + row) * grid.w + column) * static_cast<std::int64_t>(vectors);
      for (int v = static_cast<int>(lane); v < vectors; v += static_cast<int>(across)) {
        if constexpr (cuts)
          y[in_window + v] = inside ? x[in_image + v] : U{};
        else if (inside)
          y[in_image + v] = x[in_window + v];
      }
    }
  }
}

template <bool cuts>
void move_windows(const Call& call, const ir::Shape& image) {
  const auto& attr = call.attr<ir::Window>();
  const Tensor &x = call.in[0], &y = call.out[0];
  if (x.elements() == 0 && y.elements() == 0) return;
  const WindowGrid grid(attr.size, attr.shift, image[1], image[2]);
  const std::int64_t windows = image[0] * grid.windows();
  const std::int64_t bytes = image[3] * static_cast<std::int64_t>(ir::size_of(x.dtype));
  if (windows == 0 || bytes == 0) return;
  with_unit(common_unit({x.data, y.data}, {bytes}), [&](auto unit) {
    using U = decltype(unit);
    const int vectors = static_cast<int>(bytes / static_cast<std::int64_t>(sizeof(U)));
    // Where windows leave multiprocessors without work, several blocks share the tokens of one.
    const std::int64_t tokens = attr.size[0] * attr.size[1],
                       down = std::max(1, window_threads / vectors);
    const std::int64_t shares = std::clamp<std::int64_t>(
        4 * call.context.limits.multiprocessors / windows, 1, (tokens + down - 1) / down);
    const dim3 blocks(grid_for(windows, 1, 0x7fffffff), static_cast<unsigned>(shares));
    window_kernel<U, cuts>
        <<<blocks, window_threads, 0, call.stream>>>(x.as<U>(), y.as<U>(), grid, windows, vectors);
  });
  launched("window");
}

// Which of the parts of a rolled dim a position belongs to: the last window holds what came from
// the other end after its first part.
__device__ int part_of(int position, int extent, int size, int shift) {
  return shift == 0 || position < extent - size ? 0 : position < extent - shift ? 1 : 2;
}

template <class T>
__global__ void __launch_bounds__(window_threads)
    window_mask_kernel(T* mask, WindowGrid grid, std::int64_t elements) {
  const int tokens = grid.wh * grid.ww;
  for (std::int64_t e = grid_thread(); e < elements; e += grid_threads()) {
    const int j = static_cast<int>(e % tokens), i = static_cast<int>(e / tokens % tokens);
    const int n = static_cast<int>(e / tokens / tokens);
    const auto region = [&](int t) {
      return 3 * part_of(n / grid.columns * grid.wh + t / grid.ww, grid.rows * grid.wh, grid.wh,
                         grid.sh) +
             part_of(n % grid.columns * grid.ww + t % grid.ww, grid.columns * grid.ww, grid.ww,
                     grid.sw);
    };
    mask[e] = narrow<T>(region(i) == region(j) ? Wide<T>(0) : Wide<T>(-100));
  }
}

// bias[h][i][j] = table[row of position i - position j][h]
template <class T>
__global__ void __launch_bounds__(window_threads)
    bias_table_kernel(const T* table, T* bias, int wh, int ww, int heads) {
  const std::int64_t tokens = static_cast<std::int64_t>(wh) * ww,
                     elements = heads * tokens * tokens;
  for (std::int64_t e = grid_thread(); e < elements; e += grid_threads()) {
    const int j = static_cast<int>(e % tokens), i = static_cast<int>(e / tokens % tokens);
    const int head = static_cast<int>(e / tokens / tokens);
    const int dy = i / ww - j / ww + wh - 1, dx = i % ww - j % ww + ww - 1;
    bias[e] = table[(static_cast<std::int64_t>(dy) * (2 * ww - 1) + dx) * heads + head];
  }
}

// A thread owns a row of the table for one head: pairs are added in the order of i.
template <class T>
__global__ void __launch_bounds__(window_threads)
    bias_table_grad_kernel(const T* g, T* table, int wh, int ww, int heads) {
  const std::int64_t tokens = static_cast<std::int64_t>(wh) * ww;
  const std::int64_t elements = static_cast<std::int64_t>(2 * wh - 1) * (2 * ww - 1) * heads;
  for (std::int64_t e = grid_thread(); e < elements; e += grid_threads()) {
    const std::int64_t head = e % heads, row = e / heads;
    const int dy = static_cast<int>(row / (2 * ww - 1)) - (wh - 1),
              dx = static_cast<int>(row % (2 * ww - 1)) - (ww - 1);
    Wide<T> sum = 0;
    for (int y = max(dy, 0); y < min(wh, wh + dy); ++y)
      for (int x = max(dx, 0); x < min(ww, ww + dx); ++x) {
        const std::int64_t i = static_cast<std::int64_t>(y) * ww + x,
                           j = static_cast<std::int64_t>(y - dy) * ww + x - dx;
        sum += widen(g[(head * tokens + i) * tokens + j]);
      }
    table[e] = narrow<T>(sum);
  }
}

}  // namespace

void run_window(const Call& call) { move_windows<true>(call, call.in[0].shape); }
void run_unwindow(const Call& call) { move_windows<false>(call, call.out[0].shape); }

void run_window_mask(const Call& call) {
  const auto& attr = call.attr<ir::WindowMask>();
  const WindowGrid grid(attr.size, attr.shift, attr.image[0], attr.image[1]);
  const std::int64_t elements = call.out[0].elements();
  if (elements == 0) return;
  with_float(call.out[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    window_mask_kernel<T><<<grid_for(elements, window_threads), window_threads, 0, call.stream>>>(
        call.out[0].as<T>(), grid, elements);
  });
  launched("window_mask");
}

void run_bias_table(const Call& call) {
  const ir::Shape& size = call.attr<ir::BiasTable>().size;
  const std::int64_t elements = call.out[0].elements();
  if (elements == 0) return;
  with_float(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    bias_table_kernel<T><<<grid_for(elements, window_threads), window_threads, 0, call.stream>>>(
        call.in[0].as<T>(), call.out[0].as<T>(), static_cast<int>(size[0]),
        static_cast<int>(size[1]), static_cast<int>(call.in[0].shape[1]));
  });
  launched("bias_table");
}

void run_bias_table_grad(const Call& call) {
  const ir::Shape& size = call.attr<ir::BiasTable>().size;
  const std::int64_t elements = call.out[0].elements();
  if (elements == 0) return;
  with_float(call.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    bias_table_grad_kernel<T><<<grid_for(elements, 64), 64, 0, call.stream>>>(
        call.in[0].as<T>(), call.out[0].as<T>(), static_cast<int>(size[0]),
        static_cast<int>(size[1]), static_cast<int>(call.in[0].shape[0]));
  });
  launched("bias_table_grad");
}

}  // namespace tessera::exec::cuda
