// Losses per sample and their gradients. The target is a class (i32[b]) or a distribution (T[b,c]);
// smoothing mixes in the uniform one: q = (1 - s) target + s / c. Convention: a row is read
// completely before its result is written.
#include <algorithm>
#include <cmath>
#include <limits>

#include "exec/cpu/reference/formulas.h"
#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {
namespace {

using std::int64_t;

template <class T>
class Targets {
 public:
  Targets(const Tensor& target, int64_t classes, double smoothing)
      : target_(target), classes_(classes), smoothing_(smoothing) {}
  double q(int64_t row, int64_t k) const {
    const double t = is_label() ? (target_.as<std::int32_t>()[row] == k ? 1.0 : 0.0)
                                : target_.as<T>()[row * classes_ + k];
    return (1.0 - smoothing_) * t + smoothing_ / static_cast<double>(classes_);
  }
  // The class: of a distribution the largest, the first among equals.
  int64_t best(int64_t row) const {
    if (is_label()) return target_.as<std::int32_t>()[row];
    const T* first = target_.as<T>() + row * classes_;
    return std::max_element(first, first + classes_) - first;
  }

 private:
  bool is_label() const { return target_.dtype == ir::DType::i32; }
  const Tensor& target_;
  int64_t classes_;
  double smoothing_;
};

}  // namespace

// loss = -sum_k q_k logp_k; a class of weight 0 adds nothing even where logp is -inf
template <class T>
void reference_nll(const Call& call) {
  const int64_t b = call.in[0].shape[0], c = call.in[0].shape[1];
  const Targets<T> target(call.in[1], c, call.attr<ir::Loss>().smoothing);
  for (int64_t r = 0; r < b; ++r) {
    double loss = 0;
    for (int64_t k = 0; k < c; ++k)
      if (const double q = target.q(r, k); q != 0) loss -= q * call.in[0].as<T>()[r * c + k];
    call.out[0].as<T>()[r] = static_cast<T>(loss);
  }
}

// dlogp = -g q
template <class T>
void reference_nll_grad(const Call& call) {
  const int64_t b = call.in[0].shape[0], c = call.in[0].shape[1];
  const Targets<T> target(call.in[1], c, call.attr<ir::Loss>().smoothing);
  for (int64_t r = 0; r < b; ++r)
    for (int64_t k = 0; k < c; ++k)
      call.out[0].as<T>()[r * c + k] = static_cast<T>(-call.in[2].as<T>()[r] * target.q(r, k));
}

// loss = -sum_k q_k (x_k - lse)
template <class T>
void reference_cross_entropy(const Call& call) {
  const int64_t b = call.in[0].shape[0], c = call.in[0].shape[1];
  const Targets<T> target(call.in[1], c, call.attr<ir::Loss>().smoothing);
  for (int64_t r = 0; r < b; ++r) {
    const T* x = call.in[0].as<T>() + r * c;
    const double lse = log_sum_exp(x, c);
    double loss = 0;
    for (int64_t k = 0; k < c; ++k)
      if (const double q = target.q(r, k); q != 0) loss -= q * (x[k] - lse);
    call.out[0].as<T>()[r] = static_cast<T>(loss);
  }
}

// dx = g (softmax(x) sum_k q_k - q)
template <class T>
void reference_cross_entropy_grad(const Call& call) {
  const int64_t b = call.in[0].shape[0], c = call.in[0].shape[1];
  const Targets<T> target(call.in[1], c, call.attr<ir::Loss>().smoothing);
  for (int64_t r = 0; r < b; ++r) {
    const T* x = call.in[0].as<T>() + r * c;
    const double lse = log_sum_exp(x, c), g = call.in[2].as<T>()[r];
    double total = 0;
    for (int64_t k = 0; k < c; ++k) total += target.q(r, k);
    for (int64_t k = 0; k < c; ++k)
      call.out[0].as<T>()[r * c + k] =
          static_cast<T>(g * (std::exp(x[k] - lse) * total - target.q(r, k)));
  }
}

// 1 when fewer than k classes are ahead of the target's: a larger logit, or an equal one of lower
// index. A NaN is never right.
template <class T>
void reference_correct(const Call& call) {
  const int64_t b = call.in[0].shape[0], c = call.in[0].shape[1];
  const Targets<T> target(call.in[1], c, 0.0);
  for (int64_t r = 0; r < b; ++r) {
    const T* x = call.in[0].as<T>() + r * c;
    const int64_t best = target.best(r);
    int64_t ahead =
        best < 0 || best >= c || x[best] != x[best] ? std::numeric_limits<int64_t>::max() : 0;
    if (ahead == 0)
      for (int64_t k = 0; k < c; ++k) ahead += !(x[k] < x[best]) && (x[k] != x[best] || k < best);
    call.out[0].as<T>()[r] = ahead < call.attr<ir::TopK>().k ? T(1) : T(0);
  }
}

REFERENCE(nll)
REFERENCE(nll_grad)
REFERENCE(cross_entropy)
REFERENCE(cross_entropy_grad)
REFERENCE(correct)

}  // namespace tessera::exec::cpu
