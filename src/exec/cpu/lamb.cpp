// Fast LAMB in f32: chunks of a bucket for the direction, one tensor per task for norms and steps.
// Convention: results may be the operands' storage; a tensor's norm is summed in double by one
// task, so threads have no say.
#include <cmath>

#include "exec/cpu/kernel.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

void fast_lamb_direction(const Call& call) {
  const auto& attr = call.attr<ir::AdamW>();
  const float *w = call.in[0].as<float>(), *m = call.in[1].as<float>(), *v = call.in[2].as<float>(),
              *g = call.in[3].as<float>();
  float *u_out = call.out[0].as<float>(), *m_out = call.out[1].as<float>(),
        *v_out = call.out[2].as<float>();
  const double step = static_cast<double>(*call.in[4].as<std::int64_t>());
  const float beta1 = static_cast<float>(attr.beta1), rest1 = static_cast<float>(1 - attr.beta1);
  const float beta2 = static_cast<float>(attr.beta2), rest2 = static_cast<float>(1 - attr.beta2);
  const float first = static_cast<float>(1 / (1 - std::pow(attr.beta1, step))),
              eps = static_cast<float>(attr.eps);
  const float root = static_cast<float>(1 / std::sqrt(1 - std::pow(attr.beta2, step))),
              decay = static_cast<float>(attr.weight_decay);
  for_chunks(call.pool, call.in[0].elements(), chunk, [&](std::int64_t begin, std::int64_t size) {
    for (std::int64_t i = begin; i < begin + size; ++i) {
      const float m1 = beta1 * m[i] + rest1 * g[i], v1 = beta2 * v[i] + rest2 * g[i] * g[i];
      const float u = first * m1 / (std::sqrt(v1) * root + eps) + decay * w[i];
      if (m_out) m_out[i] = m1;
      if (v_out) v_out[i] = v1;
      if (u_out) u_out[i] = u;
    }
  });
}

void fast_segment_sumsq(const Call& call) {
  const auto& segments = call.attr<ir::Segments>();
  const float* x = call.in[0].as<float>();
  float* out = call.out[0].as<float>();
  const std::int64_t row = call.in[0].shape.back(), n = call.in[0].elements();
  call.pool.parallel_for(static_cast<std::int64_t>(segments.offsets.size()),
                         [&](std::int64_t task, int) {
                           const auto s = static_cast<std::size_t>(task);
                           double sum = 0;
                           for (std::int64_t at = 0; at < n; at += row)
                             sum += vector_sumsq(x + at + segments.offsets[s], segments.sizes[s]);
                           out[s] = static_cast<float>(sum);
                         });
}

void fast_lamb_update(const Call& call) {
  const auto& segments = call.attr<ir::Segments>();
  if (call.in[0].elements() != call.in[0].shape.back())
    return reference_lamb_update<float>(call);  // before a program is made local
  const float *w = call.in[0].as<float>(), *u = call.in[1].as<float>();
  float* out = call.out[0].as<float>();
  const float lr = *call.in[4].as<float>();
  const auto segment_count = static_cast<std::int64_t>(segments.offsets.size());
  // Task s owns tensor s and the gap before it; the last task owns what follows the last tensor.
  call.pool.parallel_for(segment_count + 1, [&](std::int64_t task, int) {
    const auto s = static_cast<std::size_t>(task);
    std::int64_t at = task == 0 ? 0 : segments.offsets[s - 1] + segments.sizes[s - 1];
    const std::int64_t begin = task == segment_count ? call.in[0].elements() : segments.offsets[s];
    for (; at < begin; ++at) out[at] = w[at];
    if (task == segment_count) return;
    const double weights = static_cast<double>(call.in[2].as<float>()[s]),
                 direction = static_cast<double>(call.in[3].as<float>()[s]);
    const float rate = lr * static_cast<float>(weights > 0 && direction > 0
                                                   ? std::sqrt(weights) / std::sqrt(direction)
                                                   : 1.0);
    for (const std::int64_t end = at + segments.sizes[s]; at < end; ++at)
      out[at] = w[at] - rate * u[at];
  });
}

}  // namespace tessera::exec::cpu
