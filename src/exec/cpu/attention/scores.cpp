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

// One row of P and dS; the last partial vector goes through buffers.
template <class B, class M>
HWY_INLINE void gradients_of_row(float* HWY_RESTRICT s, float* HWY_RESTRICT ds, int64_t n,
                                 const B* bias, const M* mask, float lse, float dot) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V minus_lse = hn::Set(d, lse), minus_dot = hn::Set(d, -dot);
  const auto put = [&](V score, V gradient, float* p_to, float* ds_to) HWY_ATTR {
    const V p = vexp(d, hn::Sub(score, minus_lse));
    hn::StoreU(p, d, p_to);
    hn::StoreU(hn::Mul(hn::Add(gradient, minus_dot), p), d, ds_to);
  };
  const auto take = [&](int64_t at) HWY_ATTR {
    return plus(plus(hn::LoadU(d, s + at), moved(bias, at)), moved(mask, at));
  };
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const V first = take(i), second = take(i + lanes);
    put(first, hn::LoadU(d, ds + i), s + i, ds + i);
    put(second, hn::LoadU(d, ds + i + lanes), s + i + lanes, ds + i + lanes);
  }
  for (; i + lanes <= n; i += lanes) put(take(i), hn::LoadU(d, ds + i), s + i, ds + i);
  if (i == n) return;
  HWY_ALIGN float score[hn::MaxLanes(d)] = {}, gradient[hn::MaxLanes(d)] = {};
  for (int64_t j = i; j < n; ++j) {
    score[j - i] = plus(plus(s[j], moved(bias, j)), moved(mask, j));
    gradient[j - i] = ds[j];
  }
  put(hn::Load(d, score), hn::Load(d, gradient), score, gradient);
  std::copy_n(score, n - i, s + i);
  std::copy_n(gradient, n - i, ds + i);
}

// Calls body(bias, mask) with what the addends point to.
template <class Body>
void with_addends(Addend bias, Addend mask, const Body& body) {
  const auto with_bias = [&](auto* b) {
    if (mask.wide)
      body(b, mask.wide);
    else if (mask.low)
      body(b, mask.low);
    else
      body(b, static_cast<const Nothing*>(nullptr));
  };
  if (bias.wide)
    with_bias(bias.wide);
  else if (bias.low)
    with_bias(bias.low);
  else
    with_bias(static_cast<const Nothing*>(nullptr));
}
void exponentials_here(const ScoreRows& all, Addend bias, Addend mask, float* greatest,
                       float* sum) {
  with_addends(bias, mask,
               [&](auto* b, auto* m) HWY_ATTR { exponentials_of(all, b, m, greatest, sum); });
}
void score_gradients_here(const ScoreRows& all, Addend bias, Addend mask, const float* lse,
                          const float* dots, float* gradients) {
  with_addends(bias, mask, [&](auto* b, auto* m) HWY_ATTR {
    for (int64_t i = 0, at = 0; i < all.rows; ++i, at += all.n)
      gradients_of_row(all.scores + at, gradients + at, all.n, moved(b, at), moved(m, at), lse[i],
                       dots[i]);
  });
}

void row_dots_here(const Low* a, const Low* b, int64_t rows, int64_t n, int64_t pitch,
                   float* dots) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < rows; ++row, a += pitch, b += pitch) {
    V first = hn::Zero(d), second = first;
    int64_t i = 0;
    const auto product = [&](int64_t at, V sum) HWY_ATTR {
      return hn::MulAdd(plus(hn::Zero(d), a + at), plus(hn::Zero(d), b + at), sum);
    };
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      first = product(i, first);
      second = product(i + lanes, second);
    }
    for (; i + lanes <= n; i += lanes) first = product(i, first);
    float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second)));
    for (; i < n; ++i) sum += plus(0.0f, a + i) * plus(0.0f, b + i);
    dots[row] = sum;
  }
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
HWY_EXPORT(score_gradients_here);
HWY_EXPORT(row_dots_here);
HWY_EXPORT(divide_rows_here);

void exponentials(const ScoreRows& rows, Addend bias, Addend mask, float* greatest, float* sum) {
  HWY_DYNAMIC_DISPATCH(exponentials_here)(rows, bias, mask, greatest, sum);
}
void score_gradients(const ScoreRows& rows, Addend bias, Addend mask, const float* lse,
                     const float* dots, float* gradients) {
  HWY_DYNAMIC_DISPATCH(score_gradients_here)(rows, bias, mask, lse, dots, gradients);
}
void row_dots(const float* a, const float* b, std::int64_t rows, std::int64_t n, std::int64_t pitch,
              float* dots) {
  for (std::int64_t i = 0; i < rows; ++i) dots[i] = vector_dot(a + i * pitch, b + i * pitch, n);
}
void row_dots(const Low* a, const Low* b, std::int64_t rows, std::int64_t n, std::int64_t pitch,
              float* dots) {
  HWY_DYNAMIC_DISPATCH(row_dots_here)(a, b, rows, n, pitch, dots);
}
void divide_rows(float* x, std::int64_t rows, std::int64_t n, std::int64_t pitch,
                 const float* sum) {
  HWY_DYNAMIC_DISPATCH(divide_rows_here)(x, rows, n, pitch, sum);
}

}  // namespace tessera::exec::cpu
#endif
