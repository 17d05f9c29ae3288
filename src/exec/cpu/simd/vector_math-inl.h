// Vectorised f32 exp, gelu and the gradient of gelu; included once per instruction set by the files
// that use Highway. Convention: straight-line code without tables or branches; NaN in gives NaN
// out. tools/fit_erf.py finds the coefficients.
#if defined(TESSERA_VECTOR_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_VECTOR_MATH_INL_H
#undef TESSERA_VECTOR_MATH_INL_H
#else
#define TESSERA_VECTOR_MATH_INL_H
#endif

#include <cmath>

#include "exec/cpu/simd/gelu_fit.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c0 + c1 x + c2 x^2 + ..., in pairs (Estrin): short chains of multiply-adds, and half as many
// copies of constants as in Horner's scheme.
template <class D, class V>
HWY_INLINE V pair(D d, V x, float low, float high) {
  return hn::MulAdd(hn::Set(d, high), x, hn::Set(d, low));
}
template <class D, class V>
HWY_INLINE V polynomial(D d, V x, float c0, float c1, float c2, float c3, float c4, float c5) {
  const V x2 = hn::Mul(x, x);
  return hn::MulAdd(hn::MulAdd(pair(d, x, c4, c5), x2, pair(d, x, c2, c3)), x2, pair(d, x, c0, c1));
}
template <class D, class V>
HWY_INLINE V polynomial(D d, V x, float c0, float c1, float c2, float c3, float c4, float c5,
                        float c6) {
  const V x2 = hn::Mul(x, x);
  const V high = hn::MulAdd(hn::Set(d, c6), x2, pair(d, x, c4, c5)),
          low = hn::MulAdd(pair(d, x, c2, c3), x2, pair(d, x, c0, c1));
  return hn::MulAdd(high, hn::Mul(x2, x2), low);
}
template <class D, class V>
HWY_INLINE V polynomial(D d, V x, float c0, float c1, float c2, float c3, float c4, float c5,
                        float c6, float c7) {
  const V x2 = hn::Mul(x, x);
  const V high = hn::MulAdd(pair(d, x, c6, c7), x2, pair(d, x, c4, c5)),
          low = hn::MulAdd(pair(d, x, c2, c3), x2, pair(d, x, c0, c1));
  return hn::MulAdd(high, hn::Mul(x2, x2), low);
}

// Relative error 1.5e-7; results below 2^-126 are 0, and from 88.38 on infinity.
template <class D, class V>
HWY_INLINE V vexp(D d, V x) {
  // x = n ln 2 + r: adding 1.5 * 2^23 rounds to an integer and leaves n in the low bits of the
  // float, ready for the exponent. ln 2 comes in two parts, the first short enough that its product
  // with n is exact without fused multiply-adds as well.
  const hn::RebindToUnsigned<D> du;
  const V shift = hn::Set(d, 12582912.0f);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269502f), shift);
  const V minus_n = hn::Sub(shift, shifted);
  const V r = hn::MulAdd(minus_n, hn::Set(d, 1.42860682e-06f),
                         hn::MulAdd(minus_n, hn::Set(d, 0.693145751953125f), x));
  const V p = polynomial(d, r, 1.0f, 1.000000036e+00f, 4.999999208e-01f, 1.666642017e-01f,
                         4.166822557e-02f, 8.374815803e-03f, 1.383684571e-03f);
  const V y =
      hn::BitCast(d, hn::Add(hn::BitCast(du, p), hn::ShiftLeft<23>(hn::BitCast(du, shifted))));
  const V low = hn::Set(d, -87.33654f), high = hn::Set(d, 88.37626f);
  // The product is infinity, or the NaN that x is: y may be a number then.
  return hn::IfThenElse(hn::Le(x, high), hn::IfThenZeroElse(hn::Lt(x, low), y),
                        hn::Mul(x, hn::Set(d, HUGE_VALF)));
}

// x/2 + x/2 erf(x / sqrt 2), the second term as x^2 R(x^2). Absolute error 2e-7 max(1, |x|).
template <class D, class V>
HWY_INLINE V vgelu(D d, V x) {
  const V t = hn::Mul(x, x), half = hn::Mul(x, hn::Set(d, 0.5f));
  const auto of = [&](const float* c)
                      HWY_ATTR { return polynomial(d, t, c[0], c[1], c[2], c[3], c[4], c[5]); };
  const V p = of(gelu_fit.above), q = of(gelu_fit.below);
  const V even = hn::IfThenElse(hn::Gt(t, hn::Set(d, gelu_fit.most_square)), hn::Abs(half),
                                hn::Mul(t, hn::Div(p, q)));
  return hn::Add(half, even);
}

// p / q within two units in the last place: by an estimate of 1 / q and one step of Newton's where
// that is faster (amx_product_x86.h has the same bits).
template <class D, class V>
HWY_INLINE V quotient(D d, V p, V q) {
  if constexpr (HWY_TARGET != HWY_AVX3) return hn::Div(p, q);
  const V r = hn::ApproximateReciprocal(q);
  return hn::Mul(p, hn::Mul(r, hn::NegMulAdd(q, r, hn::Set(d, 2.0f))));
}

// The same for results that are rounded to bf16. Absolute error 6e-6 max(1, |x|): of normal numbers
// one in 200 is rounded to another bf16 than what vgelu gives.
template <class D, class V>
HWY_INLINE V vgelu_low(D d, V x) {
  const V most = hn::Set(d, gelu_low_fit.most);
  const V u = hn::Max(hn::Min(x, most), hn::Neg(most)), t = hn::Mul(u, u), t2 = hn::Mul(t, t);
  const auto of = [&](const float* c) HWY_ATTR {
    return hn::MulAdd(pair(d, t, c[2], c[3]), t2, pair(d, t, c[0], c[1]));
  };
  const V r = quotient(d, of(gelu_low_fit.above), of(gelu_low_fit.below));
  return hn::Mul(x, hn::MulAdd(u, r, hn::Set(d, gelu_low_fit.half)));
}

// Phi(x) + x phi(x) = 1/2 + x S(x^2). Absolute error 3e-7.
template <class D, class V>
HWY_INLINE V vgelu_slope(D d, V x) {
  const V t = hn::Mul(x, x), half = hn::Set(d, 0.5f);
  const V p =
      polynomial(d, t, 7.978847898e-01f, -4.151702880e-02f, 1.452999839e-02f, -1.481595769e-04f,
                 3.300829600e-05f, -1.008738621e-07f, 2.785041025e-09f, -1.535768656e-11f);
  const V q = polynomial(d, t, 1.0f, 2.813019125e-01f, 3.697188203e-02f, 2.952291118e-03f,
                         1.502085191e-04f, 5.556679018e-06f);
  const V odd = hn::IfThenElse(hn::Gt(t, hn::Set(d, 36.0f)), hn::CopySign(half, x),
                               hn::Mul(x, hn::Div(p, q)));
  return hn::Add(half, odd);
}

// The tanh form: x/2 (1 + tanh u) = x sigmoid(2u) with 2u = 2 sqrt(2/pi) (x + 0.044715 x^3).
constexpr float tanh_linear = 1.595769122f, tanh_cubic = 7.135481627e-02f;
template <class D, class V>
HWY_INLINE V exp_minus_2u(D d, V x) {
  const V minus_2u =
      hn::Mul(x, hn::NegMulSub(hn::Mul(x, x), hn::Set(d, tanh_cubic), hn::Set(d, tanh_linear)));
  return vexp(d, minus_2u);
}
template <class D, class V>
HWY_INLINE V vgelu_tanh(D d, V x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), exp_minus_2u(d, x)));
}
// s + x (2u)' s (1 - s) with s = sigmoid(2u) and s (1 - s) = exp(-2u) s^2. Beyond 6.5 that is 0 in
// f32, and neither factor may overflow.
template <class D, class V>
HWY_INLINE V vgelu_tanh_slope(D d, V x) {
  const V limit = hn::Set(d, 6.5f), one = hn::Set(d, 1.0f);
  const V a = hn::IfThenElse(hn::Gt(hn::Abs(x), limit), hn::CopySign(limit, x), x);
  const V e = exp_minus_2u(d, a), s = hn::Div(one, hn::Add(one, e));
  const V slope_2u = hn::MulAdd(hn::Mul(a, a), hn::Set(d, 3 * tanh_cubic), hn::Set(d, tanh_linear));
  return hn::MulAdd(hn::Mul(a, slope_2u), hn::Mul(s, hn::Mul(e, s)), s);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
