// Losses and accuracy over rows of class scores in f32; targets are labels (i32 or i64) or soft
// (f32). Convention: q = (1 - smoothing) target + smoothing / classes is the distribution that the
// scores are held against.
#include "exec/cpu/kernel.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu {

namespace {
// The target of one row: a label, or a distribution.
struct Target {
  std::int64_t label = -1;
  const float* soft = nullptr;
};

class Targets {
 public:
  Targets(const Tensor& target, std::int64_t classes) : target_(target), classes_(classes) {}
  Target operator[](std::int64_t row) const {
    if (ir::is_float(target_.dtype)) return {-1, target_.as<float>() + row * classes_};
    const std::int64_t label = target_.dtype == ir::DType::i64 ? target_.as<std::int64_t>()[row]
                                                               : target_.as<std::int32_t>()[row];
    if (label < 0 || label >= classes_)
      throw Error(ErrorKind::data,
                  "expected labels from 0 to " + std::to_string(classes_ - 1) + ", found " +
                      std::to_string(label),
                  "sample " + std::to_string(row),
                  "the number of classes of the model must cover every label of the data set");
    return {label, nullptr};
  }

 private:
  const Tensor& target_;
  std::int64_t classes_;
};

// -g q into a row, or added to it.
void subtract_target(const Target& target, float g, float smoothing, float* y, std::int64_t c) {
  if (smoothing != 0.0f) vector_add_scalar(y, -g * smoothing / static_cast<float>(c), y, c);
  const float share = -g * (1.0f - smoothing);
  if (target.soft != nullptr)
    vector_axpy(target.soft, y, c, share);
  else
    y[target.label] += share;
}

// sum of q x
float expectation(const Target& target, float smoothing, const float* x, std::int64_t c) {
  const float hit = target.soft != nullptr ? vector_dot(target.soft, x, c) : x[target.label];
  return smoothing == 0.0f
             ? hit
             : (1.0f - smoothing) * hit + smoothing / static_cast<float>(c) * vector_sum(x, c);
}

float mass(const Target& target, float smoothing, std::int64_t c) {
  return target.soft == nullptr ? 1.0f
                                : (1.0f - smoothing) * vector_sum(target.soft, c) + smoothing;
}

// body(row, its start, target, smoothing) over the rows of operand 0.
template <class Body>
void for_samples(const Call& call, const Body& body) {
  const std::int64_t rows = call.in[0].shape[0], c = call.in[0].shape[1];
  const Targets targets(call.in[1], c);
  for_chunks(call.pool, rows, std::max<std::int64_t>(1, chunk / std::max<std::int64_t>(1, c)),
             [&](std::int64_t first, std::int64_t count) {
               for (std::int64_t row = first; row < first + count; ++row)
                 body(row, row * c, targets[row], c);
             });
}
float smoothing_of(const Call& call) { return static_cast<float>(call.attr<ir::Loss>().smoothing); }
}  // namespace

void fast_nll(const Call& call) {
  const float *logp = call.in[0].as<float>(), smoothing = smoothing_of(call);
  float* loss = call.out[0].as<float>();
  for_samples(call, [&](std::int64_t row, std::int64_t at, Target target, std::int64_t c) {
    loss[row] = -expectation(target, smoothing, logp + at, c);
  });
}

void fast_nll_grad(const Call& call) {
  const float *g = call.in[2].as<float>(), smoothing = smoothing_of(call);
  float* dx = call.out[0].as<float>();
  for_samples(call, [&](std::int64_t row, std::int64_t at, Target target, std::int64_t c) {
    vector_fill(dx + at, c, 0.0f);
    subtract_target(target, g[row], smoothing, dx + at, c);
  });
}

void fast_cross_entropy(const Call& call) {
  const float *x = call.in[0].as<float>(), smoothing = smoothing_of(call);
  float* loss = call.out[0].as<float>();
  for_samples(call, [&](std::int64_t row, std::int64_t at, Target target, std::int64_t c) {
    const float top = vector_max(x + at, c), m = mass(target, smoothing, c);
    loss[row] = m * std::log(vector_exp_sub_sum(x + at, nullptr, c, top)) +
                (m * top - expectation(target, smoothing, x + at, c));
  });
}

// g (softmax sum(q) - q); the result may lie over the logits.
void fast_cross_entropy_grad(const Call& call) {
  const float *x = call.in[0].as<float>(), *g = call.in[2].as<float>(),
              smoothing = smoothing_of(call);
  float* dx = call.out[0].as<float>();
  for_samples(call, [&](std::int64_t row, std::int64_t at, Target target, std::int64_t c) {
    const float sum = vector_exp_sub_sum(x + at, dx + at, c, vector_max(x + at, c));
    vector_scale(dx + at, dx + at, c, g[row] * mass(target, smoothing, c) / sum);
    subtract_target(target, g[row], smoothing, dx + at, c);
  });
}

void fast_correct(const Call& call) {
  const float* x = call.in[0].as<float>();
  float* hit = call.out[0].as<float>();
  const std::int64_t k = call.attr<ir::TopK>().k;
  for_samples(call, [&](std::int64_t row, std::int64_t at, Target target, std::int64_t c) {
    const std::int64_t label = target.soft != nullptr
                                   ? std::max_element(target.soft, target.soft + c) - target.soft
                                   : target.label;
    const float score = x[at + label];
    std::int64_t better = 0;
    for (std::int64_t i = 0; i < c; ++i)
      better += x[at + i] > score || (x[at + i] == score && i < label);
    hit[row] = !std::isnan(score) && better < k ? 1.0f : 0.0f;
  });
}

}  // namespace tessera::exec::cpu
