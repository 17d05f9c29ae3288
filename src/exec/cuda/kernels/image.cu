// Pixels to numbers. The floor is the bytes: one read and an element of the result written per
// value. A value is looked up in a table of 256 numbers per channel that the host computed in
// double, so that the bits are the CPU's; it travels as the kernel's parameter.
#include "exec/common/pixel_table.h"
#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int image_threads = 256;
constexpr int most_channels = 3;  // tables of so many fit into the 4 KiB of a kernel's parameters

struct Tables {
  float of[most_channels][256];
};

template <class T, int channels>
__global__ void __launch_bounds__(image_threads)
    normalise_by_table(const std::uint8_t* x, T* y, std::int64_t n,
                       const __grid_constant__ Tables tables) {
  __shared__ float shared[channels * 256];
  for (int i = static_cast<int>(threadIdx.x); i < channels * 256; i += image_threads)
    shared[i] = tables.of[i / 256][i % 256];
  __syncthreads();
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
        out.at[i] = narrow<T>(shared[(4 * k + i) % channels * 256 + in[k].at[i]]);
      reinterpret_cast<Out*>(y)[g * channels + k] = out;
    }
  }
  if (const std::int64_t i = groups * width + grid_thread(); i < n)
    y[i] = narrow<T>(shared[i % channels * 256 + x[i]]);
}

// Any number of channels and any address: the numbers themselves, computed as the table is.
template <class T>
__global__ void normalise_plain(const std::uint8_t* x, T* y, std::int64_t n, std::int64_t channels,
                                std::int64_t channel, double mean, double deviation) {
  for (std::int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const std::int64_t at = i * channels + channel;
    y[at] = narrow<T>(static_cast<float>((x[at] / 255.0 - mean) / deviation));
  }
}

template <class T, int channels>
void launch_by_table(const Call& call, std::int64_t n) {
  const Tables& tables = call.once<Tables>([&] {
    const PixelTable rows = pixel_table(call.attr<ir::Normalise>(), channels);
    Tables made;
    for (std::size_t k = 0; k < channels; ++k)
      std::copy(rows[k].begin(), rows[k].end(), made.of[k]);
    return made;
  });
  normalise_by_table<T, channels>
      <<<grid_for(n / (4 * channels), image_threads, 4096), image_threads, 0, call.stream>>>(
          call.in[0].as<std::uint8_t>(), call.out[0].as<T>(), n, tables);
  launched("normalise_by_table");
}

}  // namespace

void run_normalise(const Call& call) {
  const ir::Normalise& attrs = call.attr<ir::Normalise>();
  const Tensor &x = call.in[0], &y = call.out[0];
  const std::int64_t n = y.elements(), channels = x.shape.back();
  if (n == 0) return;
  const bool packs = aligned_16(x.data) && reinterpret_cast<std::uintptr_t>(y.data) % 32 == 0;
  with_float(y.dtype, [&]<class T>(T) {
    if (packs && channels == 3) return launch_by_table<T, 3>(call, n);
    if (packs && channels == 1) return launch_by_table<T, 1>(call, n);
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
