// Optimizer updates as PyTorch defines them, and the scalars around them.
// Convention: results may be the operands' own storage; with ok == 0 they equal the operands bit
// for bit.
#include <algorithm>
#include <cmath>

#include "exec/common/loss_scale.h"
#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {
namespace {

// The optional scalars that close the operand list: [factor] [ok].
struct Tail {
  double factor = 1.0;
  bool ok = true;
};
template <class T>
Tail tail(const Call& call, std::size_t at, bool factor, bool ok) {
  Tail out;
  if (factor) out.factor = call.in[at++].as<T>()[0];
  if (ok) out.ok = call.in[at].as<T>()[0] != T(0);
  return out;
}

// result i = operand i, for the first n
template <class T>
void keep(const Call& call, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    if (call.out[i] && call.in[i] && call.out[i].data != call.in[i].data)
      std::copy_n(call.in[i].as<T>(), call.in[i].elements(), call.out[i].as<T>());
}

}  // namespace

// g = grad factor + wd w;  m' = mu m + g;  w' = w - lr (nesterov ? g + mu m' : m')
template <class T>
void reference_sgd(const Call& call) {
  const auto& attr = call.attr<ir::Sgd>();
  const Tail rest = tail<T>(call, 4, attr.factor, attr.ok);
  if (!rest.ok) return keep<T>(call, 2);
  const T *w = call.in[0].as<T>(), *momentum = call.in[1].as<T>(), *grad = call.in[2].as<T>();
  const double lr = call.in[3].as<T>()[0];
  T* new_momentum = call.out.size() > 1 ? call.out[1].as<T>() : nullptr;
  for (std::int64_t i = 0; i < call.in[0].elements(); ++i) {
    const double g = grad[i] * rest.factor + attr.weight_decay * w[i];
    const double m = attr.momentum * (momentum ? momentum[i] : T(0)) + g;
    const double update = attr.nesterov ? g + attr.momentum * m : m;
    if (call.out[0]) call.out[0].as<T>()[i] = static_cast<T>(w[i] - lr * update);
    if (new_momentum) new_momentum[i] = static_cast<T>(m);
  }
}

// g = grad factor;  m' = b1 m + (1 - b1) g;  v' = b2 v + (1 - b2) g^2
// w' = w (1 - lr wd) - lr (m' / (1 - b1^t)) / (sqrt(v' / (1 - b2^t)) + eps)      (Loshchilov and
// Hutter 2019)
template <class T>
void reference_adamw(const Call& call) {
  const auto& attr = call.attr<ir::AdamW>();
  const Tail rest = tail<T>(call, 6, attr.factor, attr.ok);
  if (!rest.ok) return keep<T>(call, 3);
  const T *w = call.in[0].as<T>(), *m = call.in[1].as<T>(), *v = call.in[2].as<T>(),
          *grad = call.in[3].as<T>();
  const double lr = call.in[4].as<T>()[0],
               step = static_cast<double>(call.in[5].as<std::int64_t>()[0]);
  const double correct1 = 1.0 - std::pow(attr.beta1, step),
               correct2 = 1.0 - std::pow(attr.beta2, step);
  for (std::int64_t i = 0; i < call.in[0].elements(); ++i) {
    const double g = grad[i] * rest.factor;
    const double m1 = attr.beta1 * m[i] + (1.0 - attr.beta1) * g;
    const double v1 = attr.beta2 * v[i] + (1.0 - attr.beta2) * g * g;
    const double w1 = w[i] * (1.0 - lr * attr.weight_decay) -
                      lr * (m1 / correct1) / (std::sqrt(v1 / correct2) + attr.eps);
    if (call.out[0]) call.out[0].as<T>()[i] = static_cast<T>(w1);
    if (call.out[1]) call.out[1].as<T>()[i] = static_cast<T>(m1);
    if (call.out[2]) call.out[2].as<T>()[i] = static_cast<T>(v1);
  }
}

// a' = d a + (1 - d) w
template <class T>
void reference_ema(const Call& call) {
  const double decay = call.attr<ir::Ema>().decay;
  for (std::int64_t i = 0; i < call.out[0].elements(); ++i)
    call.out[0].as<T>()[i] =
        static_cast<T>(decay * call.in[0].as<T>()[i] + (1.0 - decay) * call.in[1].as<T>()[i]);
}

// norm = sqrt(sum of squares), factor = min(1, max / (norm + 1e-6)), the rule of
// torch.nn.utils.clip_grad_norm_; max 0 never clips
template <class T>
void reference_clip(const Call& call) {
  const double max = call.attr<ir::Clip>().max,
               norm = std::sqrt(static_cast<double>(call.in[0].as<T>()[0]));
  if (call.out[0]) call.out[0].as<T>()[0] = static_cast<T>(norm);
  if (call.out[1])
    call.out[1].as<T>()[0] = static_cast<T>(max > 0 ? std::min(1.0, max / (norm + 1e-6)) : 1.0);
}

template <class T>
void reference_finite(const Call& call) {
  const bool all = std::all_of(call.in.begin(), call.in.end(),
                               [](const Tensor& x) { return std::isfinite(x.as<T>()[0]); });
  call.out[0].as<T>()[0] = all ? T(1) : T(0);
}

template <class T>
void reference_advance(const Call& call) {
  const bool applied = call.in.size() < 2 || call.in[1].as<T>()[0] != T(0);
  call.out[0].as<std::int64_t>()[0] = call.in[0].as<std::int64_t>()[0] + (applied ? 1 : 0);
}

template <class T>
void reference_lookup(const Call& call) {
  const std::int64_t at = call.in[1].as<std::int64_t>()[0] - call.in[2].as<std::int64_t>()[0];
  call.out[0].as<T>()[0] =
      call.in[0].as<T>()[std::clamp<std::int64_t>(at, 0, call.in[0].elements() - 1)];
}

template <class T>
void reference_loss_scale(const Call& call) {
  const double scale = scale_in_use(call.attr<ir::LossScale>(), call.in[0].as<T>()[0]);
  if (call.out[0]) call.out[0].as<T>()[0] = static_cast<T>(scale);
  if (call.out[1]) call.out[1].as<T>()[0] = static_cast<T>(1.0 / scale);
}

template <class T>
void reference_rescale(const Call& call) {
  const ScaleState next =
      next_scale(call.attr<ir::LossScale>(), call.in[0].as<T>()[0],
                 call.in[1].as<std::int64_t>()[0], call.in[2].as<std::int64_t>()[0],
                 call.in[3].as<T>()[0] != T(0), call.in[4].as<T>()[0] != T(0));
  if (call.out[0]) call.out[0].as<T>()[0] = static_cast<T>(next.scale);
  if (call.out[1]) call.out[1].as<std::int64_t>()[0] = next.good;
  if (call.out[2]) call.out[2].as<std::int64_t>()[0] = next.overflows;
  if (call.out[3]) call.out[3].as<T>()[0] = next.answered ? T(1) : T(0);
}

REFERENCE(sgd)
REFERENCE(adamw)
REFERENCE(ema)
REFERENCE(clip)
REFERENCE(finite)
REFERENCE(advance)
REFERENCE(lookup)
REFERENCE(loss_scale)
REFERENCE(rescale)

}  // namespace tessera::exec::cpu
