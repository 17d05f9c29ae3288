// The activation and its slope, as exec/cpu/reference/formulas.h defines them. Convention: f32 and
// f64 use the accurate functions of the runtime; beside bf16 and f16 values an absolute error of
// some 1e-7 cannot be seen, so they use fewer instructions and stay within the time that memory
// takes.
#pragma once

#include "exec/cuda/elements.cuh"

namespace tessera::exec::cuda {

// 1 - Phi(|x|) by Abramowitz and Stegun 7.1.26, to 0.8e-7: erfc z = (a1 t + ... + a5 t^5)
// exp(-z^2), t = 1 / (1 + p z); the halves are in the factors. Both special functions take the
// hardware's short form: what they would do for subnormal numbers is lost beside 1.
struct UpperTail {
  float above, bell;

  __device__ __forceinline__ explicit UpperTail(float x) {
    float t;
    asm("rcp.approx.ftz.f32 %0, %1;"
        : "=f"(t)
        : "f"(fmaf(0.3275911f * 0.70710678f, fabsf(x), 1.0f)));
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(bell) : "f"(-0.72134752f * x * x));
    float poly = fmaf(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
    poly = fmaf(t, poly, 0.5f * 1.421413741f);
    poly = fmaf(t, poly, 0.5f * -0.284496736f);
    poly = fmaf(t, poly, 0.5f * 0.254829592f);
    above = poly * t * bell;
  }
};

// Phi(x) = (1 + erf(x / sqrt 2)) / 2, and exp(-x^2 / 2), which the fast form needs anyway.
template <class T>
struct NormalAt {
  Wide<T> below, bell;

  __device__ __forceinline__ explicit NormalAt(double x) requires std::is_same_v<T, double>
      : below(0.5 * (1.0 + erf(x * 0.70710678118654752440))), bell(exp(-0.5 * x * x)) {}
  __device__ __forceinline__ explicit NormalAt(float x) requires std::is_same_v<T, float>
      : below(0.5f * (1.0f + erff(x * 0.70710678118654752440f))), bell(expf(-0.5f * x * x)) {}
  __device__ __forceinline__ explicit NormalAt(float x) requires is_low<T> {
    const UpperTail tail(x);
    bell = tail.bell;
    below = x < 0.0f ? tail.above : 1.0f - tail.above;
  }
};

template <class T>
__device__ __forceinline__ Wide<T> tanh_of(Wide<T> x) {
  if constexpr (is_low<T>)
    return 1.0f - __fdividef(2.0f, __expf(2.0f * x) + 1.0f);
  else if constexpr (std::is_same_v<T, float>)
    return tanhf(x);
  else
    return tanh(x);
}

template <class T>
__device__ __forceinline__ Wide<T> erf_gelu(Wide<T> x) {
  if constexpr (is_low<T>)  // x Phi(x) for either sign of x; the tail of an infinite x is 0
    return fmaf(-fminf(fabsf(x), 32.0f), UpperTail(x).above, fmaxf(x, 0.0f));
  else if constexpr (std::is_same_v<T, float>)
    return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
  else
    return 0.5 * x * (1.0 + erf(x * 0.70710678118654752440));
}
// The same for a result that becomes bf16, in 9 instructions instead of 15: max(x, 0) - a 2^p(a)
// with a = |x| cut off at 5.5, and p a polynomial near log2(1 - Phi(a)). The error is 2^-13 of the
// result, 1e-7 where that is below 2^-16; rounded it is within 0.53 of a last place.
__device__ __forceinline__ float short_gelu(float x) {
  float tail, above;
  const float a = fminf(fabsf(x), 5.5f);
  float p = fmaf(a, -0.000296738319f, 0.00558635872f);
  p = fmaf(a, p, -0.0473941825f);
  p = fmaf(a, p, -0.465304613f);
  p = fmaf(a, p, -1.14860666f);
  p = fmaf(a, p, -1.00016344f);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(tail) : "f"(p));
  asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(above) : "f"(x));  // a NaN stays one
  return fmaf(-a, tail, above);
}
template <class T>
__device__ __forceinline__ Wide<T> erf_gelu_slope(Wide<T> x) {
  const NormalAt<T> at(x);
  return at.below + x * Wide<T>(0.39894228040143267794) * at.bell;
}
template <class T>
__device__ __forceinline__ Wide<T> tanh_gelu(Wide<T> x) {
  using W = Wide<T>;
  const W t = tanh_of<T>(W(0.79788456080286535588) * (x + W(0.044715) * x * x * x));
  return W(0.5) * x * (W(1) + t);
}
template <class T>
__device__ __forceinline__ Wide<T> tanh_gelu_slope(Wide<T> x) {
  using W = Wide<T>;
  const W t = tanh_of<T>(W(0.79788456080286535588) * (x + W(0.044715) * x * x * x));
  return W(0.5) * (W(1) + t) +
         W(0.5) * x * (W(1) - t * t) * W(0.79788456080286535588) * (W(1) + W(3 * 0.044715) * x * x);
}

}  // namespace tessera::exec::cuda
