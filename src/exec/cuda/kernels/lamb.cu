// LAMB in its three pieces. The tensors inside a bucket travel as parameters of the launches, 128
// at a time, and blocks work on chunks of them. Floors: 28, 4 and 12 bytes an element in f32.
// Convention: results may be the operands' storage; a tensor's norm is summed in double, chunk by
// chunk in order.
#include "exec/cuda/kernels/index.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int lamb_threads = 256, ranges_at_once = 128;
constexpr std::int64_t lamb_chunk = 16384;  // elements of one block

// Ranges of a row of the bucket, cut into chunks; every row of it is cut alike.
struct Ranges {
  int count = 0;
  int first[ranges_at_once + 1] = {};  // block of each range's first chunk
  int segment[ranges_at_once] = {};    // -1: between the tensors
  std::int64_t begin[ranges_at_once] = {}, size[ranges_at_once] = {};

  bool full() const { return count == ranges_at_once; }
  int blocks() const { return first[count]; }
  void add(int segment_of, std::int64_t begin_of, std::int64_t size_of, std::int64_t rows) {
    segment[count] = segment_of;
    begin[count] = begin_of;
    size[count] = size_of;
    const std::int64_t chunks = (size_of + lamb_chunk - 1) / lamb_chunk * rows;
    CHECK(first[count] + chunks < std::int64_t{1} << 31, "a bucket has too many chunks");
    first[count + 1] = first[count] + static_cast<int>(chunks);
    ++count;
  }
};
// The chunk of this block.
struct Chunk {
  int range;
  std::int64_t begin, size;  // in the bucket

  __device__ Chunk(const Ranges& ranges, std::int64_t row_length) {
    int low = 0, high = ranges.count - 1;
    const int block = static_cast<int>(blockIdx.x);
    while (low < high) {  // the last range that begins here or before; empty ones begin later too
      const int middle = (low + high + 1) / 2;
      if (ranges.first[middle] <= block)
        low = middle;
      else
        high = middle - 1;
    }
    range = low;
    const int per_row = static_cast<int>((ranges.size[low] + lamb_chunk - 1) / lamb_chunk);
    const int at = block - ranges.first[low], row = at / per_row;
    const std::int64_t inside = (at - row * per_row) * lamb_chunk;
    begin = row * row_length + ranges.begin[low] + inside;
    size = min(lamb_chunk, ranges.size[low] - inside);
  }
};

template <class T, int width>
__device__ double squares_of(const T* x, std::int64_t n) {
  using P = Pack<T, width>;
  double total = 0;
  const std::int64_t packs = n / width;
  for (std::int64_t p = threadIdx.x; p < packs; p += lamb_threads) {
    const P pack = reinterpret_cast<const P*>(x)[p];
    T few = 0;
#pragma unroll
    for (int i = 0; i < width; ++i) few += pack.at[i] * pack.at[i];
    total += static_cast<double>(few);
  }
  for (std::int64_t i = packs * width + threadIdx.x; i < n; i += lamb_threads)
    total += static_cast<double>(x[i] * x[i]);
  return total;
}
__device__ __forceinline__ bool on_16(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

template <class T>
__global__ void __launch_bounds__(lamb_threads)
    sumsq_chunks(const T* x, std::int64_t row_length, double* partial,
                 const __grid_constant__ Ranges ranges) {
  const Chunk chunk(ranges, row_length);
  const T* from = x + chunk.begin;
  const double total = block_sum(on_16(from) ? squares_of<T, per_16_bytes<T>>(from, chunk.size)
                                             : squares_of<T, 1>(from, chunk.size));
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}
template <class T>
__global__ void __launch_bounds__(lamb_threads)
    sumsq_finish(const double* partial, T* y, const __grid_constant__ Ranges ranges) {
  double total = 0;
  const int s = static_cast<int>(blockIdx.x);
  for (int i = ranges.first[s] + static_cast<int>(threadIdx.x); i < ranges.first[s + 1];
       i += lamb_threads)
    total += partial[i];
  total = block_sum(total);
  if (threadIdx.x == 0) y[ranges.segment[s]] = static_cast<T>(total);
}

template <class T, int width>
__device__ void step_run(const T* w, const T* u, T* y, std::int64_t n, T rate, bool moves) {
  using P = Pack<T, width>;
  const std::int64_t packs = n / width;
  for (std::int64_t p = threadIdx.x; p < packs; p += lamb_threads) {
    P pack = reinterpret_cast<const P*>(w)[p];
    if (moves) {
      const P along = reinterpret_cast<const P*>(u)[p];
#pragma unroll
      for (int i = 0; i < width; ++i) pack.at[i] -= rate * along.at[i];
    }
    reinterpret_cast<P*>(y)[p] = pack;
  }
  for (std::int64_t i = packs * width + threadIdx.x; i < n; i += lamb_threads)
    y[i] = moves ? w[i] - rate * u[i] : w[i];
}
// w' = w - lr r u with r = |w| / |u| of the tensor, 1 where either is 0; between tensors nothing
// changes.
template <class T>
__global__ void __launch_bounds__(lamb_threads)
    step_chunks(const T* w, const T* u, const T* weights, const T* directions, const T* lr, T* y,
                std::int64_t row_length, const __grid_constant__ Ranges ranges) {
  const Chunk chunk(ranges, row_length);
  const int segment = ranges.segment[chunk.range];
  T rate = 0;
  if (segment >= 0) {
    const double of_w = static_cast<double>(weights[segment]),
                 of_u = static_cast<double>(directions[segment]);
    const double ratio = of_w > 0 && of_u > 0 ? sqrt(of_w) / sqrt(of_u) : 1.0;
    rate = static_cast<T>(static_cast<double>(*lr) * ratio);
  }
  w += chunk.begin;
  u += chunk.begin;
  y += chunk.begin;
  if (on_16(w) && on_16(u) && on_16(y))
    step_run<T, per_16_bytes<T>>(w, u, y, chunk.size, rate, segment >= 0);
  else
    step_run<T, 1>(w, u, y, chunk.size, rate, segment >= 0);
}

template <class T>
struct DirectionArrays {
  const T *w, *m, *v, *grad;
  const std::int64_t* step;
  T *u_out, *m_out, *v_out;
  std::int64_t n;
  double beta1, beta2, eps, decay;
};
template <class T, int width>
__global__ void __launch_bounds__(lamb_threads) direction_step(const DirectionArrays<T> a) {
  using P = Pack<T, width>;
  __shared__ T shared_first, shared_root;
  const double t = static_cast<double>(*a.step);
  if (threadIdx.x == 0) shared_first = static_cast<T>(1.0 / (1.0 - pow(a.beta1, t)));
  if (threadIdx.x == 32) shared_root = static_cast<T>(1.0 / sqrt(1.0 - pow(a.beta2, t)));
  __syncthreads();
  const T first = shared_first, root = shared_root, eps = static_cast<T>(a.eps),
          decay = static_cast<T>(a.decay), beta1 = static_cast<T>(a.beta1),
          rest1 = static_cast<T>(1.0 - a.beta1), beta2 = static_cast<T>(a.beta2),
          rest2 = static_cast<T>(1.0 - a.beta2);
  for (std::int64_t i = grid_thread() * width; i < a.n; i += grid_threads() * width) {
    const P w = *reinterpret_cast<const P*>(a.w + i);
    P m = *reinterpret_cast<const P*>(a.m + i), v = *reinterpret_cast<const P*>(a.v + i),
      g = *reinterpret_cast<const P*>(a.grad + i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      m.at[k] = beta1 * m.at[k] + rest1 * g.at[k];
      v.at[k] = beta2 * v.at[k] + rest2 * g.at[k] * g.at[k];
      g.at[k] = first * m.at[k] / (sqrt(v.at[k]) * root + eps) + decay * w.at[k];
    }
    if (a.u_out) *reinterpret_cast<P*>(a.u_out + i) = g;
    if (a.m_out) *reinterpret_cast<P*>(a.m_out + i) = m;
    if (a.v_out) *reinterpret_cast<P*>(a.v_out + i) = v;
  }
}

std::int64_t rows_of(const ir::Shape& bucket) {
  return bucket.back() == 0 ? 0 : ir::elements(bucket) / bucket.back();
}

}  // namespace

void run_lamb_direction(const Call& call) {
  const auto& attr = call.attr<ir::AdamW>();
  if (call.in[0].elements() == 0) return;
  with_wide(call.in[0].dtype, [&]<class T>(T) {
    const DirectionArrays<T> a{call.in[0].as<T>(),
                               call.in[1].as<T>(),
                               call.in[2].as<T>(),
                               call.in[3].as<T>(),
                               call.in[4].as<std::int64_t>(),
                               call.out[0].as<T>(),
                               call.out[1].as<T>(),
                               call.out[2].as<T>(),
                               call.in[0].elements(),
                               attr.beta1,
                               attr.beta2,
                               attr.eps,
                               attr.weight_decay};
    constexpr int width = per_16_bytes<T>;
    const bool packs = in_16_bytes<T>(a.n, {a.w, a.m, a.v, a.grad, a.u_out, a.m_out, a.v_out});
    const auto kernel = packs ? direction_step<T, width> : direction_step<T, 1>;
    const std::int64_t most = std::int64_t{8} * call.context.limits.multiprocessors;
    kernel<<<grid_for(a.n / (packs ? width : 1), lamb_threads, most), lamb_threads, 0,
             call.stream>>>(a);
  });
  launched("direction_step");
}

void run_segment_sumsq(const Call& call) {
  const auto& segments = call.attr<ir::Segments>();
  const Tensor& x = call.in[0];
  const std::int64_t rows = rows_of(x.shape);
  with_wide(x.dtype, [&]<class T>(T) {
    double* partial = call.scratch<double>();
    Ranges ranges;
    const auto flush = [&] {
      if (ranges.count == 0) return;
      if (ranges.blocks() > 0) {
        sumsq_chunks<<<static_cast<unsigned>(ranges.blocks()), lamb_threads, 0, call.stream>>>(
            x.as<T>(), x.shape.back(), partial, ranges);
        launched("sumsq_chunks");
      }
      sumsq_finish<<<static_cast<unsigned>(ranges.count), lamb_threads, 0, call.stream>>>(
          partial, call.out[0].as<T>(), ranges);
      launched("sumsq_finish");
      partial += ranges.blocks();
      ranges = Ranges{};
    };
    for (std::size_t s = 0; s < segments.offsets.size(); ++s) {
      if (ranges.full()) flush();
      ranges.add(static_cast<int>(s), segments.offsets[s], segments.sizes[s], rows);
    }
    flush();
  });
}

std::int64_t workspace_segment_sumsq(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                     std::span<const ir::Type>, const Limits&) {
  std::int64_t chunks = 0;
  for (const std::int64_t size : std::get<ir::Segments>(attrs).sizes)
    chunks += (size + lamb_chunk - 1) / lamb_chunk * rows_of(in[0].shape);
  return chunks * static_cast<std::int64_t>(sizeof(double));
}

void run_lamb_update(const Call& call) {
  const auto& segments = call.attr<ir::Segments>();
  const Tensor &w = call.in[0], &y = call.out[0];
  if (w.elements() == 0) return;
  const std::int64_t rows = rows_of(w.shape), row_length = w.shape.back();
  const bool in_place = w.data == y.data;
  with_wide(w.dtype, [&]<class T>(T) {
    Ranges ranges;
    const auto flush = [&] {
      if (ranges.blocks() > 0) {
        step_chunks<<<static_cast<unsigned>(ranges.blocks()), lamb_threads, 0, call.stream>>>(
            w.as<T>(), call.in[1].as<T>(), call.in[2].as<T>(), call.in[3].as<T>(),
            call.in[4].as<T>(), y.as<T>(), row_length, ranges);
        launched("step_chunks");
      }
      ranges = Ranges{};
    };
    const auto add = [&](int segment, std::int64_t begin, std::int64_t end) {
      if (end <= begin || (segment < 0 && in_place)) return;
      if (ranges.full()) flush();
      ranges.add(segment, begin, end - begin, rows);
    };
    std::int64_t at = 0;
    for (std::size_t s = 0; s < segments.offsets.size(); ++s) {
      add(-1, at, segments.offsets[s]);
      at = segments.offsets[s] + segments.sizes[s];
      add(static_cast<int>(s), segments.offsets[s], at);
    }
    add(-1, at, row_length);
    flush();
  });
}

}  // namespace tessera::exec::cuda
