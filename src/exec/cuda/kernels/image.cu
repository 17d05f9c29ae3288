// Pixels to numbers. The floor is the bytes: one read and an element of the result written per
// value. A value is put into a straight line of its channel, which the host has found to give the
// bits of the CPU's table for all 256 values (exec/common/pixel_line.h); where there is none it is
// computed in double.
#include <bit>

#include "exec/common/pixel_line.h"
#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int image_threads = 256;

template <int channels>
struct Lines {
  PixelLine of[channels] = {};
  bool found = true;
};

__device__ __forceinline__ float on_line(const PixelLine& line, std::uint8_t pixel) {
  const float x = pixel;
  return __fadd_rn(__fmaf_rn(x, line.slope, line.offset),
                   __fmaf_rn(x, line.slope_rest, line.offset_rest));
}

template <class T, int channels>
__global__ void __launch_bounds__(image_threads)
    normalise_by_lines(const std::uint8_t* x, T* y, std::int64_t n, Lines<channels> lines) {
  // 4 x channels neighbouring values: whole pixels, and whole words of the operand.
  constexpr int width = 4 * channels;
  using In = Pack<std::uint8_t, 4>;
  using Out = Pack<T, 4>;
  const std::int64_t groups = n / width;
  for (std::int64_t g = grid_thread(); g < groups; g += grid_threads()) {
    In in[channels];
#pragma unroll
    for (int k = 0; k < channels; ++k) in[k] = reinterpret_cast<const In*>(x)[g * channels + k];
#pragma unroll
    for (int k = 0; k < channels; ++k) {
      Out out;
#pragma unroll
      for (int i = 0; i < 4; ++i)
        out.at[i] = narrow<T>(on_line(lines.of[(4 * k + i) % channels], in[k].at[i]));
      reinterpret_cast<Out*>(y)[g * channels + k] = out;
    }
  }
  const std::int64_t rest = groups * width + grid_thread();
#pragma unroll
  for (int k = 0; k < channels; ++k)
    if (rest < n && rest % channels == k) y[rest] = narrow<T>(on_line(lines.of[k], x[rest]));
}

// Any number of channels and any address: the numbers themselves, computed as the CPU's table is.
template <class T>
__global__ void normalise_plain(const std::uint8_t* x, T* y, std::int64_t n, std::int64_t channels,
                                std::int64_t channel, double mean, double deviation) {
  for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const std::int64_t at = i * channels + channel;
    y[at] = narrow<T>(static_cast<float>((x[at] / 255.0 - mean) / deviation));
  }
}

// The host computes a line as the card does: both round each operation once.
template <int channels>
Lines<channels> find_lines(const ir::Normalise& attrs) {
  const PixelTable table = pixel_table(attrs, channels);
  Lines<channels> lines;
  for (std::size_t channel = 0; channel < channels && lines.found; ++channel) {
    const auto line = find_pixel_line(attrs, channel, [&](const PixelLine& a) {
      for (int pixel = 0; pixel < 256; ++pixel) {
        const auto x = static_cast<float>(pixel);
        const float got = std::fma(x, a.slope, a.offset) + std::fma(x, a.slope_rest, a.offset_rest);
        const float want = table[channel][static_cast<std::size_t>(pixel)];
        if (std::bit_cast<std::uint32_t>(got) != std::bit_cast<std::uint32_t>(want)) return false;
      }
      return true;
    });
    lines.found = line.has_value();
    if (line) lines.of[channel] = *line;
  }
  return lines;
}

// False: there are no lines.
template <class T, int channels>
bool launch_by_lines(const Call& call, std::int64_t n) {
  const auto& lines =
      call.once<Lines<channels>>([&] { return find_lines<channels>(call.attr<ir::Normalise>()); });
  if (!lines.found) return false;
  normalise_by_lines<T, channels>
      <<<grid_for(n / (4 * channels), image_threads, 4096), image_threads, 0, call.stream>>>(
          call.in[0].as<std::uint8_t>(), call.out[0].as<T>(), n, lines);
  launched("normalise_by_lines");
  return true;
}

}  // namespace

void run_normalise(const Call& call) {
  const ir::Normalise& attrs = call.attr<ir::Normalise>();
  const Tensor &x = call.in[0], &y = call.out[0];
  // One mean and one deviation of all channels are those of one channel, however many there are.
  const bool alike = attrs.mean.size() == 1 && attrs.deviation.size() == 1;
  const std::int64_t n = y.elements(), channels = alike ? 1 : x.shape.back();
  if (n == 0) return;
  const bool packs = aligned_16(x.data) && reinterpret_cast<std::uintptr_t>(y.data) % 32 == 0;
  with_float(y.dtype, [&]<class T>(T) {
    if (packs && channels == 3 && launch_by_lines<T, 3>(call, n)) return;
    if (packs && channels == 1 && launch_by_lines<T, 1>(call, n)) return;
    const std::int64_t pixels = n / channels;
    for (std::int64_t k = 0; k < channels; ++k) {
      normalise_plain<T><<<grid_for(pixels, image_threads), image_threads, 0, call.stream>>>(
          x.as<std::uint8_t>(), y.as<T>(), pixels, channels, k,
          of_channel(attrs.mean, static_cast<std::size_t>(k)),
          of_channel(attrs.deviation, static_cast<std::size_t>(k)));
      launched("normalise_plain");
    }
  });
}

}  // namespace tessera::exec::cuda
