#include "exec/cpu/attention/scores.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "exec/cpu/simd/vector.h"  // before Highway: the instruction sets we build for

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/attention/scores.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/simd/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

using std::int64_t;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

struct Nothing {};

HWY_INLINE V plus(V v, const Nothing*) { return v; }
HWY_INLINE V plus(V v, const float* x) { return hn::Add(v, hn::LoadU(D(), x)); }
HWY_INLINE V plus(V v, const Low* x) {
  const D d;
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<Low, D> half;
  return hn::Add(v, hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(half, x)))));
}
inline float plus(float v, const Nothing*) { return v; }
inline float plus(float v, const float* x) { return v + *x; }
inline float plus(float v, const Low* x) {
  return v + std::bit_cast<float>(std::uint32_t{*x} << 16);
}
template <class X>
const X* moved(const X* x, int64_t by) {
  return x + by;
}
inline const Nothing* moved(const Nothing*, int64_t) { return nullptr; }

// A row plus its addends, padded with -inf up to whole vectors; its greatest number.
template <class B, class M>
HWY_INLINE float add_and_max(float* HWY_RESTRICT s, int64_t n, const B* bias, const M* mask) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float least = -std::numeric_limits<float>::infinity();
  V a = hn::Set(d, least), b = a;
  int64_t i = 0;
  const auto take = [&](int64_t at) HWY_ATTR {
    const V v = plus(plus(hn::LoadU(d, s + at), moved(bias, at)), moved(mask, at));
    hn::StoreU(v, d, s + at);
    return v;
  };
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = hn::Max(a, take(i));
    b = hn::Max(b, take(i + lanes));
  }
  if (i + lanes <= n) {
    a = hn::Max(a, take(i));
    i += lanes;
  }
  float most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
  const int64_t end = (n + lanes - 1) / lanes * lanes;
  for (; i < n; ++i) {
    s[i] = plus(plus(s[i], moved(bias, i)), moved(mask, i));
    most = most < s[i] ? s[i] : most;
  }
  for (; i < end; ++i) s[i] = least;
  return most;
}

// Whole vectors of exp(s - most), in place, and their sum.
HWY_INLINE float exp_and_sum(float* HWY_RESTRICT s, int64_t n, float most) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V m = hn::Set(d, most);
  const auto take = [&](int64_t at) HWY_ATTR { return vexp(d, hn::Sub(hn::LoadU(d, s + at), m)); };
  V a = hn::Zero(d), b = a;
  int64_t i = 0;
  for (; i + 3 * lanes <= n; i += 3 * lanes) {
    const V p = take(i), q = take(i + lanes), r = take(i + 2 * lanes);
    hn::StoreU(p, d, s + i);
    hn::StoreU(q, d, s + i + lanes);
    hn::StoreU(r, d, s + i + 2 * lanes);
    a = hn::Add(a, p);
    b = hn::Add(b, hn::Add(q, r));
  }
  for (; i < n; i += lanes) {
    const V p = take(i);
    hn::StoreU(p, d, s + i);
    a = hn::Add(a, p);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

template <class B, class M>
void exponentials_of(const ScoreRows& all, const B* bias, const M* mask, float* greatest,
                     float* sum) {
  const int64_t pitch = score_pitch(all.n), lanes = static_cast<int64_t>(hn::Lanes(D())),
                whole = (all.n + lanes - 1) / lanes * lanes;
  float* s = all.scores;
  for (int64_t i = 0; i < all.rows; ++i, s += pitch) {
    greatest[i] = add_and_max(s, all.n, moved(bias, i * all.n), moved(mask, i * all.n));
    sum[i] = exp_and_sum(s, whole, greatest[i]);
    std::fill(s + all.n, s + pitch, 0.0f);
  }
}
template <class B>
void with_bias(const ScoreRows& all, const B* bias, Addend mask, float* greatest, float* sum) {
  if (mask.wide)
    exponentials_of(all, bias, mask.wide, greatest, sum);
  else if (mask.low)
    exponentials_of(all, bias, mask.low, greatest, sum);
  else
    exponentials_of<B, Nothing>(all, bias, nullptr, greatest, sum);
}
void exponentials_here(const ScoreRows& all, Addend bias, Addend mask, float* greatest,
                       float* sum) {
  if (bias.wide)
    with_bias(all, bias.wide, mask, greatest, sum);
  else if (bias.low)
    with_bias(all, bias.low, mask, greatest, sum);
  else
    with_bias<Nothing>(all, nullptr, mask, greatest, sum);
}

void divide_rows_here(float* x, int64_t rows, int64_t n, int64_t pitch, const float* sum) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, x += pitch) {
    const float factor = 1 / sum[row];
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
    for (; i < n; ++i) x[i] *= factor;
  }
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(exponentials_here);
HWY_EXPORT(divide_rows_here);

void exponentials(const ScoreRows& rows, Addend bias, Addend mask, float* greatest, float* sum) {
  HWY_DYNAMIC_DISPATCH(exponentials_here)(rows, bias, mask, greatest, sum);
}
void divide_rows(float* x, std::int64_t rows, std::int64_t n, std::int64_t pitch,
                 const float* sum) {
  HWY_DYNAMIC_DISPATCH(divide_rows_here)(x, rows, n, pitch, sum);
}

}  // namespace tessera::exec::cpu
#endif
