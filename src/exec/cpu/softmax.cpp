// The softmax family over the last dim in f32. Convention: a row is one task's affair from start to
// end.
#include <algorithm>
#include <cmath>

#include "exec/cpu/kernel.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/softmax.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// y (g - s): the gradient of softmax with s = sum(g y).
void softmax_grad_row(const float* y, const float* g, float* dx, std::int64_t n, float s) {
  const hn::ScalableTag<float> d;
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

HWY_EXPORT(softmax_grad_row);

namespace {
// body(first element, elements) of every row.
template <class Body>
void for_rows(const Call& call, const Body& body) {
  const std::int64_t c = call.in[0].shape.empty() ? 1 : call.in[0].shape.back();
  if (c == 0) return;
  std::int64_t rows = std::max<std::int64_t>(1, chunk / c);
  if (call.threading == Threading::heads && call.in[0].shape.size() > 1)
    rows = std::max<std::int64_t>(1, call.in[0].shape.end()[-2]);  // a head's scores
  for_chunks(call.pool, call.in[0].elements() / c, rows,
             [&](std::int64_t first, std::int64_t count) {
               for (std::int64_t row = first; row < first + count; ++row) body(row * c, c);
             });
}
}  // namespace

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
