// layer_norm and add_norm whose result is quantised, in both orders of dims, as it is made. A warp
// has four rows one after the other and keeps their bytes in registers, a block 32 rows, which are
// 32 neighbouring bytes of every column of the turned result. Floor: bytes of x (and r, and x + r)
// and two bytes an element.
#include "exec/cuda/kernels/norm.cuh"
#include "exec/cuda/quantised/bytes.cuh"
#include "exec/cuda/quantised/norm_bytes.h"

namespace tessera::exec::cuda {
namespace {

using norm::Columns;
using norm::Rows;

constexpr int warps = 8, warp_rows = 4, block_rows = warps * warp_rows, block_threads = warps * 32;

template <class R>
struct NormBytes {
  const float* x;
  const R* r;  // null, or what is added to x
  const float *gain, *bias, *scale;
  float* s;  // x + r; null: not wanted, as all that follow
  std::uint8_t *q, *turned;
  float *mean, *rstd;
  unsigned* amax;
  std::int64_t rows, width;
  float eps;
  ir::DType to;
};

// Fills v with the thread's columns of its row, normalised.
template <class R, int per_thread>
__device__ __forceinline__ void normalised_row(const NormBytes<R>& a, std::int64_t row,
                                               float (&v)[per_thread]) {
  using Own = Columns<float, 32, per_thread>;
  const int width = static_cast<int>(a.width);
  const std::int64_t at = row * a.width;
  Own::load(v, a.x + at, width);
  if (a.r) {
    float r[per_thread];
    Own::load(r, a.r + at, width);
#pragma unroll
    for (int i = 0; i < per_thread; ++i) v[i] += r[i];
    if (a.s) Own::store(v, a.s + at, width);
  }
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < per_thread; ++i) sum += v[i];
  const float mean = warp_sum(sum) / static_cast<float>(width);
#pragma unroll
  for (int k = 0; k < Own::vectors; ++k)
    if (Own::column(k) < width)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float centred = v[k * 4 + i] - mean;
        squares += centred * centred;
      }
  const float rstd = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(width) + a.eps);
  if (threadIdx.x % 32 == 0) {
    if (a.mean) a.mean[row] = mean;
    if (a.rstd) a.rstd[row] = rstd;
  }
#pragma unroll
  for (int k = 0; k < Own::vectors; ++k) {
    float gain[4] = {}, bias[4] = {};
    if (Own::column(k) < width) {
      Own::load_floats(gain, a.gain, k);
      Own::load_floats(bias, a.bias, k);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) v[k * 4 + i] = (v[k * 4 + i] - mean) * rstd * gain[i] + bias[i];
  }
}

// Rows are a multiple of 32, columns of 4, and both results begin at multiples of 16 bytes.
template <class R, int per_thread>
__global__ void __launch_bounds__(block_threads)
    norm_bytes_kernel(const __grid_constant__ NormBytes<R> a) {
  using Own = Columns<float, 32, per_thread>;
  // Line (4 k + j) 32 + lane: column j of vector k; nine words apart, no bank is met twice.
  extern __shared__ unsigned lines[];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int width = static_cast<int>(a.width);
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * block_rows + warp * warp_rows;
  const float inverse = 1.0f / *a.scale;
  unsigned words[Own::vectors][warp_rows], largest = 0;
#pragma unroll
  for (int i = 0; i < warp_rows; ++i) {
    float v[per_thread];
    normalised_row(a, first + i, v);
#pragma unroll
    for (int k = 0; k < Own::vectors; ++k) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        largest = max(largest, __float_as_uint(fabsf(v[k * 4 + j])));
        v[k * 4 + j] *= inverse;
      }
      words[k][i] = quantised_word(v[k * 4], v[k * 4 + 1], v[k * 4 + 2], v[k * 4 + 3], a.to);
      if (a.q && Own::column(k) < width)
        *reinterpret_cast<unsigned*>(a.q + (first + i) * a.width + Own::column(k)) = words[k][i];
    }
  }
  if (a.turned) {
#pragma unroll
    for (int k = 0; k < Own::vectors; ++k) {
      unsigned turned[4];
      turn_square(words[k], turned);
#pragma unroll
      for (int j = 0; j < 4; ++j) lines[((k * 4 + j) * 32 + lane) * 9 + warp] = turned[j];
    }
    __syncthreads();
    for (int line = static_cast<int>(threadIdx.x); line < per_thread * 32; line += block_threads) {
      const int k = line / 128, j = line / 32 % 4, column = k * 128 + line % 32 * 4 + j;
      if (column >= width) continue;
      const unsigned* from = lines + line * 9;
      std::uint8_t* to = a.turned + column * a.rows + std::int64_t{blockIdx.x} * block_rows;
      *reinterpret_cast<uint4*>(to) = make_uint4(from[0], from[1], from[2], from[3]);
      *reinterpret_cast<uint4*>(to + 16) = make_uint4(from[4], from[5], from[6], from[7]);
    }
  }
  if (a.amax) note_largest<block_threads>(largest, a.amax);
}

// Any width and any address: a block walks over a row three times.
template <class R>
__global__ void __launch_bounds__(norm::plain_threads) norm_bytes_plain(NormBytes<R> a) {
  const std::int64_t row = blockIdx.x;
  const float* x = a.x + row * a.width;
  const R* r = a.r ? a.r + row * a.width : nullptr;
  const auto value = [&](std::int64_t i) { return r ? x[i] + widen(r[i]) : x[i]; };
  float sum = 0, squares = 0;
  for (std::int64_t i = threadIdx.x; i < a.width; i += norm::plain_threads) sum += value(i);
  const float mean = block_sum(sum) / static_cast<float>(a.width);
  for (std::int64_t i = threadIdx.x; i < a.width; i += norm::plain_threads)
    squares += (value(i) - mean) * (value(i) - mean);
  const float rstd = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(a.width) + a.eps);
  const float inverse = 1.0f / *a.scale;
  unsigned largest = 0;
  for (std::int64_t i = threadIdx.x; i < a.width; i += norm::plain_threads) {
    const float v = value(i), y = (v - mean) * rstd * a.gain[i] + a.bias[i];
    if (r && a.s) a.s[row * a.width + i] = v;
    largest = max(largest, __float_as_uint(fabsf(y)));
    const auto byte = static_cast<std::uint8_t>(quantised_pair(y * inverse, 0.0f, a.to));
    if (a.q) a.q[row * a.width + i] = byte;
    if (a.turned) a.turned[i * a.rows + row] = byte;
  }
  if (a.amax) note_largest<norm::plain_threads>(largest, a.amax);
  if (threadIdx.x != 0) return;
  if (a.mean) a.mean[row] = mean;
  if (a.rstd) a.rstd[row] = rstd;
}

template <class R, int per_thread>
void launch_rows(const NormBytes<R>& a, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(a.rows / block_rows);
  constexpr int bytes = per_thread * 32 * 9 * 4;
  static_assert(bytes <= 48 * 1024, "more needs to be asked for");
  norm_bytes_kernel<R, per_thread><<<blocks, block_threads, a.turned ? bytes : 0, stream>>>(a);
  launched("layer_norm in bytes");
}

template <class R>
void normalise_bytes(const NormBytes<R>& a, cudaStream_t stream) {
  if (a.rows == 0 || a.width == 0) return;
  const bool fast =
      norm::in_registers<float>(a.width, {a.x, a.r, a.gain, a.bias, a.s, a.q, a.turned}) &&
      a.width <= 1024 && a.rows % block_rows == 0;
  if (fast && a.width <= 256) return launch_rows<R, 8>(a, stream);
  if (fast && a.width <= 768) return launch_rows<R, 24>(a, stream);
  if (fast) return launch_rows<R, 32>(a, stream);
  CHECK(a.rows < (std::int64_t{1} << 31), "layer_norm: more rows than a grid has blocks");
  norm_bytes_plain<R><<<static_cast<unsigned>(a.rows), norm::plain_threads, 0, stream>>>(a);
  launched("layer_norm in bytes, any width");
}

}  // namespace

void run_norm_bytes(const Call& call, bool adds) {
  const std::size_t first = adds ? 2 : 1, result = adds ? 1 : 0;
  const Rows rows = norm::rows_of(call.in[0].shape);
  const ir::Norm& attrs = call.attr<ir::Norm>();
  const Tensor& amax = call.out[result + 4];
  CHECK(call.in[0].dtype == ir::DType::f32, "layer_norm in bytes takes f32");
  if (amax) must(::cudaMemsetAsync(amax.data, 0, sizeof(float), call.stream), "clear a maximum");
  const auto run = [&]<class R>(R) {
    normalise_bytes<R>({.x = call.in[0].as<float>(),
                        .r = adds ? call.in[1].as<R>() : nullptr,
                        .gain = call.in[first].as<float>(),
                        .bias = call.in[first + 1].as<float>(),
                        .scale = call.in[first + 2].as<float>(),
                        .s = adds ? call.out[0].as<float>() : nullptr,
                        .q = call.out[result].as<std::uint8_t>(),
                        .turned = call.out[result + 3].as<std::uint8_t>(),
                        .mean = call.out[result + 1].as<float>(),
                        .rstd = call.out[result + 2].as<float>(),
                        .amax = amax.as<unsigned>(),
                        .rows = rows.count,
                        .width = rows.width,
                        .eps = static_cast<float>(attrs.eps),
                        .to = *attrs.to},
                       call.stream);
  };
  if (!adds || call.in[1].dtype == ir::DType::f32)
    run(float{});
  else if (call.in[1].dtype == ir::DType::bf16)
    run(Bf16{});
  else
    CHECK(false, "add_norm in bytes adds f32 or bf16");
}

}  // namespace tessera::exec::cuda
