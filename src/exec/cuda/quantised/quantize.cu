// Quantisation in one visit of memory: a block takes 128 rows and 64 columns, a thread 4 rows and 8
// columns of them; what is turned passes through shared memory, four rows to a word. Floor: x (and
// g) read once, one byte written for each order of dims: 4 bytes an element of bf16 in both orders.
// Largest numbers are compared as integers, so that the order of blocks does not matter and a NaN
// is the largest; sums over rows are added in order, block by block.
#include "exec/common/index.h"
#include "exec/common/quantised.h"
#include "exec/cuda/attention/slices.cuh"
#include "exec/cuda/elements.cuh"
#include "exec/cuda/kernels/gelu.cuh"
#include "exec/cuda/quantised/bytes.cuh"

namespace tessera::exec::cuda {
namespace {

using std::int64_t;

constexpr int tile_rows = 128, tile_columns = 64, threads = 256;
enum class QuantizeAct : int { none, gelu, gelu_tanh, gelu_grad, gelu_tanh_grad, any };

struct QuantizeJob {
  const void *x = nullptr, *g = nullptr;
  const float* scale = nullptr;
  int64_t scale_step = 1, scale_extent = 1;      // of element i: scale[i / step % extent]
  std::uint8_t *q = nullptr, *turned = nullptr;  // null: not written
  unsigned* amax = nullptr;
  float* sums = nullptr;  // of each row of tiles, [., columns]
  int64_t rows = 0, columns = 0, across = 0;
  ir::DType to = ir::DType::f8e4m3;
  QuantizeAct act = QuantizeAct::none;
};

template <class T>
__device__ __forceinline__ float activated(QuantizeAct act, float x, float g) {
  switch (act) {
    case QuantizeAct::gelu:
      return erf_gelu<T>(x);
    case QuantizeAct::gelu_tanh:
      return tanh_gelu<T>(x);
    case QuantizeAct::gelu_grad:
      return g * erf_gelu_slope<T>(x);
    case QuantizeAct::gelu_tanh_grad:
      return g * tanh_gelu_slope<T>(x);
    default:
      return x;
  }
}

template <class T>
struct Eight {
  Pack<T, per_16_bytes<T>> part[8 / per_16_bytes<T>];
  __device__ __forceinline__ float at(int i) const {
    return widen(part[i / per_16_bytes<T>].at[i % per_16_bytes<T>]);
  }
};
// Eight neighbours, as far as they are there: `count` of them; zeros behind.
template <class T, bool packs>
__device__ __forceinline__ Eight<T> load_eight(const T* from, int count) {
  Eight<T> out{};
  if constexpr (packs) {
    if (count > 0)
#pragma unroll
      for (int i = 0; i < 8 / per_16_bytes<T>; ++i)
        out.part[i] = reinterpret_cast<const Pack<T, per_16_bytes<T>>*>(from)[i];
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (i < count) out.part[i / per_16_bytes<T>].at[i % per_16_bytes<T>] = from[i];
  }
  return out;
}

// The sum over the rows of a tile of the eight columns that a thread has.
__device__ __forceinline__ void tile_sums(const QuantizeJob& job, float (&sum)[8], int64_t row_tile,
                                          int64_t first_column) {
  __shared__ float parts[threads / 32][tile_columns];
  const int t = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], 8);
    sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], 16);
    if (t % 32 < 8) parts[t / 32][t % 8 * 8 + j] = sum[j];
  }
  __syncthreads();
  if (t >= tile_columns || first_column + t >= job.columns) return;
  float all = 0;
  for (int i = 0; i < threads / 32; ++i) all += parts[i][t];
  job.sums[row_tile * job.columns + first_column + t] = all;
}

// `packs`: rows begin at multiples of 16 bytes, there is one scale, and rows are a multiple of 16
// where they are turned. Elsewhere elements are read and written one by one.
template <class T, QuantizeAct act, bool packs>
__global__ void __launch_bounds__(threads)
    quantize_kernel(const __grid_constant__ QuantizeJob job) {
  // Column c of the tile is line c % 8 * 8 + c / 8: so neither side meets a bank twice.
  __shared__ alignas(16) unsigned tile[tile_columns][tile_rows / 4 + 4];
  const int t = static_cast<int>(threadIdx.x), tx = t % 8, ty = t / 8;
  const int64_t row_tile = blockIdx.x / job.across, column_tile = blockIdx.x % job.across;
  const int64_t row = row_tile * tile_rows + ty * 4, column = column_tile * tile_columns + tx * 8;
  const int count = static_cast<int>(min(max(job.columns - column, int64_t{0}), int64_t{8}));
  constexpr bool runtime = act == QuantizeAct::any;
  const QuantizeAct how = runtime ? job.act : act;
  const bool grad = how == QuantizeAct::gelu_grad || how == QuantizeAct::gelu_tanh_grad;
  Eight<T> x[4], g[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int here = row + i < job.rows ? count : 0;
    const int64_t at = (row + i) * job.columns + column;
    x[i] = load_eight<T, packs>(static_cast<const T*>(job.x) + at, here);
    if (grad) g[i] = load_eight<T, packs>(static_cast<const T*>(job.g) + at, here);
  }
  const float one = packs ? 1.0f / *job.scale : 0.0f;
  unsigned words[2][4], largest = 0;
  float sum[8] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float scaled[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float v = activated<T>(how, x[i].at(j), grad ? g[i].at(j) : 0.0f);
      const bool inside = row + i < job.rows && j < count;
      if (packs || inside) largest = max(largest, __float_as_uint(fabsf(v)));
      sum[j] += v;
      const int64_t at = (row + i) * job.columns + column + j;
      const float inverse = packs    ? one
                            : inside ? 1.0f / job.scale[at / job.scale_step % job.scale_extent]
                                     : 0.0f;
      scaled[j] = v * inverse;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
      words[half][i] = quantised_pair(scaled[4 * half], scaled[4 * half + 1], job.to) |
                       quantised_pair(scaled[4 * half + 2], scaled[4 * half + 3], job.to) << 16;
    if (row + i >= job.rows) continue;
    if constexpr (packs) {
      if (job.q && count > 0)
        *reinterpret_cast<uint2*>(job.q + (row + i) * job.columns + column) =
            make_uint2(words[0][i], words[1][i]);
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const auto byte = static_cast<std::uint8_t>(words[j / 4][i] >> (j % 4 * 8));
        if (job.q && j < count) job.q[(row + i) * job.columns + column + j] = byte;
        if (job.turned && j < count) job.turned[(column + j) * job.rows + row + i] = byte;
      }
    }
  }
  if (packs && job.turned) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned turned[4];
      turn_square(words[half], turned);
#pragma unroll
      for (int j = 0; j < 4; ++j) tile[(4 * half + j) * 8 + tx][ty] = turned[j];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int line = (i * threads + t) / 8, chunk = t % 8;
      const int64_t c = column_tile * tile_columns + line % 8 * 8 + line / 8,
                    r = row_tile * tile_rows + chunk * 16;
      if (c < job.columns && r < job.rows)
        *reinterpret_cast<uint4*>(job.turned + c * job.rows + r) =
            *reinterpret_cast<const uint4*>(&tile[line][chunk * 4]);
    }
  }
  if (job.sums) tile_sums(job, sum, row_tile, column_tile * tile_columns);
  if (!job.amax) return;
  note_largest<threads>(largest, job.amax);
}

// How the results of a signature lie: x as a matrix whose turned form is the other order of dims.
struct Shapes {
  int64_t rows = 1, columns = 1;
  int straight = -1, turned = -1, amax = -1, sums = -1;  // results
  int64_t row_tiles() const { return (rows + tile_rows - 1) / tile_rows; }
};
Shapes shapes_of(const std::string& text, const ir::Shape& x) {
  const ir::Signature& sig = ir::parsed_signature(text);
  const std::string& letters = sig.in[0].letters;
  Shapes out;
  std::size_t split = letters.empty() ? 0 : letters.size() - 1;
  bool fixed = false;
  for (std::size_t i = 0; i < sig.out.size(); ++i) {
    const std::string& order = sig.out[i].letters;
    const int result = static_cast<int>(i);
    if (order.empty()) {
      out.amax = result;
    } else if (order == letters) {
      out.straight = result;
    } else {
      const std::size_t cut =
          order.size() == letters.size() ? letters.find(order[0]) : letters.size() - order.size();
      CHECK(!fixed || cut == split, "quantize on a card turns and sums \"" + text + "\" one way");
      split = cut;
      fixed = true;
      (order.size() == letters.size() ? out.turned : out.sums) = result;
    }
  }
  for (std::size_t i = 0; i < x.size(); ++i) (i < split ? out.rows : out.columns) *= x[i];
  return out;
}

QuantizeAct act_of(const std::string& act) {
  return act == "gelu"             ? QuantizeAct::gelu
         : act == "gelu_tanh"      ? QuantizeAct::gelu_tanh
         : act == "gelu_grad"      ? QuantizeAct::gelu_grad
         : act == "gelu_tanh_grad" ? QuantizeAct::gelu_tanh_grad
                                   : QuantizeAct::none;
}

// The letters of the scale lie together in x.
void describe_scale(const Call& call, QuantizeJob& job) {
  const ir::Signature& sig = ir::parsed_signature(call.attr<ir::Quantize>().sig);
  const std::string &x = sig.in[0].letters, &s = sig.in[1].letters;
  const std::size_t at = x.find(s);
  CHECK(at != std::string::npos, "quantize on a card takes scales of neighbouring dims of x");
  job.scale = call.in[1].as<float>();
  job.scale_extent = call.in[1].elements();
  for (std::size_t i = at + s.size(); i < x.size(); ++i) job.scale_step *= call.in[0].shape[i];
}

template <class T, QuantizeAct act, bool packs>
void launch_quantize(const QuantizeJob& job, int64_t blocks, cudaStream_t stream) {
  quantize_kernel<T, act, packs><<<static_cast<unsigned>(blocks), threads, 0, stream>>>(job);
  launched("quantize");
}

template <class T>
void launch_by_act(const QuantizeJob& job, bool packs, int64_t blocks, cudaStream_t stream) {
  using enum QuantizeAct;
  if (packs && job.act == none) return launch_quantize<T, none, true>(job, blocks, stream);
  if constexpr (std::is_same_v<T, Bf16>) {
    if (packs && job.act == gelu) return launch_quantize<T, gelu, true>(job, blocks, stream);
    if (packs && job.act == gelu_tanh)
      return launch_quantize<T, gelu_tanh, true>(job, blocks, stream);
    if (packs && job.act == gelu_grad)
      return launch_quantize<T, gelu_grad, true>(job, blocks, stream);
  }
  launch_quantize<T, any, false>(job, blocks, stream);
}

__global__ void delayed_scale_kernel(const float* history, float* scales, int64_t tensors,
                                     int64_t steps, ir::DType to, float start) {
  const int64_t i = grid_thread();
  if (i >= tensors) return;
  float amax = 0;
  for (int64_t k = 0; k < steps; ++k) amax = fmaxf(amax, history[i * steps + k]);
  constexpr int64_t copies = ir::DelayedScale::copies;
  for (int64_t copy = 0; copy < copies; ++copy)
    scales[i * copies + copy] = delayed_scale(amax, to, start);
}

__global__ void amax_history_kernel(const float* from, const float* amax, float* to,
                                    int64_t tensors, int64_t steps) {
  const int64_t i = grid_thread();
  if (i >= tensors) return;
  const int shift = isfinite(amax[i]) ? 1 : 0;
  for (int64_t k = steps - 1; k >= shift; --k) to[i * steps + k] = from[i * steps + k - shift];
  if (shift == 1) to[i * steps] = amax[i];
}

}  // namespace

void run_quantize(const Call& call) {
  const auto& attr = call.attr<ir::Quantize>();
  const Tensor& x = call.in[0];
  const Shapes shapes = shapes_of(attr.sig, x.shape);
  const auto result = [&](int i) {
    return i < 0 ? Tensor{} : call.out[static_cast<std::size_t>(i)];
  };
  QuantizeJob job{.x = x.data,
                  .g = call.in.size() > 2 ? call.in[2].data : nullptr,
                  .q = result(shapes.straight).as<std::uint8_t>(),
                  .turned = result(shapes.turned).as<std::uint8_t>(),
                  .amax = result(shapes.amax).as<unsigned>(),
                  .rows = shapes.rows,
                  .columns = shapes.columns,
                  .across = (shapes.columns + tile_columns - 1) / tile_columns,
                  .to = attr.to,
                  .act = act_of(attr.act)};
  describe_scale(call, job);
  const Tensor sums = result(shapes.sums);
  if (sums) job.sums = call.scratch<float>();
  if (job.amax) must(::cudaMemsetAsync(job.amax, 0, sizeof(float), call.stream), "clear a maximum");
  if (x.elements() == 0) {
    if (sums && sums.elements() > 0)
      must(::cudaMemsetAsync(sums.data, 0, static_cast<std::size_t>(sums.elements()) * 4,
                             call.stream),
           "clear a sum");
    return;
  }
  CHECK(!job.g || call.in[2].dtype == x.dtype, "quantize on a card: x and g are of one type");
  const int64_t blocks = shapes.row_tiles() * job.across;
  CHECK(blocks < (int64_t{1} << 31), "quantize: more elements than a grid has blocks");
  const bool packs = job.columns % 8 == 0 && aligned_16(job.x) && aligned_16(job.g) &&
                     reinterpret_cast<std::uintptr_t>(job.q) % 8 == 0 && job.scale_extent == 1 &&
                     (!job.turned || (job.rows % 16 == 0 && aligned_16(job.turned)));
  if (x.dtype == ir::DType::bf16)
    launch_by_act<Bf16>(job, packs, blocks, call.stream);
  else if (x.dtype == ir::DType::f32)
    launch_by_act<float>(job, packs, blocks, call.stream);
  else
    CHECK(false, "quantize on a card takes f32 or bf16");
  if (sums)
    add_slices(job.sums, shapes.row_tiles(), job.columns, job.columns, sums.as<float>(),
               call.stream);
}

int64_t workspace_quantize(const ir::Attrs& attrs, std::span<const ir::Type> in,
                           std::span<const ir::Type>, const Limits&) {
  const Shapes shapes = shapes_of(std::get<ir::Quantize>(attrs).sig, in[0].shape);
  return shapes.sums < 0 ? 0 : shapes.row_tiles() * shapes.columns * 4;
}

void run_delayed_scale(const Call& call) {
  const auto& attr = call.attr<ir::DelayedScale>();
  const int64_t tensors = call.in[0].shape[0], steps = call.in[0].shape[1];
  if (tensors == 0) return;
  delayed_scale_kernel<<<grid_for(tensors, 128), 128, 0, call.stream>>>(
      call.in[0].as<float>(), call.out[0].as<float>(), tensors, steps, attr.to,
      static_cast<float>(attr.start));
  launched("delayed_scale");
}

void run_amax_history(const Call& call) {
  const int64_t tensors = call.in[0].shape[0], steps = call.in[0].shape[1];
  if (tensors == 0) return;
  amax_history_kernel<<<grid_for(tensors, 128), 128, 0, call.stream>>>(
      call.in[0].as<float>(), call.in[1].as<float>(), call.out[0].as<float>(), tensors, steps);
  launched("amax_history");
}

}  // namespace tessera::exec::cuda
