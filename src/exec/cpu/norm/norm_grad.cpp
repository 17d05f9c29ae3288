// The gradient of layer norm over the last dim; rows are f32 or bf16 in memory and f32 in
// registers. Convention: a row is one task's affair from start to end; gradients of gain and bias
// are partial sums over runs of rows, added in order.
#include <cmath>

#include "base/check.h"
#include "exec/cpu/gemm/micro.h"
#include "exec/cpu/norm/norm.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/norm/norm_grad.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/simd/low-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

// With h = (x - mean) rstd and w = dy g: dg += dy h, db += dy, and the means of w and of w h are
// what dx lacks to stay orthogonal to 1 and h.
struct Means {
  float w, wh;
};

HWY_INLINE Two multiply_add(Two x, hn::Vec<hn::ScalableTag<float>> factor,
                            hn::Vec<hn::ScalableTag<float>> addend) {
  return {hn::MulAdd(x.a, factor, addend), hn::MulAdd(x.b, factor, addend)};
}
HWY_INLINE Two multiply_add(Two x, Two factor, Two addend) {
  return {hn::MulAdd(x.a, factor.a, addend.a), hn::MulAdd(x.b, factor.b, addend.b)};
}
HWY_INLINE Two add(Two x, Two y) { return {hn::Add(x.a, y.a), hn::Add(x.b, y.b)}; }
HWY_INLINE Two multiply(Two x, Two y) { return {hn::Mul(x.a, y.a), hn::Mul(x.b, y.b)}; }
HWY_INLINE float total_of(Two x) {
  const hn::ScalableTag<float> d;
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(x.a, x.b)));
}

// The means of one row, or of two, which share the loads of g and the updates of dg and db.
template <bool params, int count, class DY, class X>
HWY_INLINE void means_of_rows(const NormGradRows& n, std::int64_t row, Means* means) {
  const hn::ScalableTag<float> d;
  const std::int64_t c = n.c;
  const DY *const dy0 = n.dy.at<DY>(row * c), *const dy1 = dy0 + c;
  const X *const x0 = n.x.at<X>(row * c), *const x1 = x0 + c;
  const float* const g = n.g;
  float *const dg = n.dg, *const db = n.db;
  constexpr int other = count - 1;
  const auto r0 = hn::Set(d, n.rstd[row]), r1 = hn::Set(d, n.rstd[row + other]),
             m0 = hn::Set(d, -n.mean[row] * n.rstd[row]),
             m1 = hn::Set(d, -n.mean[row + other] * n.rstd[row + other]);
  Two w0 = two_zeros(), w1 = w0, wh0 = w0, wh1 = w0;
  along_row(c, [&](std::int64_t i, auto where) TESSERA_ROW_ATTR {
    const Two gain = load_two(where, g + i), y0 = load_two(where, dy0 + i),
              h0 = multiply_add(load_two(where, x0 + i), r0, m0), u0 = multiply(y0, gain);
    w0 = add(w0, u0);
    wh0 = multiply_add(u0, h0, wh0);
    Two yh = two_zeros(), y = y0;
    if constexpr (params) yh = multiply_add(y0, h0, load_two(where, dg + i));
    if constexpr (count == 2) {
      const Two y1 = load_two(where, dy1 + i), h1 = multiply_add(load_two(where, x1 + i), r1, m1),
                u1 = multiply(y1, gain);
      w1 = add(w1, u1);
      wh1 = multiply_add(u1, h1, wh1);
      if constexpr (params) yh = multiply_add(y1, h1, yh);
      y = add(y0, y1);
    }
    if constexpr (params) {
      store_two<false>(where, yh, dg + i);
      store_two<false>(where, add(load_two(where, db + i), y), db + i);
    }
  });
  const float share = 1.0f / static_cast<float>(c);
  means[0] = {total_of(w0) * share, total_of(wh0) * share};
  if constexpr (count == 2) means[1] = {total_of(w1) * share, total_of(wh1) * share};
}

// Where one row of dx goes and what is added to it.
struct RowEnds {
  Numbers addend, dx, copy;
  RowEnds(const NormGradRows& n, std::int64_t row)
      : addend(n.addend.from(row * n.c)), dx(n.dx.from(row * n.c)), copy(n.copy.from(row * n.c)) {}
};
template <bool machine, class Where>
HWY_INLINE void store_numbers(Where where, Two v, const Numbers& y, std::int64_t i) {
  if (y.low)
    store_two<machine>(where, v, y.at<Low>(i));
  else
    store_two<machine>(where, v, y.at<float>(i));
}
template <bool machine, class Where>
HWY_INLINE Two finish_dx(Where where, Two dx, const RowEnds& ends, std::int64_t i) {
  if (ends.addend)
    dx = add(dx, ends.addend.low ? load_two(where, ends.addend.at<Low>(i))
                                 : load_two(where, ends.addend.at<float>(i)));
  if (ends.dx) store_numbers<machine>(where, dx, ends.dx, i);
  if (ends.copy) store_numbers<machine>(where, dx, ends.copy, i);
  return dx;
}

// dx = rstd (w - mean(w) - h mean(w h)) + addend, of one row or of two; dx may be dy, x or the
// addend. What does not depend on the column is put together: dx = rstd w + (slope x + offset).
template <bool machine, int count, class DY, class X>
HWY_INLINE void dx_of_rows(const NormGradRows& n, std::int64_t row, const Means* means) {
  const hn::ScalableTag<float> d;
  const std::int64_t c = n.c;
  constexpr int other = count - 1;
  const DY *const dy0 = n.dy.at<DY>(row * c), *const dy1 = dy0 + c;
  const X *const x0 = n.x.at<X>(row * c), *const x1 = x0 + c;
  const float *const g = n.g, scale0 = n.rstd[row], scale1 = n.rstd[row + other],
                     slope0 = -scale0 * scale0 * means[0].wh,
                     slope1 = -scale1 * scale1 * means[other].wh,
                     offset0 = -scale0 * means[0].w - slope0 * n.mean[row],
                     offset1 = -scale1 * means[other].w - slope1 * n.mean[row + other];
  float* const total = n.total;
  const RowEnds ends0(n, row), ends1(n, row + other);
  along_row(c, [&](std::int64_t i, auto where) TESSERA_ROW_ATTR {
    const Two gain = load_two(where, g + i);
    const auto of = [&](Two dy, Two x, float scale, float slope, float offset) TESSERA_ROW_ATTR {
      const Two rest = multiply_add(x, hn::Set(d, slope), hn::Set(d, offset));
      const Two w = multiply(dy, gain);
      const auto r = hn::Set(d, scale);
      return Two{hn::MulAdd(w.a, r, rest.a), hn::MulAdd(w.b, r, rest.b)};
    };
    Two sum = finish_dx<machine>(
        where, of(load_two(where, dy0 + i), load_two(where, x0 + i), scale0, slope0, offset0),
        ends0, i);
    if constexpr (count == 2)
      sum = add(sum, finish_dx<machine>(where,
                                        of(load_two(where, dy1 + i), load_two(where, x1 + i),
                                           scale1, slope1, offset1),
                                        ends1, i));
    if (total != nullptr) store_two<false>(where, add(load_two(where, total + i), sum), total + i);
  });
}

template <int count, class DY, class X>
HWY_INLINE void means_of_rows(const NormGradRows& n, std::int64_t row, Means* means) {
  if (n.dg != nullptr)
    means_of_rows<true, count, DY, X>(n, row, means);
  else
    means_of_rows<false, count, DY, X>(n, row, means);
}

// A function for each pair of types: g++ takes minutes for one that has all of them in it.
template <bool machine, class DY, class X>
HWY_NOINLINE void norm_grad_blocks(const NormGradRows& n) {
  const bool writes = n.dx || n.copy || n.total != nullptr;
  for (std::int64_t first = 0; first < n.rows; first += norm_block) {
    const std::int64_t end = std::min(n.rows, first + norm_block);
    Means means[norm_block];
    std::int64_t row = first;
    for (; row + 2 <= end; row += 2) means_of_rows<2, DY, X>(n, row, means + (row - first));
    if (row < end) means_of_rows<1, DY, X>(n, row, means + (row - first));
    if (!writes) continue;
    for (row = first; row + 2 <= end; row += 2)
      dx_of_rows<machine, 2, DY, X>(n, row, means + (row - first));
    if (row < end) dx_of_rows<machine, 1, DY, X>(n, row, means + (row - first));
  }
}

template <bool machine>
void norm_grad_rows_by(const NormGradRows& n) {
  if (n.dy.low)
    return n.x.low ? norm_grad_blocks<machine, Low, Low>(n)
                   : norm_grad_blocks<machine, Low, float>(n);
  return n.x.low ? norm_grad_blocks<machine, float, Low>(n)
                 : norm_grad_blocks<machine, float, float>(n);
}
void norm_grad_rows(const NormGradRows& n) { norm_grad_rows_by<false>(n); }
void norm_grad_rows_rounding(const NormGradRows& n) { norm_grad_rows_by<rounds_by_instruction>(n); }

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(norm_grad_rows);
HWY_EXPORT(norm_grad_rows_rounding);

namespace {
// Runs of rows whose sums are taken apart: at most 64, of whole blocks.
std::int64_t grad_run(std::int64_t rows) {
  return std::max<std::int64_t>(8, (rows + 64 * norm_block - 1) / (64 * norm_block) * norm_block);
}
}  // namespace

void fast_layer_norm_grad(const Call& call) {
  static const bool rounds = machine_round() != nullptr;
  const Tensor &dy = call.in[0], &x = call.in[1], &dx = call.out[0],
               addend = call.in.size() > 5 ? call.in[5] : Tensor{},
               copy = call.out.size() > 3 ? call.out[3] : Tensor{};
  const std::int64_t c = row_size(dy.shape), rows = rows_of(dy), run = grad_run(rows),
                     runs = (rows + run - 1) / run;
  float *dg = call.out[1].as<float>(), *db = call.out[2].as<float>(),
        *total = call.out.size() > 3 ? call.out[4].as<float>() : nullptr;
  CHECK(rows == 0 || dx || copy || total == nullptr,
        "layer_norm_grad: the sum of a dx that nobody reads");
  const std::int64_t pitch = (call.out.size() > 3 ? 3 : 2) * c;
  float* partial = dg != nullptr || db != nullptr || total != nullptr
                       ? call.shared_scratch<float>()
                       : nullptr;  // [runs][dg, db, total][c]
  call.pool.parallel_for(runs, [&](std::int64_t task, int) {
    const std::int64_t row = task * run, e = row * c;
    float* const sums = partial == nullptr ? nullptr : partial + task * pitch;
    if (sums != nullptr) vector_fill(sums, pitch, 0.0f);
    const bool once = dx && copy && copy.data == dx.data;
    const NormGradRows of_task{.dy = {dy, e},
                               .x = {x, e},
                               .addend = {addend, e},
                               .dx = {dx, e},
                               .copy = once ? Numbers{} : Numbers{copy, e},
                               .mean = call.in[2].as<float>() + row,
                               .rstd = call.in[3].as<float>() + row,
                               .g = call.in[4].as<float>(),
                               .dg = sums,
                               .db = sums == nullptr ? nullptr : sums + c,
                               .total = total == nullptr ? nullptr : sums + 2 * c,
                               .rows = std::min(run, rows - row),
                               .c = c};
    if (rounds)
      HWY_DYNAMIC_DISPATCH(norm_grad_rows_rounding)(of_task);
    else
      HWY_DYNAMIC_DISPATCH(norm_grad_rows)(of_task);
  });
  if (dg != nullptr) vector_column_sum(partial, runs, pitch, c, dg);
  if (db != nullptr) vector_column_sum(partial + c, runs, pitch, c, db);
  if (total != nullptr) vector_column_sum(partial + 2 * c, runs, pitch, c, total);
}

Scratch scratch_layer_norm_grad(const ir::Attrs&, std::span<const ir::Type> in,
                                std::span<const ir::Type> out) {
  const std::int64_t c = row_size(in[0].shape), rows = c == 0 ? 0 : in[0].elements() / c,
                     run = grad_run(rows), sums = out.size() > 3 ? 3 : 2;
  return {.shared = sizeof(float) * static_cast<std::size_t>((rows + run - 1) / run * sums * c)};
}

}  // namespace tessera::exec::cpu
#endif
