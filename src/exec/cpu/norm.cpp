// Fast kernels over the last dim in f32: layer norm with its gradient, the residual add in front of
// it, and the softmax family. Convention: a row is one task's affair from start to end; gradients
// of gain and bias are partial sums over runs of rows, added in order.
#include "exec/cpu/kernel.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
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

// y (g - s): the gradient of softmax with s = sum(g y).
void softmax_grad_row(const float* y, const float* g, float* dx, std::int64_t n, float s) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Sub(hn::LoadU(d, g + i), hn::Set(d, s))), d,
               dx + i);
  for (; i < n; ++i) dx[i] = y[i] * (g[i] - s);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(norm_rows);
HWY_EXPORT(norm_grad_rows);
HWY_EXPORT(softmax_grad_row);

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

template <class Body>
void for_rows(const Call& call, const Body& body) {
  const std::int64_t c = row_size(call.in[0].shape);
  for_chunks(call.pool, rows_of(call.in[0]), rows_per_task(c),
             [&](std::int64_t first, std::int64_t count) {
               for (std::int64_t row = first; row < first + count; ++row) body(row * c, c);
             });
}

void norm(const Call& call, const float* r, const Tensor& g, const Tensor& b, float* s,
          const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  const std::int64_t c = row_size(call.in[0].shape), grain = rows_per_task(c),
                     rows = rows_of(call.in[0]);
  const float eps = static_cast<float>(call.attr<ir::Norm>().eps), *x = call.in[0].as<float>();
  const auto at = [](float* p, std::int64_t i) { return p == nullptr ? nullptr : p + i; };
  call.pool.parallel_for((rows + grain - 1) / grain, [&](std::int64_t task, int thread) {
    const std::int64_t first = task * grain, e = first * c;
    HWY_DYNAMIC_DISPATCH(norm_rows)
    (x + e, r == nullptr ? nullptr : r + e, g.as<float>(), b.as<float>(), at(s, e),
     at(y.as<float>(), e), at(mean.as<float>(), first), at(rstd.as<float>(), first),
     r == nullptr ? nullptr : call.scratch_of<float>(thread), std::min(grain, rows - first), c,
     eps);
  });
}
}  // namespace

void fast_layer_norm(const Call& call) {
  norm(call, nullptr, call.in[1], call.in[2], nullptr, call.out[0], call.out[1], call.out[2]);
}

void fast_add_norm(const Call& call) {
  norm(call, call.in[1].as<float>(), call.in[2], call.in[3], call.out[0].as<float>(), call.out[1],
       call.out[2], call.out[3]);
}

Scratch scratch_add_norm(const ir::Attrs&, std::span<const ir::Type> in,
                         std::span<const ir::Type>) {
  return {.per_thread = sizeof(float) * static_cast<std::size_t>(row_size(in[0].shape))};
}

void fast_layer_norm_grad(const Call& call) {
  const std::int64_t c = row_size(call.in[0].shape), rows = rows_of(call.in[0]),
                     run = grad_run(rows), runs = (rows + run - 1) / run;
  const float *dy = call.in[0].as<float>(), *x = call.in[1].as<float>(),
              *mean = call.in[2].as<float>(), *rstd = call.in[3].as<float>();
  const float *g = call.in[4].as<float>(),
              *addend = call.in.size() > 5 ? call.in[5].as<float>() : nullptr;
  float *dx = call.out[0].as<float>(), *dg = call.out[1].as<float>(), *db = call.out[2].as<float>();
  float *copy = call.out.size() > 3 ? call.out[3].as<float>() : nullptr,
        *total = call.out.size() > 3 ? call.out[4].as<float>() : nullptr;
  float* target = dx != nullptr ? dx : copy;
  CHECK(rows == 0 || target != nullptr || total == nullptr,
        "layer_norm_grad: the sum of a dx that nobody reads");
  const std::int64_t pitch = (call.out.size() > 3 ? 3 : 2) * c;
  float* partial = dg != nullptr || db != nullptr || total != nullptr
                       ? call.shared_scratch<float>()
                       : nullptr;  // [runs][dg, db, total][c]
  call.pool.parallel_for(runs, [&](std::int64_t task, int) {
    const std::int64_t first = task * run, e = first * c;
    const std::int64_t count = std::min(run, rows - first);
    float* sums = partial == nullptr ? nullptr : partial + task * pitch;
    if (sums != nullptr) vector_fill(sums, pitch, 0.0f);
    HWY_DYNAMIC_DISPATCH(norm_grad_rows)
    (dy + e, x + e, mean + first, rstd + first, g, addend == nullptr ? nullptr : addend + e,
     target == nullptr ? nullptr : target + e, sums, sums == nullptr ? nullptr : sums + c, count,
     c);
    if (copy != nullptr && copy != target) vector_copy(dx + e, copy + e, count * c);
    if (total != nullptr) vector_column_sum(target + e, count, c, c, sums + 2 * c);
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

void fast_softmax(const Call& call) {
  const float* x = call.in[0].as<float>();
  float* y = call.out[0].as<float>();
  for_rows(call, [&](std::int64_t at, std::int64_t c) {
    const float sum = vector_exp_sub_sum(x + at, y + at, c, vector_max(x + at, c));
    vector_scale(y + at, y + at, c, 1.0f / sum);
  });
}

void fast_softmax_grad(const Call& call) {
  const float *y = call.in[0].as<float>(), *g = call.in[1].as<float>();
  float* dx = call.out[0].as<float>();
  for_rows(call, [&](std::int64_t at, std::int64_t c) {
    HWY_DYNAMIC_DISPATCH(softmax_grad_row)
    (y + at, g + at, dx + at, c, vector_dot(y + at, g + at, c));
  });
}

void fast_log_softmax(const Call& call) {
  const float* x = call.in[0].as<float>();
  float* y = call.out[0].as<float>();
  for_rows(call, [&](std::int64_t at, std::int64_t c) {
    const float top = vector_max(x + at, c),
                rest = std::log(vector_exp_sub_sum(x + at, nullptr, c, top));
    // In two steps: beside a large maximum the small logarithm would be rounded away.
    vector_add_scalar(x + at, -top, y + at, c);
    vector_add_scalar(y + at, -rest, y + at, c);
  });
}

// g - exp(logp) sum(g); the result may lie over either operand, so blocks of exp go through the
// stack.
void fast_log_softmax_grad(const Call& call) {
  const float *logp = call.in[0].as<float>(), *g = call.in[1].as<float>();
  float* dx = call.out[0].as<float>();
  for_rows(call, [&](std::int64_t at, std::int64_t c) {
    const float minus_sum = -vector_sum(g + at, c);
    float p[256];
    for (std::int64_t i = 0; i < c; i += 256) {
      const std::int64_t size = std::min<std::int64_t>(256, c - i);
      vector_exp_sub(logp + at + i, p, size, 0.0f);
      vector_scale(p, p, size, minus_sum);
      vector_add(p, g + at + i, dx + at + i, size);
    }
  });
}

}  // namespace tessera::exec::cpu
#endif
