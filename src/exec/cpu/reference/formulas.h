// Scalar formulas that several reference kernels share, in double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tessera::exec::cpu {

// The activation (Hendrycks and Gimpel 2016): gelu(x) = x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) /
// 2
inline double gelu_erf(double x) { return 0.5 * x * (1.0 + std::erf(x * 0.70710678118654752440)); }
// gelu'(x) = Phi(x) + x phi(x), phi(x) = exp(-x^2 / 2) / sqrt(2 pi)
inline double gelu_erf_slope(double x) {
  return 0.5 * (1.0 + std::erf(x * 0.70710678118654752440)) +
         x * 0.39894228040143267794 * std::exp(-0.5 * x * x);
}

// Its approximation: gelu(x) = x (1 + tanh u) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3)
inline double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
// gelu'(x) = (1 + tanh u) / 2 + x (1 - tanh^2 u) u' / 2, u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)
inline double gelu_tanh_slope(double x) {
  const double t = std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) +
         0.5 * x * (1.0 - t * t) * 0.79788456080286535588 * (1.0 + 3.0 * 0.044715 * x * x);
}

// log sum_i exp x_i = top + log sum_i exp(x_i - top): nothing overflows
template <class T>
double log_sum_exp(const T* x, std::int64_t n) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t i = 0; i < n; ++i) top = std::max(top, static_cast<double>(x[i]));
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - top);
  return top + std::log(sum);
}

}  // namespace tessera::exec::cpu
