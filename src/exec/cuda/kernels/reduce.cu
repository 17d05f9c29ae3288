// Sums. Columns of many rows (gradients of biases) and long rows are cut into parts by shape alone,
// each part is summed by one block and the parts by a second launch: the order is fixed, and the
// floor is one read of the operand. Convention: within a few elements sums are made in f32, beyond
// them in double; columns in f32 throughout, in short chains.
#include <limits>

#include "exec/common/index.h"
#include "exec/cuda/kernels/index.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int fold_threads = 256;

// The result of a sum of squares: the sum itself, or its alarm (alarm_of of exec/cpu/kernel.h).
enum class Answer { sum, alarm };

template <class T, bool square>
__device__ __forceinline__ Wide<T> term(T x) {
  const Wide<T> value = widen(x);
  return square ? value * value : value;
}

// The terms of x[0, n) that fall to this thread of `threads`; x is aligned to packs.
template <class T, int width, bool square>
__device__ __forceinline__ double fold_run(const T* x, std::int64_t n, int thread, int threads) {
  using P = Pack<T, width>;
  const std::int64_t packs = n / width;
  double total = 0;
#pragma unroll 4
  for (std::int64_t p = thread; p < packs; p += threads) {
    const P pack = reinterpret_cast<const P*>(x)[p];
    Wide<T> few = 0;
#pragma unroll
    for (int i = 0; i < width; ++i) few += term<T, square>(pack.at[i]);
    total += static_cast<double>(few);
  }
  for (std::int64_t i = packs * width + thread; i < n; i += threads)
    total += static_cast<double>(term<T, square>(x[i]));
  return total;
}

// Part p of row r, by one block, into partial[r parts + p].
template <class T, int width, bool square>
__global__ void __launch_bounds__(fold_threads)
    fold_parts(const T* x, std::int64_t columns, std::int64_t part_size, std::int64_t parts,
               double* partial) {
  const std::int64_t row = blockIdx.x / parts, begin = (blockIdx.x - row * parts) * part_size;
  const double total = block_sum(
      fold_run<T, width, square>(x + row * columns + begin, min(part_size, columns - begin),
                                 static_cast<int>(threadIdx.x), fold_threads));
  if (threadIdx.x == 0) partial[blockIdx.x] = total;
}
template <class U>
__global__ void __launch_bounds__(fold_threads)
    fold_finish(const double* partial, std::int64_t parts, U* y, Answer answer) {
  double total = 0;
  for (std::int64_t i = threadIdx.x; i < parts; i += fold_threads)
    total += partial[blockIdx.x * parts + i];
  total = block_sum(total);
  if (answer == Answer::alarm)  // as alarm_of in exec/cpu/kernel.h
    total = total < 1e24 ? 0.0 : std::numeric_limits<double>::quiet_NaN();
  if (threadIdx.x == 0) y[blockIdx.x] = narrow<U>(total);
}

// Short rows: one warp each.
template <class T, class U, int width>
__global__ void __launch_bounds__(fold_threads)
    fold_short_rows(const T* x, std::int64_t rows, std::int64_t columns, U* y) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t row = grid_thread() / 32; row < rows; row += grid_threads() / 32) {
    const double total = warp_sum(fold_run<T, width, false>(x + row * columns, columns, lane, 32));
    if (lane == 0) y[row] = narrow<U>(total);
  }
}

// [outer, rows, columns] -> [parts, outer, columns]. A thread owns `width` neighbouring columns;
// `lanes` threads side by side, 256 / lanes below each other.
struct ColumnFold {
  std::int64_t outer, rows, columns, parts, blocks;  // blocks: of columns
  int lanes;
};
template <class T, class U, int width>
__global__ void __launch_bounds__(fold_threads) fold_columns(const T* x, U* y, const ColumnFold f) {
  using P = Pack<T, width>;
  __shared__ Pack<Wide<T>, width> sums[fold_threads];
  const int lane = static_cast<int>(threadIdx.x) % f.lanes,
            line = static_cast<int>(threadIdx.x) / f.lanes, lines = fold_threads / f.lanes;
  const std::int64_t rest = blockIdx.x / f.blocks, o = rest / f.parts, part = rest - o * f.parts;
  const std::int64_t column = ((blockIdx.x - rest * f.blocks) * f.lanes + lane) * width;
  const std::int64_t begin = f.rows * part / f.parts, end = f.rows * (part + 1) / f.parts;
  Pack<Wide<T>, width> sum{};
  if (column < f.columns) {
    const T* from = x + o * f.rows * f.columns + column;
#pragma unroll 4
    for (std::int64_t row = begin + line; row < end; row += lines) {
      const P pack = *reinterpret_cast<const P*>(from + row * f.columns);
#pragma unroll
      for (int i = 0; i < width; ++i) sum.at[i] += widen(pack.at[i]);
    }
  }
  sums[threadIdx.x] = sum;
  for (int half = lines / 2; half > 0; half /= 2) {
    __syncthreads();
    if (line < half)
#pragma unroll
      for (int i = 0; i < width; ++i)
        sums[threadIdx.x].at[i] += sums[threadIdx.x + half * f.lanes].at[i];
  }
  if (line != 0 || column >= f.columns) return;
  for (int i = 0; i < width; ++i)
    y[(part * f.outer + o) * f.columns + column + i] = narrow<U>(sums[threadIdx.x].at[i]);
}

// Any other signature: one result by `lanes` (1 or 32) threads, its elements in order.
template <class T, class U>
__global__ void __launch_bounds__(fold_threads)
    fold_any(const T* x, U* y, std::int64_t results, std::int64_t terms, int lanes,
             const __grid_constant__ Index kept, const __grid_constant__ Index summed) {
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  for (std::int64_t i = grid_thread() / lanes; i < results; i += grid_threads() / lanes) {
    const T* from = x + kept.offset(i);
    double total = 0;
    for (std::int64_t k = lane; k < terms; k += lanes)
      total += static_cast<double>(widen(from[summed.offset(k)]));
    if (lanes == 32) total = warp_sum(total);
    if (lane == 0) y[i] = narrow<U>(total);
  }
}

// Rows that are long enough to be cut.
struct RowParts {
  std::int64_t size, count;
  RowParts(std::int64_t rows, std::int64_t columns) {
    const std::int64_t most = std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(1, rows)),
                       wanted = std::clamp<std::int64_t>((columns + 8191) / 8192, 1, most);
    size = std::max<std::int64_t>(1, ((columns + wanted - 1) / wanted + 2047) / 2048 * 2048);
    count = std::max<std::int64_t>(1, (columns + size - 1) / size);
  }
};
constexpr std::int64_t short_row = 1024;

// The form of a sum, as its signature and shapes give it.
struct SumShape {
  enum Kind { rows, columns, any } kind = any;
  std::int64_t outer = 1, row_count = 1, column_count = 1, parts = 1;
  std::vector<std::int64_t> kept_stride{}, summed_stride{};
  ir::Shape summed_extent{};

  SumShape(const ir::Sum& sum, const ir::Shape& in, const ir::Shape& out, ir::DType dtype) {
    const OperandLetters letters = parse_letters(sum.sig);
    std::vector<std::int64_t> stride;
    for (char letter : letters.in[0]) stride.push_back(stride_of(letters.out, out, letter));
    const Walk walk(in, stride);
    const std::size_t n = walk.rank();
    if (n == 0 || (n == 1 && walk.stride[0] == 0)) {
      kind = rows;
      column_count = walk.inner();
    } else if (n == 2 && walk.stride[0] == 1 && walk.stride[1] == 0) {
      kind = rows;
      row_count = walk.extent[0];
      column_count = walk.extent[1];
    } else if ((n == 2 || n == 3) && walk.stride[n - 1] == 1 && walk.stride[n - 2] == 0 &&
               (n == 2 || walk.stride[0] == walk.extent[n - 1])) {
      kind = columns;
      outer = n == 3 ? walk.extent[0] : 1;
      row_count = walk.extent[n - 2];
      column_count = walk.extent[n - 1];
      const std::int64_t blocks = outer * fold(16 / static_cast<int>(ir::size_of(dtype))).blocks;
      parts = std::clamp<std::int64_t>(std::min(1024 / blocks, row_count / 32), 1, 256);
    }
    for (char letter : letters.out) kept_stride.push_back(stride_of(letters.in[0], in, letter));
    for (std::size_t i = 0; i < in.size(); ++i)
      if (!has(letters.out, letters.in[0][i])) {
        summed_extent.push_back(in[i]);
        summed_stride.push_back(strides(in)[i]);
      }
  }
  // Blocks and lanes for packs of so many columns, where these come out even.
  ColumnFold fold(int width) const {
    if (column_count % width != 0) width = 1;
    const std::int64_t packs = column_count / width;
    int lanes = 1;
    while (lanes < 32 && lanes < packs) lanes *= 2;
    return {outer, row_count, column_count, parts, (packs + lanes - 1) / lanes, lanes};
  }
};

template <class T, bool square, class U>
void fold_long_rows(const Call& call, std::int64_t rows, std::int64_t columns, U* y,
                    Answer answer) {
  const Tensor& x = call.in[0];
  const RowParts parts(rows, columns);
  double* partial = call.scratch<double>();
  constexpr int width = per_16_bytes<T>;
  const bool packs = aligned_16(x.data) && (rows == 1 || columns % width == 0);
  const auto kernel = packs ? fold_parts<T, width, square> : fold_parts<T, 1, square>;
  kernel<<<static_cast<unsigned>(rows * parts.count), fold_threads, 0, call.stream>>>(
      x.as<T>(), columns, parts.size, parts.count, partial);
  launched("fold_parts");
  fold_finish<<<static_cast<unsigned>(rows), fold_threads, 0, call.stream>>>(partial, parts.count,
                                                                             y, answer);
  launched("fold_finish");
}

template <class T, class U>
void sum_of_columns(const Call& call, const SumShape& shape) {
  const Tensor& x = call.in[0];
  constexpr int full = per_16_bytes<T>;
  const bool packs = aligned_16(x.data) && shape.column_count % full == 0;
  const ColumnFold first = shape.fold(packs ? full : 1);
  const auto blocks = static_cast<unsigned>(first.outer * first.parts * first.blocks);
  const auto launch = [&](auto* y, auto kernel) {
    kernel<<<blocks, fold_threads, 0, call.stream>>>(x.as<T>(), y, first);
    launched("fold_columns");
  };
  if (shape.parts == 1)
    return launch(call.out[0].as<U>(), packs ? fold_columns<T, U, full> : fold_columns<T, U, 1>);
  using W = Wide<T>;
  launch(call.scratch<W>(), packs ? fold_columns<T, W, full> : fold_columns<T, W, 1>);
  const std::int64_t width = shape.outer * shape.column_count;
  const ColumnFold second{1, shape.parts, width, 1, (width + 31) / 32, 32};
  fold_columns<W, U, 1><<<static_cast<unsigned>(second.blocks), fold_threads, 0, call.stream>>>(
      call.scratch<W>(), call.out[0].as<U>(), second);
  launched("fold_columns");
}

template <class T, class U>
void sum_of(const Call& call, const SumShape& shape) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (shape.kind == SumShape::columns) return sum_of_columns<T, U>(call, shape);
  if (shape.kind == SumShape::rows && shape.column_count > short_row)
    return fold_long_rows<T, false>(call, shape.row_count, shape.column_count, y.as<U>(),
                                    Answer::sum);
  if (shape.kind == SumShape::rows) {
    constexpr int full = per_16_bytes<T>;
    const bool packs = aligned_16(x.data) && shape.column_count % full == 0;
    const auto kernel = packs ? fold_short_rows<T, U, full> : fold_short_rows<T, U, 1>;
    kernel<<<grid_for(shape.row_count * 32, fold_threads), fold_threads, 0, call.stream>>>(
        x.as<T>(), shape.row_count, shape.column_count, y.as<U>());
    return launched("fold_short_rows");
  }
  const std::int64_t results = y.elements(), terms = ir::elements(shape.summed_extent);
  const int lanes = terms >= 32 ? 32 : 1;
  fold_any<<<grid_for(results * lanes, fold_threads), fold_threads, 0, call.stream>>>(
      x.as<T>(), y.as<U>(), results, terms, lanes, Index(Walk(y.shape, shape.kept_stride)),
      Index(Walk(shape.summed_extent, shape.summed_stride)));
  launched("fold_any");
}

void clear_sum(const Call& call) {
  const Tensor& y = call.out[0];
  const auto bytes = static_cast<std::size_t>(y.elements() * ir::size_of(y.dtype));
  if (bytes > 0) must(cudaMemsetAsync(y.data, 0, bytes, call.stream), "clearing a sum of nothing");
}

void sum_of_squares(const Call& call, Answer answer) {
  if (call.in[0].elements() == 0) return clear_sum(call);
  with_float(call.in[0].dtype, [&]<class T>(T) {
    fold_long_rows<T, true>(call, 1, call.in[0].elements(), call.out[0].as<Wide<T>>(), answer);
  });
}
std::int64_t workspace_of_rows(std::int64_t rows, std::int64_t columns) {
  return rows * RowParts(rows, columns).count * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace

void run_sum(const Call& call) {
  const Tensor &x = call.in[0], &y = call.out[0];
  if (x.elements() == 0) return clear_sum(call);
  const SumShape& shape = call.once<SumShape>(
      [&] { return SumShape(call.attr<ir::Sum>(), x.shape, y.shape, x.dtype); });
  const bool same = x.dtype == y.dtype;
  const bool low = ir::is_low(x.dtype) || ir::is_low(y.dtype);
  CHECK(same || (low && (x.dtype == ir::DType::f32 || y.dtype == ir::DType::f32)),
        "a sum of " + std::string(ir::name(x.dtype)) + " elements is asked for in " +
            std::string(ir::name(y.dtype)));
  with_float(x.dtype, [&]<class T>(T) {
    if (same) return sum_of<T, T>(call, shape);
    if constexpr (is_low<T>) sum_of<T, float>(call, shape);
    if constexpr (std::is_same_v<T, float>)
      y.dtype == ir::DType::bf16 ? sum_of<T, Bf16>(call, shape) : sum_of<T, F16>(call, shape);
  });
}
void run_sumsq(const Call& call) { sum_of_squares(call, Answer::sum); }
void run_alarm(const Call& call) { sum_of_squares(call, Answer::alarm); }

std::int64_t workspace_sum(const ir::Attrs& attrs, std::span<const ir::Type> in,
                           std::span<const ir::Type> out, const Limits&) {
  if (in[0].elements() == 0) return 0;
  const SumShape shape(std::get<ir::Sum>(attrs), in[0].shape, out[0].shape, in[0].dtype);
  if (shape.kind == SumShape::columns)
    return shape.parts == 1 ? 0
                            : shape.parts * shape.outer * shape.column_count *
                                  ir::size_of(ir::statistics_of(in[0].dtype));
  const bool cut = shape.kind == SumShape::rows && shape.column_count > short_row;
  return cut ? workspace_of_rows(shape.row_count, shape.column_count) : 0;
}
std::int64_t workspace_sumsq(const ir::Attrs&, std::span<const ir::Type> in,
                             std::span<const ir::Type>, const Limits&) {
  return workspace_of_rows(1, in[0].elements());
}
std::int64_t workspace_alarm(const ir::Attrs& attrs, std::span<const ir::Type> in,
                             std::span<const ir::Type> out, const Limits& limits) {
  return workspace_sumsq(attrs, in, out, limits);
}

}  // namespace tessera::exec::cuda
