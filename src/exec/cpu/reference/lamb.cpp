// LAMB as published (You et al. 2020), in its three pieces.
#include <cmath>

#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {

// m' = b1 m + (1 - b1) g;  v' = b2 v + (1 - b2) g^2;  u = (m' / (1 - b1^t)) / (sqrt(v' / (1 -
// b2^t)) + eps) + wd w
template <class T>
void reference_lamb_direction(const Call& call) {
  const auto& attr = call.attr<ir::AdamW>();
  const T *w = call.in[0].as<T>(), *m = call.in[1].as<T>(), *v = call.in[2].as<T>(),
          *grad = call.in[3].as<T>();
  const double step = static_cast<double>(call.in[4].as<std::int64_t>()[0]);
  const double correct1 = 1.0 - std::pow(attr.beta1, step),
               correct2 = 1.0 - std::pow(attr.beta2, step);
  for (std::int64_t i = 0; i < call.in[0].elements(); ++i) {
    const double g = grad[i];
    const double m1 = attr.beta1 * m[i] + (1.0 - attr.beta1) * g;
    const double v1 = attr.beta2 * v[i] + (1.0 - attr.beta2) * g * g;
    const double u =
        (m1 / correct1) / (std::sqrt(v1 / correct2) + attr.eps) + attr.weight_decay * w[i];
    if (call.out[0]) call.out[0].as<T>()[i] = static_cast<T>(u);
    if (call.out[1]) call.out[1].as<T>()[i] = static_cast<T>(m1);
    if (call.out[2]) call.out[2].as<T>()[i] = static_cast<T>(v1);
  }
}

template <class T>
void reference_segment_sumsq(const Call& call) {
  const auto& segments = call.attr<ir::Segments>();
  for (std::size_t s = 0; s < segments.offsets.size(); ++s) {
    double sum = 0;
    for (std::int64_t row = 0; row < call.in[0].elements(); row += call.in[0].shape.back()) {
      const T* x = call.in[0].as<T>() + row + segments.offsets[s];
      for (std::int64_t i = 0; i < segments.sizes[s]; ++i) sum += static_cast<double>(x[i]) * x[i];
    }
    call.out[0].as<T>()[s] = static_cast<T>(sum);
  }
}

// w' = w - lr r u with r = |w| / |u| of the tensor, 1 where either is 0; between tensors nothing
// changes.
template <class T>
void reference_lamb_update(const Call& call) {
  const auto& segments = call.attr<ir::Segments>();
  const T *w = call.in[0].as<T>(), *u = call.in[1].as<T>();
  T* out = call.out[0].as<T>();
  const double lr = call.in[4].as<T>()[0];
  const std::int64_t row = call.in[0].shape.back();
  for (std::int64_t first = 0, at = 0; first < call.in[0].elements(); first += row) {
    for (std::size_t s = 0; s < segments.offsets.size(); ++s) {
      for (; at < first + segments.offsets[s]; ++at) out[at] = w[at];
      const double weights = call.in[2].as<T>()[s], direction = call.in[3].as<T>()[s];
      const double ratio =
          weights > 0 && direction > 0 ? std::sqrt(weights) / std::sqrt(direction) : 1.0;
      for (const std::int64_t end = at + segments.sizes[s]; at < end; ++at)
        out[at] = static_cast<T>(w[at] - lr * ratio * u[at]);
    }
    for (; at < first + row; ++at) out[at] = w[at];
  }
}

REFERENCE(lamb_direction)
REFERENCE(segment_sumsq)
REFERENCE(lamb_update)

}  // namespace tessera::exec::cpu
