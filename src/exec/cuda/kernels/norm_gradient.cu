// layer_norm_grad: with n = (x - mean) rstd and e = dy gain, dx = rstd (e - mean(e) - n mean(e n))
// + addend, dgain = sum over rows of dy n, dbias = sum over rows of dy. One pass over dy and x: a
// warp walks over many rows and keeps the sums of its columns in registers; the sums of all blocks
// lie in the workspace [parts, 2, c] and are added in order. A dx that is read in another type,
// too, is written in both, and then its sum over rows is the third of these sums. Floor: bytes of
// dy, x, addend and dx.
#include "exec/cuda/attention/slices.cuh"
#include "exec/cuda/kernels/norm.cuh"

namespace tessera::exec::cuda {

namespace {

using norm::Columns;
using norm::Rows;

// L: the other type of dx; void: there is none. D: of dy; T, or that other type.
template <class T, class L, class D = T>
struct NormGrad {
  static constexpr bool twice = !std::is_void_v<L>;
  static constexpr int sums = twice ? 3 : 2;

  const D* dy;
  const T *x, *addend;  // addend: null, or what is added to dx
  const Wide<T>*mean, *rstd, *gain;
  T* dx;  // null: not wanted
  L* copy;
  Wide<T>* partial;  // [parts, sums, width]
  std::int64_t rows, width;

  __host__ __device__ bool wants_dx() const { return dx || copy; }
};

// The sums of a block: where warps share it, they are added in order.
template <class T, class L, class D, int group, int per_thread>
__device__ void store_sums(const NormGrad<T, L, D>& a,
                           const float (&values)[NormGrad<T, L, D>::sums][per_thread]) {
  using Own = Columns<T, group, per_thread>;
  constexpr int vector = Own::vector, most = group * per_thread, count = NormGrad<T, L, D>::sums;
  const int width = static_cast<int>(a.width), turn = static_cast<int>(threadIdx.x) / group;
  float* to = a.partial + static_cast<std::int64_t>(blockIdx.x) * count * width;
  const auto for_own = [&](auto&& visit) {
#pragma unroll
    for (int k = 0; k < Own::vectors; ++k)
#pragma unroll
      for (int i = 0; i < vector; ++i)
#pragma unroll
        for (int of = 0; of < count; ++of)
          visit(of, Own::column(k) + i, values[of][k * vector + i]);
  };
  if constexpr (group == norm::row_threads) {
    for_own([&](int of, int c, float value) {
      if (c < width) to[of * width + c] = value;
    });
  } else {
    __shared__ float sums[count][most];
    for (int now = 0; now < norm::row_threads / group; ++now) {
      if (turn == now)
        for_own([&](int of, int c, float value) {
          sums[of][c] = value + (now == 0 ? 0.0f : sums[of][c]);
        });
      __syncthreads();
    }
    for (int c = static_cast<int>(threadIdx.x); c < width; c += norm::row_threads)
#pragma unroll
      for (int of = 0; of < count; ++of) to[of * width + c] = sums[of][c];
  }
}

template <class T, class L, class D, int group, int per_thread>
__global__ void __launch_bounds__(norm::row_threads) norm_grad_kernel(NormGrad<T, L, D> a) {
  using Own = Columns<T, group, per_thread>;
  constexpr int vector = Own::vector, together = norm::row_threads / group;
  const int width = static_cast<int>(a.width);
  const float share = 1.0f / static_cast<float>(width);
  float sums[NormGrad<T, L, D>::sums][per_thread] = {};  // dgain, dbias, and of dx
  for (std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * together + threadIdx.x / group;
       row < a.rows; row += static_cast<std::int64_t>(gridDim.x) * together) {
    const std::int64_t at = row * a.width;
    float n[per_thread], e[per_thread];
    Own::load(n, a.x + at, width);
    Own::load(e, a.dy + at, width);
    const float mean = a.mean[row], rstd = a.rstd[row];
    float sum = 0, product = 0;
#pragma unroll
    for (int k = 0; k < Own::vectors; ++k)
      if (Own::column(k) < width) {
        float gain[vector];
        Own::load_floats(gain, a.gain, k);
#pragma unroll
        for (int i = 0; i < vector; ++i) {
          const int j = k * vector + i;
          n[j] = (n[j] - mean) * rstd;
          sums[0][j] += e[j] * n[j];
          sums[1][j] += e[j];
          e[j] *= gain[i];
          sum += e[j];
          product += e[j] * n[j];
        }
      }
    sum = norm::group_sum<group>(sum) * share;
    product = norm::group_sum<group>(product) * share;
    if (!a.wants_dx()) continue;
#pragma unroll
    for (int j = 0; j < per_thread; ++j) e[j] = rstd * (e[j] - sum - n[j] * product);
    if (a.addend) {
      Own::load(n, a.addend + at, width);
#pragma unroll
      for (int j = 0; j < per_thread; ++j) e[j] += n[j];
    }
    if (a.dx) Own::store(e, a.dx + at, width);
    if constexpr (NormGrad<T, L, D>::twice) {
      if (a.copy) Own::store(e, a.copy + at, width);
#pragma unroll
      for (int k = 0; k < Own::vectors; ++k)
        if (Own::column(k) < width)
#pragma unroll
          for (int i = 0; i < vector; ++i) sums[2][k * vector + i] += e[k * vector + i];
    }
  }
  if (a.partial) store_sums<T, L, D, group, per_thread>(a, sums);
}

// Any width and any address: dx, a block for each row.
template <class T, class L, class D>
__global__ void __launch_bounds__(norm::plain_threads) norm_dx_plain_kernel(NormGrad<T, L, D> a) {
  using W = Wide<T>;
  for (std::int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const std::int64_t at = row * a.width;
    const W mean = a.mean[row], rstd = a.rstd[row];
    W sum = 0, product = 0;
    for (std::int64_t i = threadIdx.x; i < a.width; i += norm::plain_threads) {
      const W e = widen(a.dy[at + i]) * a.gain[i];
      sum += e;
      product += e * ((widen(a.x[at + i]) - mean) * rstd);
    }
    sum = block_sum(sum) / static_cast<W>(a.width);
    product = block_sum(product) / static_cast<W>(a.width);
    for (std::int64_t i = threadIdx.x; i < a.width; i += norm::plain_threads) {
      const W e = widen(a.dy[at + i]) * a.gain[i], n = (widen(a.x[at + i]) - mean) * rstd;
      W dx = rstd * (e - sum - n * product);
      if (a.addend) dx += widen(a.addend[at + i]);
      if (a.dx) a.dx[at + i] = narrow<T>(dx);
      if constexpr (NormGrad<T, L, D>::twice)
        if (a.copy) a.copy[at + i] = narrow<L>(dx);
    }
  }
}

// The same for dgain and dbias, or when dx is there (`of_dx`) for its sum: 32 columns of the rows
// of one part; a warp adds every eighth of them.
template <class T, class L, class D>
__global__ void __launch_bounds__(norm::plain_threads)
    norm_columns_kernel(NormGrad<T, L, D> a, std::int64_t rows_of_part, bool of_dx) {
  using W = Wide<T>;
  constexpr int warps = norm::plain_threads / 32;
  __shared__ W sums[2][warps][32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + lane;
  const std::int64_t end = min(a.rows, (blockIdx.y + std::int64_t{1}) * rows_of_part);
  W dgain = 0, dbias = 0;
  if (column < a.width)
    for (std::int64_t row = blockIdx.y * rows_of_part + warp; row < end; row += warps) {
      const std::int64_t at = row * a.width + column;
      if (of_dx) {
        if constexpr (NormGrad<T, L, D>::twice) dgain += a.dx ? widen(a.dx[at]) : widen(a.copy[at]);
      } else {
        const W dy = widen(a.dy[at]), x = widen(a.x[at]);
        dgain += dy * ((x - a.mean[row]) * a.rstd[row]);
        dbias += dy;
      }
    }
  sums[0][warp][lane] = dgain;
  sums[1][warp][lane] = dbias;
  __syncthreads();
  if (warp != 0 || column >= a.width) return;
  for (int w = 1; w < warps; ++w) {
    dgain += sums[0][w][lane];
    dbias += sums[1][w][lane];
  }
  W* to = a.partial + (blockIdx.y * NormGrad<T, L, D>::sums + (of_dx ? 2 : 0)) * a.width + column;
  to[0] = dgain;
  if (!of_dx) to[a.width] = dbias;
}

// Partial sums: one for each block; as many blocks as the registers of the card hold.
std::int64_t parts_of(const Rows& rows, bool twice, const Limits& limits) {
  const std::int64_t resident = (rows.width <= 256   ? 9
                                 : rows.width <= 768 ? 4
                                                     : 3) -
                                (twice ? 1 : 0);
  return std::min<std::int64_t>((rows.count + 3) / 4, resident * limits.multiprocessors);
}

template <class T, class L, class D>
void launch_plain(const Call& call, const NormGrad<T, L, D>& a, std::int64_t parts) {
  const auto sum_columns = [&](bool of_dx) {
    const dim3 grid(grid_for(a.width, 32), static_cast<unsigned>(parts));
    norm_columns_kernel<T, L, D>
        <<<grid, norm::plain_threads, 0, call.stream>>>(a, (a.rows + parts - 1) / parts, of_dx);
    launched("layer_norm_grad, any width, sums");
  };
  if (a.partial) sum_columns(false);  // dx may lie over dy or x: these come first
  if (!a.wants_dx()) return;
  norm_dx_plain_kernel<T, L, D><<<grid_for(a.rows, 1), norm::plain_threads, 0, call.stream>>>(a);
  launched("layer_norm_grad, any width");
  if (NormGrad<T, L, D>::twice && a.partial) sum_columns(true);
}

template <class T, class L, class D>
void launch_grad(const Call& call, const NormGrad<T, L, D>& a, std::int64_t parts) {
  if (a.rows == 0) return;
  if constexpr (!std::is_same_v<T, double>)
    if (norm::in_registers<T>(a.width, {a.dy, a.x, a.addend, a.gain, a.dx, a.copy})) {
      norm::with_group(a.width, [&](auto group, auto per_thread) {
        norm_grad_kernel<T, L, D, group, per_thread>
            <<<static_cast<unsigned>(parts), norm::row_threads, 0, call.stream>>>(a);
      });
      return launched("layer_norm_grad");
    }
  launch_plain<T, L, D>(call, a, parts);
}

template <class T, class L, class D>
void run_grad(const Call& call) {
  using W = Wide<T>;
  const Rows rows = norm::rows_of(call.in[0].shape);
  const std::int64_t parts = parts_of(rows, NormGrad<T, L, D>::twice, call.context.limits),
                     stride = NormGrad<T, L, D>::sums * rows.width;
  CHECK(call.workspace_bytes >= parts * stride * static_cast<std::int64_t>(sizeof(W)),
        "layer_norm_grad: workspace too small");
  const Tensor total = NormGrad<T, L, D>::twice ? call.out[4] : Tensor();
  const bool sums = call.out[1] || call.out[2] || total;
  L* copy = nullptr;
  if constexpr (NormGrad<T, L, D>::twice) copy = call.out[3].template as<L>();
  CHECK(rows.count == 0 || call.out[0] || copy || !total,
        "layer_norm_grad: the sum of a dx that nobody reads");
  launch_grad<T, L, D>(call,
                       {.dy = call.in[0].as<D>(),
                        .x = call.in[1].as<T>(),
                        .addend = call.in.size() > 5 ? call.in[5].as<T>() : nullptr,
                        .mean = call.in[2].as<W>(),
                        .rstd = call.in[3].as<W>(),
                        .gain = call.in[4].as<W>(),
                        .dx = call.out[0].as<T>(),
                        .copy = copy,
                        .partial = sums ? call.scratch<W>() : nullptr,
                        .rows = rows.count,
                        .width = rows.width},
                       parts);
  int part = 0;
  for (const Tensor& z : {call.out[1], call.out[2], total}) {
    if (z)
      add_slices(call.scratch<W>() + part * rows.width, parts, stride, rows.width, z.as<W>(),
                 call.stream);
    ++part;
  }
}

}  // namespace

std::int64_t workspace_layer_norm_grad(const ir::Attrs& attrs, std::span<const ir::Type> in,
                                       std::span<const ir::Type>, const Limits& limits) {
  const Rows rows = norm::rows_of(in[0].shape);
  const bool twice = std::get<ir::Norm>(attrs).to.has_value();
  return parts_of(rows, twice, limits) * (twice ? 3 : 2) * rows.width *
         (in[1].dtype == ir::DType::f64 ? 8 : 4);
}

void run_layer_norm_grad(const Call& call) {
  with_float(call.in[1].dtype, [&](auto zero) {
    using T = decltype(zero);
    const ir::DType wide = std::is_same_v<T, double> ? ir::DType::f64 : ir::DType::f32;
    CHECK(call.in[4].dtype == wide, "layer_norm_grad: the gain is " + std::string(ir::name(wide)) +
                                        " beside " + std::string(ir::name(call.in[1].dtype)));
    const auto to = call.attr<ir::Norm>().to;
    if (!to) return run_grad<T, void, T>(call);
    CHECK((std::is_same_v<T, float>), "layer_norm_grad: dx has another type beside f32 alone");
    if constexpr (std::is_same_v<T, float>)
      norm::with_result<T>(*to, [&]<class L>(L) {
        call.in[0].dtype == *to ? run_grad<T, L, L>(call) : run_grad<T, L, T>(call);
      });
  });
}

}  // namespace tessera::exec::cuda
