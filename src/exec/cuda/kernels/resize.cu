// Pictures of another size, with the bits of the loader. Floor: the result is written once, and
// what a picture has fits into the caches. Weights are computed on the host in double as the loader
// computes them, travel to the workspace as parameters of small kernels (4 KB is what every tool
// and card takes), and lie in shared memory where they fit.
#include <algorithm>
#include <vector>

#include "exec/common/resize.h"
#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int resize_threads = 256;
constexpr int most_at_once = 1000;        // numbers that one kernel brings
constexpr int most_near = 48 * 1024 / 4;  // numbers that shared memory holds

struct Numbers {
  int begin = 0, size = 0;
  std::int32_t of[most_at_once];
};
// Targets of one direction: their first source positions, then `count` weights of each.
struct Direction {
  int size = 0, count = 0;

  __host__ __device__ int numbers() const { return size * (1 + count); }
};
struct ResizeShape {
  std::int64_t h, w, c;  // of an operand
  Direction across, down;
};

__device__ __forceinline__ int clipped(std::int32_t sum) {
  return min(max(sum >> tap_bits, 0), 255);
}

__global__ void __launch_bounds__(resize_threads)
    bring_numbers(std::int32_t* to, const __grid_constant__ Numbers numbers) {
  for (int i = static_cast<int>(threadIdx.x); i < numbers.size; i += resize_threads)
    to[numbers.begin + i] = numbers.of[i];
}

// `near`: the numbers are copied into shared memory first.
__global__ void __launch_bounds__(resize_threads)
    resize_pictures(const std::uint8_t* from, std::uint8_t* to, std::int64_t samples,
                    ResizeShape shape, const std::int32_t* numbers, bool near) {
  extern __shared__ std::int32_t shared[];
  const int wide = shape.across.size, high = shape.down.size;
  if (near) {
    const int all = shape.across.numbers() + shape.down.numbers();
    for (int i = static_cast<int>(threadIdx.x); i < all; i += resize_threads)
      shared[i] = numbers[i];
    __syncthreads();
  }
  const std::int32_t *const across = near ? shared : numbers, *const down =
                                                                  across + shape.across.numbers();
  const std::int64_t pixels = std::int64_t{wide} * high,
                     step = std::int64_t{gridDim.x} * resize_threads;
  const int c = static_cast<int>(shape.c);
  const std::int64_t row = shape.w * shape.c;
  for (std::int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    const std::uint8_t* const picture = from + sample * shape.h * row;
    std::uint8_t* const made = to + sample * pixels * c;
    for (std::int64_t i = std::int64_t{blockIdx.x} * resize_threads + threadIdx.x; i < pixels;
         i += step) {
      const int y = static_cast<int>(i / wide), x = static_cast<int>(i % wide);
      const std::int32_t *const wx = across + wide + x * shape.across.count,
                                *const wy = down + high + y * shape.down.count;
      const std::uint8_t* const corner = picture + down[y] * row + across[x] * c;
      for (int k = 0; k < c; ++k) {
        std::int32_t sum = tap_half;
        for (int ty = 0; ty < shape.down.count; ++ty) {
          std::int32_t inner = tap_half;
          for (int tx = 0; tx < shape.across.count; ++tx)
            inner += wx[tx] * static_cast<std::int32_t>(corner[ty * row + tx * c + k]);
          sum += wy[ty] * clipped(inner);
        }
        made[i * c + k] = static_cast<std::uint8_t>(clipped(sum));
      }
    }
  }
}

// The numbers of both directions as the kernel reads them.
struct ResizeTables {
  Direction across, down;
  std::vector<Numbers> parts;
};

ResizeTables tables_of(const ir::Resize& attr, const ir::Shape& pictures) {
  const ResizeTaps taps = resize_taps(attr, pictures);
  std::vector<std::int32_t> all;
  const auto add = [&](const Taps& t) {
    all.insert(all.end(), t.first.begin(), t.first.end());
    all.insert(all.end(), t.weights.begin(), t.weights.end());
    return Direction{static_cast<int>(t.first.size()), t.count};
  };
  ResizeTables out;
  out.across = add(taps.across);
  out.down = add(taps.down);
  for (std::size_t begin = 0; begin < all.size(); begin += most_at_once) {
    Numbers& part = out.parts.emplace_back();
    part.begin = static_cast<int>(begin);
    part.size = static_cast<int>(std::min<std::size_t>(most_at_once, all.size() - begin));
    std::copy_n(all.data() + begin, part.size, part.of);
  }
  return out;
}

}  // namespace

std::int64_t workspace_resize(const ir::Attrs& attrs, std::span<const ir::Type> in,
                              std::span<const ir::Type>, const Limits&) {
  const ResizeTaps taps = resize_taps(std::get<ir::Resize>(attrs), in[0].shape);
  const auto numbers = [](const Taps& t) { return t.first.size() * (1 + std::size_t(t.count)); };
  return static_cast<std::int64_t>(sizeof(std::int32_t) *
                                   (numbers(taps.across) + numbers(taps.down)));
}

void run_resize(const Call& call) {
  if (call.out[0].elements() == 0) return;
  const ir::Shape &from = call.in[0].shape, &to = call.out[0].shape;
  const ResizeTables& tables =
      call.once<ResizeTables>([&] { return tables_of(call.attr<ir::Resize>(), call.in[0].shape); });
  std::int32_t* const numbers = call.scratch<std::int32_t>();
  for (const Numbers& part : tables.parts) {
    bring_numbers<<<1, resize_threads, 0, call.stream>>>(numbers, part);
    launched("bring_numbers");
  }
  const int all = tables.across.numbers() + tables.down.numbers();
  const bool near = all <= most_near;
  const std::int64_t pixels = to[1] * to[2],
                     blocks = (pixels + resize_threads - 1) / resize_threads,
                     at_once = 8 * std::int64_t{call.context.limits.multiprocessors};
  // Reading the weights takes a block longer than a few pixels do: no more blocks than run at once.
  const std::int64_t deep =
      std::min<std::int64_t>(to[0], std::max<std::int64_t>(1, at_once / blocks));
  const dim3 grid(static_cast<unsigned>(std::min(blocks, at_once)), static_cast<unsigned>(deep));
  resize_pictures<<<grid, resize_threads, near ? sizeof(std::int32_t) * std::size_t(all) : 0,
                    call.stream>>>(call.in[0].as<std::uint8_t>(), call.out[0].as<std::uint8_t>(),
                                   to[0], {from[1], from[2], from[3], tables.across, tables.down},
                                   numbers, near);
  launched("resize_pictures");
}

}  // namespace tessera::exec::cuda
