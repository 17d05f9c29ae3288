// Pictures of another size, with the bits of the loader. Floor: the result is written once, and
// what a picture has fits into the caches. Weights come from the host, computed in double as the
// loader computes them; they travel as the kernel's parameter and lie in shared memory, a window of
// the result at a time where they are too many.
#include <array>
#include <vector>

#include "base/check.h"
#include "exec/common/resize.h"
#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int resize_threads = 256;
constexpr int most_taps = 3500;  // numbers of one direction: both fit into a kernel's parameters

// Targets of one direction: their first source positions, then `count` weights of each.
struct Direction {
  int begin = 0, size = 0, count = 0;  // of the result
  std::int32_t of[most_taps];

  __host__ __device__ int numbers() const { return size * (1 + count); }
};
struct ResizeWindow {
  Direction across, down;
};
struct ResizeShape {
  std::int64_t h, w, c, rows, columns;  // of an operand, of a result
};

__device__ __forceinline__ int clipped(std::int32_t sum) {
  return min(max(sum >> tap_bits, 0), 255);
}

__global__ void __launch_bounds__(resize_threads)
    resize_pictures(const std::uint8_t* from, std::uint8_t* to, std::int64_t samples,
                    ResizeShape shape, const __grid_constant__ ResizeWindow window) {
  __shared__ std::int32_t across[most_taps], down[most_taps];
  const int wide = window.across.size, high = window.down.size;
  for (int i = static_cast<int>(threadIdx.x); i < window.across.numbers(); i += resize_threads)
    across[i] = window.across.of[i];
  for (int i = static_cast<int>(threadIdx.x); i < window.down.numbers(); i += resize_threads)
    down[i] = window.down.of[i];
  __syncthreads();
  const int c = static_cast<int>(shape.c), pixels = wide * high,
            step = static_cast<int>(gridDim.x) * resize_threads;
  const std::int64_t row = shape.w * shape.c;
  for (std::int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    const std::uint8_t* const picture = from + sample * shape.h * row;
    std::uint8_t* const made = to + sample * shape.rows * shape.columns * shape.c;
    for (int i = static_cast<int>(blockIdx.x) * resize_threads + static_cast<int>(threadIdx.x);
         i < pixels; i += step) {
      const int y = i / wide, x = i % wide;
      const std::int32_t *const wx = across + wide + x * window.across.count,
                                *const wy = down + high + y * window.down.count;
      const std::uint8_t* const corner = picture + down[y] * row + across[x] * c;
      std::uint8_t* const out =
          made + ((window.down.begin + y) * shape.columns + window.across.begin + x) * c;
      for (int k = 0; k < c; ++k) {
        std::int32_t sum = tap_half;
        for (int ty = 0; ty < window.down.count; ++ty) {
          std::int32_t inner = tap_half;
          for (int tx = 0; tx < window.across.count; ++tx)
            inner += wx[tx] * static_cast<std::int32_t>(corner[ty * row + tx * c + k]);
          sum += wy[ty] * clipped(inner);
        }
        out[k] = static_cast<std::uint8_t>(clipped(sum));
      }
    }
  }
}

std::vector<Direction> directions_of(const Taps& taps) {
  const int all = static_cast<int>(taps.first.size()), most = most_taps / (1 + taps.count);
  CHECK(most > 0, "resize: a value is made of more than " + std::to_string(most_taps - 1));
  std::vector<Direction> out;
  for (int begin = 0; begin < all; begin += most) {
    Direction& d = out.emplace_back();
    d.begin = begin, d.size = std::min(most, all - begin), d.count = taps.count;
    for (int i = 0; i < d.size; ++i) {
      d.of[i] = taps.first[static_cast<std::size_t>(begin + i)];
      for (int t = 0; t < d.count; ++t)
        d.of[d.size + i * d.count + t] =
            taps.weights[static_cast<std::size_t>((begin + i) * d.count + t)];
    }
  }
  return out;
}

std::vector<ResizeWindow> windows_of(const Call& call) {
  const ResizeTaps taps = resize_taps(call.attr<ir::Resize>(), call.in[0].shape);
  std::vector<ResizeWindow> out;
  for (const Direction& down : directions_of(taps.down))
    for (const Direction& across : directions_of(taps.across)) out.push_back({across, down});
  return out;
}

}  // namespace

void run_resize(const Call& call) {
  if (call.out[0].elements() == 0) return;
  const ir::Shape &from = call.in[0].shape, &to = call.out[0].shape;
  const ResizeShape shape{from[1], from[2], from[3], to[1], to[2]};
  for (const ResizeWindow& window :
       call.once<std::vector<ResizeWindow>>([&] { return windows_of(call); })) {
    const std::int64_t pixels = std::int64_t{window.across.size} * window.down.size;
    const std::int64_t blocks = (pixels + resize_threads - 1) / resize_threads,
                       at_once = 8 * std::int64_t{call.context.limits.multiprocessors};
    // Reading the weights takes a block longer than a few pixels do: no more blocks than run at
    // once.
    const std::int64_t deep =
        std::min<std::int64_t>(to[0], std::max<std::int64_t>(1, at_once / blocks));
    resize_pictures<<<dim3(static_cast<unsigned>(std::min(blocks, at_once)),
                           static_cast<unsigned>(deep)),
                      resize_threads, 0, call.stream>>>(
        call.in[0].as<std::uint8_t>(), call.out[0].as<std::uint8_t>(), to[0], shape, window);
    launched("resize_pictures");
  }
}

}  // namespace tessera::exec::cuda
