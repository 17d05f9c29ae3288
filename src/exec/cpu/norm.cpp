// Fast layer norm over the last dim, its gradient, and the residual add in front of it; sums are
// f32, and rows of bf16 pass through a buffer of their thread. Convention: a row is one task's
// affair from start to end; gradients of gain and bias are partial sums over runs of rows, added in
// order.
#include "exec/cpu/kernel.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "exec/cpu/low.h"
#include "exec/cpu/reference/quantised.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/norm.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

HWY_INLINE float total(V v) {
  const F32 d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// s = x + r, and the sum of s; s may be x or r.
float add_and_sum(const float* x, const float* r, float* s, std::int64_t c) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V a = hn::Zero(d), b = a;
  std::int64_t i = 0;
  for (; i + 2 * lanes <= c; i += 2 * lanes) {
    const V u = hn::Add(hn::LoadU(d, x + i), hn::LoadU(d, r + i)),
            v = hn::Add(hn::LoadU(d, x + i + lanes), hn::LoadU(d, r + i + lanes));
    hn::StoreU(u, d, s + i);
    hn::StoreU(v, d, s + i + lanes);
    a = hn::Add(a, u);
    b = hn::Add(b, v);
  }
  float sum = total(hn::Add(a, b));
  for (; i < c; ++i) sum += s[i] = x[i] + r[i];
  return sum;
}

float squares_around(const float* x, std::int64_t c, float mean) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V m = hn::Set(d, mean);
  V a = hn::Zero(d), b = a, e = a, f = a;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= c; i += 4 * lanes) {
    const V p = hn::Sub(hn::LoadU(d, x + i), m), q = hn::Sub(hn::LoadU(d, x + i + lanes), m);
    const V r = hn::Sub(hn::LoadU(d, x + i + 2 * lanes), m),
            s = hn::Sub(hn::LoadU(d, x + i + 3 * lanes), m);
    a = hn::MulAdd(p, p, a);
    b = hn::MulAdd(q, q, b);
    e = hn::MulAdd(r, r, e);
    f = hn::MulAdd(s, s, f);
  }
  float sum = total(hn::Add(hn::Add(a, b), hn::Add(e, f)));
  for (; i < c; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

// y = (x - mean) rstd g + b
void normalise(const float* x, const float* g, const float* b, float* y, std::int64_t c, float mean,
               float rstd) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V m = hn::Set(d, mean), r = hn::Set(d, rstd);
  std::int64_t i = 0;
  for (; i + lanes <= c; i += lanes)
    hn::StoreU(hn::MulAdd(hn::Mul(hn::Sub(hn::LoadU(d, x + i), m), r), hn::LoadU(d, g + i),
                          hn::LoadU(d, b + i)),
               d, y + i);
  for (; i < c; ++i) y[i] = (x[i] - mean) * rstd * g[i] + b[i];
}

// Rows of one task. r, s, y, mean and rstd may be null; `spare` holds a row when nobody wants s or
// y.
void norm_rows(const float* x, const float* r, const float* g, const float* b, float* s, float* y,
               float* mean, float* rstd, float* spare, std::int64_t rows, std::int64_t c,
               float eps) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * c;
    const float* in = x + at;
    float sum;
    if (r != nullptr) {
      float* target = s != nullptr ? s + at : y != nullptr ? y + at : spare;
      sum = add_and_sum(x + at, r + at, target, c);
      in = target;
    } else {
      sum = vector_sum(in, c);
    }
    const float m = sum / static_cast<float>(c);
    const float scale = 1.0f / std::sqrt(squares_around(in, c, m) / static_cast<float>(c) + eps);
    if (y != nullptr) normalise(in, g, b, y + at, c, m, scale);
    if (mean != nullptr) mean[row] = m;
    if (rstd != nullptr) rstd[row] = scale;
  }
}

// Two rows at once share the loads of g and the updates of dg and db. With h = (x - mean) rstd and
// w = dy g:
//   dg += dy h, db += dy, and the means of w and of w h are what dx lacks to stay orthogonal to 1
//   and h.
struct Means {
  float w, wh;
};
template <bool params>
HWY_INLINE void row_pair(const float* dy, const float* x, const float* g, const float* mean,
                         const float* rstd, float* dg, float* db, std::int64_t c,
                         std::int64_t second, Means& first_means, Means& second_means) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float *dy1 = dy + second, *x1 = x + second;
  const std::int64_t other = second != 0 ? 1 : 0;
  const float m0 = mean[0], m1 = mean[other], r0 = rstd[0], r1 = rstd[other];
  const V vm0 = hn::Set(d, m0), vm1 = hn::Set(d, m1), vr0 = hn::Set(d, r0), vr1 = hn::Set(d, r1);
  V w0 = hn::Zero(d), w1 = w0, wh0 = w0, wh1 = w0;
  std::int64_t i = 0;
  for (; i + lanes <= c; i += lanes) {
    const V gain = hn::LoadU(d, g + i), y0 = hn::LoadU(d, dy + i), y1 = hn::LoadU(d, dy1 + i);
    const V h0 = hn::Mul(hn::Sub(hn::LoadU(d, x + i), vm0), vr0),
            h1 = hn::Mul(hn::Sub(hn::LoadU(d, x1 + i), vm1), vr1);
    const V u0 = hn::Mul(y0, gain), u1 = hn::Mul(y1, gain);
    w0 = hn::Add(w0, u0);
    w1 = hn::Add(w1, u1);
    wh0 = hn::MulAdd(u0, h0, wh0);
    wh1 = hn::MulAdd(u1, h1, wh1);
    if constexpr (params) {
      hn::StoreU(hn::MulAdd(y1, h1, hn::MulAdd(y0, h0, hn::LoadU(d, dg + i))), d, dg + i);
      hn::StoreU(hn::Add(hn::LoadU(d, db + i), hn::Add(y0, y1)), d, db + i);
    }
  }
  first_means = {total(w0), total(wh0)};
  second_means = {total(w1), total(wh1)};
  for (; i < c; ++i) {
    const float h0 = (x[i] - m0) * r0, h1 = (x1[i] - m1) * r1;
    first_means.w += dy[i] * g[i];
    first_means.wh += dy[i] * g[i] * h0;
    second_means.w += dy1[i] * g[i];
    second_means.wh += dy1[i] * g[i] * h1;
    if constexpr (params) {
      dg[i] += dy[i] * h0 + dy1[i] * h1;
      db[i] += dy[i] + dy1[i];
    }
  }
  const float share = 1.0f / static_cast<float>(c);
  first_means = {first_means.w * share, first_means.wh * share};
  second_means = {second_means.w * share, second_means.wh * share};
}

// One row when their number is odd: the pair with itself would count it twice in dg and db.
template <bool params>
HWY_INLINE void row_single(const float* dy, const float* x, const float* g, const float* mean,
                           const float* rstd, float* dg, float* db, std::int64_t c, Means& means) {
  Means unused;
  row_pair<false>(dy, x, g, mean, rstd, nullptr, nullptr, c, 0, means, unused);
  if constexpr (params) {
    const F32 d;
    const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const V m = hn::Set(d, *mean), r = hn::Set(d, *rstd);
    std::int64_t i = 0;
    for (; i + lanes <= c; i += lanes) {
      const V y = hn::LoadU(d, dy + i), h = hn::Mul(hn::Sub(hn::LoadU(d, x + i), m), r);
      hn::StoreU(hn::MulAdd(y, h, hn::LoadU(d, dg + i)), d, dg + i);
      hn::StoreU(hn::Add(hn::LoadU(d, db + i), y), d, db + i);
    }
    for (; i < c; ++i) {
      dg[i] += dy[i] * ((x[i] - *mean) * *rstd);
      db[i] += dy[i];
    }
  }
}

// dx = rstd (w - mean(w) - h mean(w h)) + addend; dx may be dy, x or the addend.
template <bool added>
HWY_INLINE void row_dx(const float* dy, const float* x, const float* g, const float* addend,
                       float mean, float rstd, Means means, float* dx, std::int64_t c) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const V m = hn::Set(d, mean), r = hn::Set(d, rstd), w = hn::Set(d, means.w),
          wh = hn::Set(d, means.wh);
  std::int64_t i = 0;
  for (; i + lanes <= c; i += lanes) {
    const V h = hn::Mul(hn::Sub(hn::LoadU(d, x + i), m), r);
    const V v =
        hn::NegMulAdd(h, wh, hn::Sub(hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, g + i)), w));
    hn::StoreU(added ? hn::MulAdd(v, r, hn::LoadU(d, (added ? addend : dy) + i)) : hn::Mul(v, r), d,
               dx + i);
  }
  for (; i < c; ++i) {
    const float v = (dy[i] * g[i] - means.w - (x[i] - mean) * rstd * means.wh) * rstd;
    dx[i] = added ? v + addend[i] : v;
  }
}

// Rows of one task; dg and db, when given, are increased.
void norm_grad_rows(const float* dy, const float* x, const float* mean, const float* rstd,
                    const float* g, const float* addend, float* dx, float* dg, float* db,
                    std::int64_t rows, std::int64_t c) {
  for (std::int64_t row = 0; row < rows; row += 2) {
    const std::int64_t at = row * c;
    Means means[2];
    if (row + 1 == rows) {
      if (dg != nullptr)
        row_single<true>(dy + at, x + at, g, mean + row, rstd + row, dg, db, c, means[0]);
      else
        row_single<false>(dy + at, x + at, g, mean + row, rstd + row, dg, db, c, means[0]);
    } else if (dg != nullptr) {
      row_pair<true>(dy + at, x + at, g, mean + row, rstd + row, dg, db, c, c, means[0], means[1]);
    } else {
      row_pair<false>(dy + at, x + at, g, mean + row, rstd + row, dg, db, c, c, means[0], means[1]);
    }
    if (dx == nullptr) continue;
    for (std::int64_t k = 0; k < std::min<std::int64_t>(2, rows - row); ++k) {
      const std::int64_t start = at + k * c;
      if (addend != nullptr)
        row_dx<true>(dy + start, x + start, g, addend + start, mean[row + k], rstd[row + k],
                     means[k], dx + start, c);
      else
        row_dx<false>(dy + start, x + start, g, nullptr, mean[row + k], rstd[row + k], means[k],
                      dx + start, c);
    }
  }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(norm_rows);
HWY_EXPORT(norm_grad_rows);

namespace {
std::int64_t row_size(const ir::Shape& shape) { return shape.empty() ? 1 : shape.back(); }
std::int64_t rows_of(const Tensor& x) {
  return row_size(x.shape) == 0 ? 0 : x.elements() / row_size(x.shape);
}
std::int64_t rows_per_task(std::int64_t c) {
  return std::max<std::int64_t>(1, chunk / std::max<std::int64_t>(1, c));
}

// Runs of rows whose dg and db are summed apart: at most 64, of an even number of rows.
std::int64_t grad_run(std::int64_t rows) {
  return std::max<std::int64_t>(8, ((rows + 63) / 64 + 1) / 2 * 2);
}

// Operands and results of a norm; r and s may be absent.
struct NormOf {
  Tensor x, r{}, g, b, s{}, y, mean, rstd;

  bool low() const {
    return is_bf16(x) || (r && is_bf16(r)) || (s && is_bf16(s)) || (y && is_bf16(y));
  }
};
// A thread's rows: a spare one, and those of x, r, s and y where they are bf16.
std::int64_t norm_rows_of_thread(std::int64_t c) { return 1 + 4 * rows_at_once(c); }

void norm(const Call& call, const NormOf& n) {
  if (ir::is_quantised(n.y.dtype)) return norm_quantised(call, call.op == ir::Op::add_norm);
  const std::int64_t c = row_size(n.x.shape), grain = rows_per_task(c), rows = rows_of(n.x),
                     step = n.low() ? rows_at_once(c) : grain;
  const float eps = static_cast<float>(call.attr<ir::Norm>().eps);
  const auto at = [](const Tensor& t, std::int64_t i) { return t ? t.as<float>() + i : nullptr; };
  call.pool.parallel_for((rows + grain - 1) / grain, [&](std::int64_t task, int thread) {
    float* const room = n.r || n.low() ? call.scratch_of<float>(thread) : nullptr;
    const std::int64_t end = std::min(rows, (task + 1) * grain);
    for (std::int64_t row = task * grain; row < end; row += step) {
      const std::int64_t e = row * c, count = std::min(step, end - row), size = count * c;
      const auto rows_at = [&](std::int64_t i) { return room + (1 + i * step) * c; };
      float *const s = room_for(n.s, e, rows_at(2)), *const y = room_for(n.y, e, rows_at(3));
      HWY_DYNAMIC_DISPATCH(norm_rows)
      (wide(n.x, e, size, rows_at(0)), wide(n.r, e, size, rows_at(1)), n.g.as<float>(),
       n.b.as<float>(), s, y, at(n.mean, row), at(n.rstd, row), room, count, c, eps);
      give(n.s, e, size, s);
      give(n.y, e, size, y);
    }
  });
}
}  // namespace

void fast_layer_norm(const Call& call) {
  norm(call, {.x = call.in[0],
              .g = call.in[1],
              .b = call.in[2],
              .y = call.out[0],
              .mean = call.out[1],
              .rstd = call.out[2]});
}

void fast_add_norm(const Call& call) {
  norm(call, {.x = call.in[0],
              .r = call.in[1],
              .g = call.in[2],
              .b = call.in[3],
              .s = call.out[0],
              .y = call.out[1],
              .mean = call.out[2],
              .rstd = call.out[3]});
}

Scratch scratch_layer_norm(const ir::Attrs&, std::span<const ir::Type> in,
                           std::span<const ir::Type> out) {
  const std::int64_t rows = any_bf16(in, out) ? norm_rows_of_thread(row_size(in[0].shape)) : 0;
  return {.per_thread = sizeof(float) * static_cast<std::size_t>(rows * row_size(in[0].shape))};
}
Scratch scratch_add_norm(const ir::Attrs&, std::span<const ir::Type> in,
                         std::span<const ir::Type> out) {
  const std::int64_t rows = any_bf16(in, out) ? norm_rows_of_thread(row_size(in[0].shape)) : 1;
  return {.per_thread = sizeof(float) * static_cast<std::size_t>(rows * row_size(in[0].shape))};
}

namespace {
// Operands and results of layer_norm_grad, and a few of their rows in f32.
struct NormGradOf {
  Tensor dy, x, mean, rstd, g, addend, dx, copy;

  explicit NormGradOf(const Call& call)
      : dy(call.in[0]),
        x(call.in[1]),
        mean(call.in[2]),
        rstd(call.in[3]),
        g(call.in[4]),
        addend(call.in.size() > 5 ? call.in[5] : Tensor{}),
        dx(call.out[0]),
        copy(call.out.size() > 3 ? call.out[3] : Tensor{}) {}
  bool low() const {
    return is_bf16(dy) || is_bf16(x) || (addend && is_bf16(addend)) || (dx && is_bf16(dx)) ||
           (copy && is_bf16(copy));
  }
  // Rows [row, row + count); sums, when given, are increased: those of dg, db and, behind them, dx.
  void rows_of(std::int64_t row, std::int64_t count, std::int64_t c, float* sums, bool total,
               float* room) const {
    const std::int64_t e = row * c, n = count * c, all = rows_at_once(c) * c;
    const Tensor& first = dx ? dx : copy;
    float* const target = room_for(first, e, room + 3 * all);
    HWY_DYNAMIC_DISPATCH(norm_grad_rows)
    (wide(dy, e, n, room), wide(x, e, n, room + all), mean.as<float>() + row,
     rstd.as<float>() + row, g.as<float>(), wide(addend, e, n, room + 2 * all), target, sums,
     sums == nullptr ? nullptr : sums + c, count, c);
    give(first, e, n, target);
    if (dx && copy && copy.data != dx.data) {
      if (is_bf16(copy))
        round_to_bf16(target, copy.as<Low>() + e, n);
      else
        vector_copy(target, copy.as<float>() + e, n);
    }
    for (std::int64_t i = 0; total && i < count; ++i)
      vector_add(sums + 2 * c, target + i * c, sums + 2 * c, c);
  }
};
}  // namespace

void fast_layer_norm_grad(const Call& call) {
  const NormGradOf n(call);
  const std::int64_t c = row_size(n.dy.shape), rows = cpu::rows_of(n.dy), run = grad_run(rows),
                     runs = (rows + run - 1) / run, step = n.low() ? rows_at_once(c) : run;
  float *dg = call.out[1].as<float>(), *db = call.out[2].as<float>(),
        *total = call.out.size() > 3 ? call.out[4].as<float>() : nullptr;
  CHECK(rows == 0 || n.dx || n.copy || total == nullptr,
        "layer_norm_grad: the sum of a dx that nobody reads");
  const std::int64_t pitch = (call.out.size() > 3 ? 3 : 2) * c;
  float* partial = dg != nullptr || db != nullptr || total != nullptr
                       ? call.shared_scratch<float>()
                       : nullptr;  // [runs][dg, db, total][c]
  call.pool.parallel_for(runs, [&](std::int64_t task, int thread) {
    const std::int64_t first = task * run, end = std::min(rows, first + run);
    float* sums = partial == nullptr ? nullptr : partial + task * pitch;
    float* const room = n.low() ? call.scratch_of<float>(thread) : nullptr;
    if (sums != nullptr) vector_fill(sums, pitch, 0.0f);
    for (std::int64_t row = first; row < end; row += step)
      n.rows_of(row, std::min(step, end - row), c, sums, total != nullptr, room);
  });
  if (dg != nullptr) vector_column_sum(partial, runs, pitch, c, dg);
  if (db != nullptr) vector_column_sum(partial + c, runs, pitch, c, db);
  if (total != nullptr) vector_column_sum(partial + 2 * c, runs, pitch, c, total);
}

Scratch scratch_layer_norm_grad(const ir::Attrs&, std::span<const ir::Type> in,
                                std::span<const ir::Type> out) {
  const std::int64_t c = row_size(in[0].shape), rows = c == 0 ? 0 : in[0].elements() / c,
                     run = grad_run(rows), sums = out.size() > 3 ? 3 : 2;
  const bool low = any_bf16(in, out);
  return {
      .shared = sizeof(float) * static_cast<std::size_t>((rows + run - 1) / run * sums * c),
      .per_thread = low ? sizeof(float) * static_cast<std::size_t>(4 * rows_at_once(c) * c) : 0};
}

}  // namespace tessera::exec::cpu
#endif
