// Vectorised f32 exp, gelu and the gradient of gelu; included once per instruction set by the files that use Highway.
// Convention: straight-line code without tables or branches; NaN in gives NaN out. tools/fit_erf.py finds the coefficients.
#if defined(TESSERA_VECTOR_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_VECTOR_MATH_INL_H
#undef TESSERA_VECTOR_MATH_INL_H
#else
#define TESSERA_VECTOR_MATH_INL_H
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c0 + c1 x + c2 x^2 + ..., by Estrin's scheme: a chain of four multiply-adds where Horner's has ten, and fewer copies of constants.
template <class D, class V>
HWY_INLINE V polynomial(D d, V x, float c0, float c1, float c2, float c3, float c4, float c5, float c6) {
  const auto c = [d](float value) HWY_ATTR { return hn::Set(d, value); };
  const V x2 = hn::Mul(x, x), x4 = hn::Mul(x2, x2);
  const V low = hn::MulAdd(hn::MulAdd(c(c3), x, c(c2)), x2, hn::MulAdd(c(c1), x, c(c0)));
  const V high = hn::MulAdd(c(c6), x2, hn::MulAdd(c(c5), x, c(c4)));
  return hn::MulAdd(high, x4, low);
}
template <class D, class V>
HWY_INLINE V polynomial(D d, V x, float c0, float c1, float c2, float c3, float c4, float c5, float c6, float c7, float c8, float c9, float c10) {
  const auto c = [d](float value) HWY_ATTR { return hn::Set(d, value); };
  const V x2 = hn::Mul(x, x), x4 = hn::Mul(x2, x2), x8 = hn::Mul(x4, x4);
  const V low = hn::MulAdd(hn::MulAdd(c(c3), x, c(c2)), x2, hn::MulAdd(c(c1), x, c(c0)));
  const V middle = hn::MulAdd(hn::MulAdd(c(c7), x, c(c6)), x2, hn::MulAdd(c(c5), x, c(c4)));
  const V high = hn::MulAdd(c(c10), x2, hn::MulAdd(c(c9), x, c(c8)));
  return hn::MulAdd(high, x8, hn::MulAdd(middle, x4, low));
}

// 2^(n + f) for |f| <= 1/2, where `shifted` is n + 1.5 * 2^23: the low bits of that float are n. Needs -126 <= n <= 127.
template <class D, class V>
HWY_INLINE V exp2_of_parts(D d, V shifted, V f) {
  const hn::RebindToSigned<D> di;
  const V p = polynomial(d, f, 1.0f, 6.931472057e-01f, 2.402264689e-01f, 5.550328777e-02f, 9.618488957e-03f, 1.339993122e-03f, 1.534581195e-04f);
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}
constexpr float round_shift = 12582912.0f;    // 1.5 * 2^23: adding it rounds to an integer

// Within 1 ulp or so; results below 2^-126 are 0, above 88.37 infinity.
template <class D, class V>
HWY_INLINE V vexp(D d, V x) {
  const V shift = hn::Set(d, round_shift);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), shift);
  const V minus_n = hn::Sub(shift, shifted);
  const V f = hn::MulAdd(x, hn::Set(d, 1.925963033e-08f), hn::MulAdd(x, hn::Set(d, 1.44269504f), minus_n));
  const V y = exp2_of_parts(d, shifted, f);
  const V low = hn::Set(d, -87.33654f), high = hn::Set(d, 88.37626f);
  return hn::IfThenElse(hn::Gt(x, high), hn::Set(d, HUGE_VALF), hn::IfThenZeroElse(hn::Lt(x, low), y));
}

// The smaller one; unlike Min it keeps a NaN in x everywhere.
template <class D, class V>
HWY_INLINE V at_most(D d, V x, float limit) {
  const V high = hn::Set(d, limit);
  return hn::IfThenElse(hn::Gt(x, high), high, x);
}
constexpr float tail_end = 8.0f;    // Phi(-8) = 6e-16 is zero beside the other terms

// Phi(-a), the normal tail, for 0 <= a <= 8.
template <class D, class V>
HWY_INLINE V normal_tail(D d, V a) {
  const V p = polynomial(d, a, -9.999999468e-01f, -1.151107375e+00f, -4.591923167e-01f, -5.253467136e-02f, 7.094550165e-03f, -1.289031867e-04f,
                         -2.133232471e-04f, 5.591953788e-05f, -7.230087184e-06f, 4.927659681e-07f, -1.400894757e-08f);
  const V shift = hn::Set(d, round_shift);
  const V shifted = hn::Add(p, shift);
  return exp2_of_parts(d, shifted, hn::Sub(p, hn::Sub(shifted, shift)));
}

// x Phi(x) = max(x, 0) - |x| Phi(-|x|): no cancellation in the tail, absolute error about 1e-7 max(1, x).
template <class D, class V>
HWY_INLINE V vgelu(D d, V x) {
  const V a = at_most(d, hn::Abs(x), tail_end);
  return hn::NegMulAdd(a, normal_tail(d, a), hn::Max(hn::Zero(d), x));
}

// Phi(x) + x phi(x); at -a it is Phi(-a) (1 - a phi(a) / Phi(-a)), at a it is 1 minus that.
template <class D, class V>
HWY_INLINE V vgelu_slope(D d, V x) {
  const V a = at_most(d, hn::Abs(x), tail_end);
  const V slope = polynomial(d, a, 1.000000036e+00f, -7.978873968e-01f, -6.365848150e-01f, -1.091663142e-01f, 1.947797176e-02f, -2.209367611e-04f,
                             -1.028961546e-03f, 3.210453661e-04f, -4.969936391e-05f, 4.015411448e-06f, -1.333475566e-07f);
  const V below = hn::Mul(normal_tail(d, a), slope);
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 1.0f), below), below);
}

// The tanh form: 0.5 x (1 + tanh(u)) = x sigmoid(2u) with 2u = 2 sqrt(2/pi) (x + 0.044715 x^3).
constexpr float tanh_linear = 1.595769122f, tanh_cubic = 7.135481283e-02f;
template <class D, class V>
HWY_INLINE V exp_minus_2u(D d, V x) {
  const V minus_2u = hn::Mul(x, hn::NegMulSub(hn::Mul(x, x), hn::Set(d, tanh_cubic), hn::Set(d, tanh_linear)));
  return vexp(d, at_most(d, minus_2u, 80.0f));
}
template <class D, class V>
HWY_INLINE V vgelu_tanh(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), exp_minus_2u(d, x)));
}
// s + x (2u)' s (1 - s) with s = sigmoid(2u) and 1 - s = exp(-2u) s. Beyond 16 the last factor is 0, and x^3 must not overflow.
template <class D, class V>
HWY_INLINE V vgelu_tanh_slope(D d, V x) {
  const V e = exp_minus_2u(d, x), s = hn::Div(hn::Set(d, 1.0f), hn::Add(hn::Set(d, 1.0f), e));
  const V near = hn::Max(hn::Set(d, -16.0f), hn::Min(hn::Set(d, 16.0f), x));
  const V slope_2u = hn::MulAdd(hn::Mul(near, near), hn::Set(d, 3 * tanh_cubic), hn::Set(d, tanh_linear));
  return hn::MulAdd(hn::Mul(near, slope_2u), hn::Mul(s, hn::Mul(e, s)), s);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
