// Losses per sample and their gradients, one block per row: the rows are few and short, so launches
// and latency are what they cost. The target is a class (i32[b]) or a distribution (T[b,c]);
// smoothing mixes in the uniform one: q = (1 - s) target + s / c. Exponentials are those of the
// element type, sums and products around them double. Convention: a label outside the classes gives
// NaN (a kernel cannot refuse it), which every watch on a run hears; a row is read completely
// before its result is written.
#include <limits>

#include "exec/cuda/kernels/index.cuh"

namespace tessera::exec::cuda {
namespace {

constexpr int row_threads = 128;

template <class T>
struct LossRows {
  const T* x;
  const std::int32_t* label;  // one of these is null
  const T* soft;
  std::int64_t classes;
  double smoothing;
  std::int64_t rows;

  LossRows(const Call& call, double smoothing_of)
      : x(call.in[0].as<T>()),
        label(call.in[1].dtype == ir::DType::i32 ? call.in[1].as<std::int32_t>() : nullptr),
        soft(label ? nullptr : call.in[1].as<T>()),
        classes(call.in[0].shape[1]),
        smoothing(smoothing_of),
        rows(call.in[0].shape[0]) {
    CHECK(label || call.in[1].dtype == call.in[0].dtype,
          "a distribution as target has the type of the logits");
  }
};

// One row of them, seen by its block.
template <class T>
struct LossRow {
  const T* x;
  const T* soft;
  std::int64_t label, classes;
  double share, floor;  // q = share target + floor

  __device__ LossRow(const LossRows<T>& rows, std::int64_t row)
      : x(rows.x + row * rows.classes),
        soft(rows.soft ? rows.soft + row * rows.classes : nullptr),
        label(rows.label ? rows.label[row] : 0),
        classes(rows.classes),
        share(1.0 - rows.smoothing),
        floor(rows.smoothing / static_cast<double>(rows.classes)) {
    if (label < 0 || label >= classes) share = std::numeric_limits<double>::quiet_NaN();
  }
  __device__ double q(std::int64_t k) const {
    const double target = soft ? static_cast<double>(soft[k]) : k == label ? 1.0 : 0.0;
    return share * target + floor;
  }
  // sum over the classes of f(k); every thread gets it
  template <class F>
  __device__ double sum(F f) const {
    double total = 0;
    for (std::int64_t k = threadIdx.x; k < classes; k += row_threads) total += f(k);
    return block_sum(total);
  }
  // log sum exp x = top + log sum exp(x - top): nothing overflows
  __device__ double log_sum_exp() const {
    __shared__ double lse;
    T top = -std::numeric_limits<T>::infinity();
    for (std::int64_t k = threadIdx.x; k < classes; k += row_threads) top = max(top, x[k]);
    top = block_max(top);
    const double total = sum([&](std::int64_t k) { return static_cast<double>(exp(x[k] - top)); });
    if (threadIdx.x == 0) lse = static_cast<double>(top) + log(total);
    __syncthreads();
    return lse;
  }
};

// -sum of q (x - lse); a class of weight 0 adds nothing even where x is -inf
template <class T, bool normalise>
__global__ void __launch_bounds__(row_threads)
    loss_of_rows(const __grid_constant__ LossRows<T> rows, T* y) {
  const LossRow<T> row(rows, blockIdx.x);
  double lse = 0;
  if constexpr (normalise) lse = row.log_sum_exp();
  const double loss = row.sum([&](std::int64_t k) {
    const double q = row.q(k);
    return q != 0 ? -q * (static_cast<double>(row.x[k]) - lse) : 0.0;
  });
  if (threadIdx.x == 0) y[blockIdx.x] = static_cast<T>(loss);
}

// -g q
template <class T>
__global__ void __launch_bounds__(row_threads)
    nll_grad_of_rows(const __grid_constant__ LossRows<T> rows, const T* g, T* y) {
  const LossRow<T> row(rows, blockIdx.x);
  const double by = -static_cast<double>(g[blockIdx.x]);
  y += blockIdx.x * row.classes;
  for (std::int64_t k = threadIdx.x; k < row.classes; k += row_threads)
    y[k] = static_cast<T>(by * row.q(k));
}

// g (softmax(x) sum(q) - q)
template <class T>
__global__ void __launch_bounds__(row_threads)
    cross_entropy_grad_of_rows(const __grid_constant__ LossRows<T> rows, const T* g, T* y) {
  const LossRow<T> row(rows, blockIdx.x);
  const double by = static_cast<double>(g[blockIdx.x]), lse = row.log_sum_exp(),
               total = row.sum([&](std::int64_t k) { return row.q(k); });
  y += blockIdx.x * row.classes;
  for (std::int64_t k = threadIdx.x; k < row.classes; k += row_threads) {
    const T logp = static_cast<T>(static_cast<double>(row.x[k]) - lse);
    y[k] = static_cast<T>(by * (static_cast<double>(exp(logp)) * total - row.q(k)));
  }
}

// The class of a row: the label, or of a distribution the largest, the first among equals. As
// std::max_element: a NaN is never larger, and nothing is larger than a NaN that comes first.
template <class T>
__device__ std::int64_t class_of(const LossRow<T>& row) {
  if (!row.soft) return row.label;
  if (row.soft[0] != row.soft[0]) return 0;
  T top = -std::numeric_limits<T>::infinity();
  for (std::int64_t k = threadIdx.x; k < row.classes; k += row_threads) top = max(top, row.soft[k]);
  top = block_max(top);
  std::int64_t first = row.classes;
  for (std::int64_t k = threadIdx.x; k < row.classes; k += row_threads)
    if (row.soft[k] == top) first = min(first, k);
  return -block_max(-static_cast<long long>(first));
}

// 1 when fewer than `most` classes are ahead of the target's: a larger logit, or an equal one of
// lower index. A NaN is never right.
template <class T>
__global__ void __launch_bounds__(row_threads)
    correct_rows(const __grid_constant__ LossRows<T> rows, std::int64_t most, T* y) {
  const LossRow<T> row(rows, blockIdx.x);
  const std::int64_t best = class_of(row);
  const bool there = best >= 0 && best < row.classes && row.x[best] == row.x[best];
  long long ahead = 0;
  if (there)
    for (std::int64_t k = threadIdx.x; k < row.classes; k += row_threads)
      ahead += !(row.x[k] < row.x[best]) && (row.x[k] != row.x[best] || k < best);
  ahead = block_sum(ahead);
  if (threadIdx.x == 0) y[blockIdx.x] = there && ahead < most ? T(1) : T(0);
}

// launch(rows, blocks) with the element type of the logits, unless there are no rows.
template <class Launch>
void for_rows(const Call& call, double smoothing, const char* name, const Launch& launch) {
  const ir::Shape& shape = call.in[0].shape;
  if (shape[0] == 0) return;
  CHECK(shape[0] < std::int64_t{1} << 31, "a launch has fewer blocks than these samples");
  with_wide(call.in[0].dtype, [&]<class T>(T) {
    launch(LossRows<T>(call, smoothing), static_cast<unsigned>(shape[0]));
  });
  launched(name);
}
double smoothing_of(const Call& call) { return call.attr<ir::Loss>().smoothing; }

}  // namespace

void run_nll(const Call& call) {
  for_rows(call, smoothing_of(call), "nll", [&]<class T>(const LossRows<T>& rows, unsigned blocks) {
    loss_of_rows<T, false><<<blocks, row_threads, 0, call.stream>>>(rows, call.out[0].as<T>());
  });
}
void run_cross_entropy(const Call& call) {
  for_rows(call, smoothing_of(call), "cross_entropy",
           [&]<class T>(const LossRows<T>& rows, unsigned blocks) {
             loss_of_rows<T, true>
                 <<<blocks, row_threads, 0, call.stream>>>(rows, call.out[0].as<T>());
           });
}
void run_nll_grad(const Call& call) {
  for_rows(call, smoothing_of(call), "nll_grad",
           [&]<class T>(const LossRows<T>& rows, unsigned blocks) {
             nll_grad_of_rows<<<blocks, row_threads, 0, call.stream>>>(rows, call.in[2].as<T>(),
                                                                       call.out[0].as<T>());
           });
}
void run_cross_entropy_grad(const Call& call) {
  for_rows(call, smoothing_of(call), "cross_entropy_grad",
           [&]<class T>(const LossRows<T>& rows, unsigned blocks) {
             cross_entropy_grad_of_rows<<<blocks, row_threads, 0, call.stream>>>(
                 rows, call.in[2].as<T>(), call.out[0].as<T>());
           });
}
void run_correct(const Call& call) {
  for_rows(call, 0.0, "correct", [&]<class T>(const LossRows<T>& rows, unsigned blocks) {
    correct_rows<<<blocks, row_threads, 0, call.stream>>>(rows, call.attr<ir::TopK>().k,
                                                          call.out[0].as<T>());
  });
}

}  // namespace tessera::exec::cuda
