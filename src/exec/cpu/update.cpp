#include "exec/cpu/update.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/cpu/shape.h"
#include "exec/cpu/simd/vector.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/update.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// One vector of each array. The last partial vector goes through buffers, so that a weight's update
// does not depend on where its bucket ends.
HWY_INLINE void adamw_at(const float* w, const float* m, const float* v, const float* g,
                         float* w_out, float* m_out, float* v_out, const AdamWScalars& s) {
  const F32 d;
  const V gradient = hn::Mul(hn::LoadU(d, g), hn::Set(d, s.factor));
  const V first =
      hn::MulAdd(gradient, hn::Set(d, s.rest1), hn::Mul(hn::LoadU(d, m), hn::Set(d, s.beta1)));
  const V second = hn::MulAdd(hn::Mul(gradient, gradient), hn::Set(d, s.rest2),
                              hn::Mul(hn::LoadU(d, v), hn::Set(d, s.beta2)));
  const V ratio =
      hn::Div(first, hn::MulAdd(hn::Sqrt(second), hn::Set(d, s.root), hn::Set(d, s.eps)));
  hn::StoreU(
      hn::NegMulAdd(ratio, hn::Set(d, s.step), hn::Mul(hn::LoadU(d, w), hn::Set(d, s.decay))), d,
      w_out);
  hn::StoreU(first, d, m_out);
  hn::StoreU(second, d, v_out);
}

void adamw(const float* w, const float* m, const float* v, const float* g, float* w_out,
           float* m_out, float* v_out, std::int64_t n, const AdamWScalars& s) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const AdamWScalars local = s;
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    adamw_at(w + i, m + i, v + i, g + i, w_out + i, m_out + i, v_out + i, local);
  if (i == n) return;
  const std::size_t bytes = static_cast<std::size_t>(n - i) * sizeof(float);
  HWY_ALIGN float a[hn::MaxLanes(d)] = {}, b[hn::MaxLanes(d)] = {}, c[hn::MaxLanes(d)] = {},
                  e[hn::MaxLanes(d)] = {};
  std::memcpy(a, w + i, bytes);
  std::memcpy(b, m + i, bytes);
  std::memcpy(c, v + i, bytes);
  std::memcpy(e, g + i, bytes);
  adamw_at(a, b, c, e, a, b, c, local);
  std::memcpy(w_out + i, a, bytes);
  std::memcpy(m_out + i, b, bytes);
  std::memcpy(v_out + i, c, bytes);
}

HWY_INLINE void sgd_at(const float* w, const float* m, const float* g, float* w_out, float* m_out,
                       const SgdScalars& s) {
  const F32 d;
  const V weight = hn::LoadU(d, w), mu = hn::Set(d, s.momentum);
  const V gradient = hn::MulAdd(weight, hn::Set(d, s.weight_decay),
                                hn::Mul(hn::LoadU(d, g), hn::Set(d, s.factor)));
  const V velocity = hn::MulAdd(hn::LoadU(d, m), mu, gradient);
  const V update = s.nesterov ? hn::MulAdd(velocity, mu, gradient) : velocity;
  hn::StoreU(hn::NegMulAdd(update, hn::Set(d, s.lr), weight), d, w_out);
  hn::StoreU(velocity, d, m_out);
}

void sgd(const float* w, const float* m, const float* g, float* w_out, float* m_out, std::int64_t n,
         const SgdScalars& s) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const SgdScalars local = s;
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sgd_at(w + i, m + i, g + i, w_out + i, m_out + i, local);
  if (i == n) return;
  const std::size_t bytes = static_cast<std::size_t>(n - i) * sizeof(float);
  HWY_ALIGN float a[hn::MaxLanes(d)] = {}, b[hn::MaxLanes(d)] = {}, c[hn::MaxLanes(d)] = {};
  std::memcpy(a, w + i, bytes);
  std::memcpy(b, m + i, bytes);
  std::memcpy(c, g + i, bytes);
  sgd_at(a, b, c, a, b, local);
  std::memcpy(w_out + i, a, bytes);
  std::memcpy(m_out + i, b, bytes);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(adamw);
HWY_EXPORT(sgd);

namespace {
float scalar(const Tensor& t) { return *t.as<float>(); }

// The operands that follow the fixed ones, in this order and only when the attributes announce
// them.
struct Optional {
  float factor = 1.0f;
  bool ok = true;
  Optional(const Call& call, std::size_t at, bool has_factor, bool has_ok) {
    if (has_factor) factor = scalar(call.in[at++]);
    if (has_ok) ok = scalar(call.in[at]) != 0.0f;
  }
};

void keep(const Call& call) {
  for (std::size_t i = 0; i < call.out.size(); ++i)
    copy_bytes(call.pool, call.in[i].data, call.out[i].data,
               call.in[i].elements() * static_cast<std::int64_t>(sizeof(float)));
}
}  // namespace

void fast_adamw(const Call& call) {
  const ir::AdamW& a = call.attr<ir::AdamW>();
  const Optional given(call, 6, a.factor, a.ok);
  if (!given.ok) return keep(call);
  const double lr = static_cast<double>(scalar(call.in[4])),
               t = static_cast<double>(*call.in[5].as<std::int64_t>());
  const AdamWScalars s{.factor = given.factor,
                       .decay = static_cast<float>(1.0 - lr * a.weight_decay),
                       .beta1 = static_cast<float>(a.beta1),
                       .rest1 = static_cast<float>(1.0 - a.beta1),
                       .beta2 = static_cast<float>(a.beta2),
                       .rest2 = static_cast<float>(1.0 - a.beta2),
                       .step = static_cast<float>(lr / (1.0 - std::pow(a.beta1, t))),
                       .root = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(a.beta2, t))),
                       .eps = static_cast<float>(a.eps)};
  const float *w = call.in[0].as<float>(), *m = call.in[1].as<float>(), *v = call.in[2].as<float>(),
              *g = call.in[3].as<float>();
  float *w_out = call.out[0].as<float>(), *m_out = call.out[1].as<float>(),
        *v_out = call.out[2].as<float>();
  for_chunks(call.pool, call.in[0].elements(), chunk, [&](std::int64_t i, std::int64_t n) {
    HWY_DYNAMIC_DISPATCH(adamw)(w + i, m + i, v + i, g + i, w_out + i, m_out + i, v_out + i, n, s);
  });
}

void fast_sgd(const Call& call) {
  const ir::Sgd& a = call.attr<ir::Sgd>();
  const Optional given(call, 4, a.factor, a.ok);
  if (!given.ok) return keep(call);
  const SgdScalars s{.factor = given.factor,
                     .weight_decay = static_cast<float>(a.weight_decay),
                     .momentum = static_cast<float>(a.momentum),
                     .lr = scalar(call.in[3]),
                     .nesterov = a.nesterov};
  const float *w = call.in[0].as<float>(), *m = call.in[1].as<float>(), *g = call.in[2].as<float>();
  float *w_out = call.out[0].as<float>(), *m_out = call.out[1].as<float>();
  for_chunks(call.pool, call.in[0].elements(), chunk, [&](std::int64_t i, std::int64_t n) {
    HWY_DYNAMIC_DISPATCH(sgd)(w + i, m + i, g + i, w_out + i, m_out + i, n, s);
  });
}

void fast_ema(const Call& call) {
  const float *a = call.in[0].as<float>(), *w = call.in[1].as<float>(),
              keep = static_cast<float>(call.attr<ir::Ema>().decay);
  float* out = call.out[0].as<float>();
  for_chunks(call.pool, call.out[0].elements(), chunk,
             [&](std::int64_t i, std::int64_t n) { vector_blend(a + i, w + i, out + i, n, keep); });
}

void fast_clip(const Call& call) {
  const double max = call.attr<ir::Clip>().max,
               norm = std::sqrt(static_cast<double>(scalar(call.in[0])));
  if (call.out[0]) *call.out[0].as<float>() = static_cast<float>(norm);
  if (call.out.size() > 1 && call.out[1])
    *call.out[1].as<float>() =
        max > 0 ? static_cast<float>(std::min(1.0, max / (norm + 1e-6))) : 1.0f;
}

void fast_finite(const Call& call) {
  const bool all = std::all_of(call.in.begin(), call.in.end(),
                               [](const Tensor& t) { return std::isfinite(scalar(t)); });
  *call.out[0].as<float>() = all ? 1.0f : 0.0f;
}

}  // namespace tessera::exec::cpu
#endif
