#include "exec/cpu/simd/vector.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "exec/cpu/simd/vector.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set
#include "hwy/highway.h"

#include "exec/cpu/simd/low-inl.h"
#include "exec/cpu/simd/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;

// y = f(x) elementwise; the last partial vector goes through a buffer, so every element sees the
// same instructions.
template <class F>
HWY_INLINE void map(const float* x, float* y, std::int64_t n, const F& f) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = f(d, hn::LoadU(d, x + i)), b = f(d, hn::LoadU(d, x + i + lanes));
    hn::StoreU(a, d, y + i);
    hn::StoreU(b, d, y + i + lanes);
  }
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(d, hn::LoadU(d, x + i)), d, y + i);
  if (i == n) return;
  HWY_ALIGN float part[hn::MaxLanes(d)] = {};
  const std::size_t bytes = static_cast<std::size_t>(n - i) * sizeof(float);
  std::memcpy(part, x + i, bytes);
  hn::Store(f(d, hn::Load(d, part)), d, part);
  std::memcpy(y + i, part, bytes);
}

template <class F>
HWY_INLINE void map(const float* x, const float* z, float* y, std::int64_t n, const F& f) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = f(d, hn::LoadU(d, x + i), hn::LoadU(d, z + i));
    const auto b = f(d, hn::LoadU(d, x + i + lanes), hn::LoadU(d, z + i + lanes));
    hn::StoreU(a, d, y + i);
    hn::StoreU(b, d, y + i + lanes);
  }
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(f(d, hn::LoadU(d, x + i), hn::LoadU(d, z + i)), d, y + i);
  if (i == n) return;
  HWY_ALIGN float part[hn::MaxLanes(d)] = {}, other[hn::MaxLanes(d)] = {};
  const std::size_t bytes = static_cast<std::size_t>(n - i) * sizeof(float);
  std::memcpy(part, x + i, bytes);
  std::memcpy(other, z + i, bytes);
  hn::Store(f(d, hn::Load(d, part), hn::Load(d, other)), d, part);
  std::memcpy(y + i, part, bytes);
}

// Four accumulators, folded into one number in a fixed order: step(d, a, i) takes in the vector at
// i, merge joins two accumulators, and both have scalar twins for the lanes and the last elements.
template <class Step, class Merge, class Step1, class Merge1>
HWY_INLINE float reduce(std::int64_t n, float start, const Step& step, const Merge& merge,
                        const Step1& step1, const Merge1& merge1) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Set(d, start), b = a, c = a, e = a;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = step(d, a, i);
    b = step(d, b, i + lanes);
    c = step(d, c, i + 2 * lanes);
    e = step(d, e, i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) a = step(d, a, i);
  HWY_ALIGN float part[hn::MaxLanes(d)];
  hn::Store(merge(merge(a, b), merge(c, e)), d, part);
  float r = part[0];
  for (std::int64_t k = 1; k < lanes; ++k) r = merge1(r, part[k]);
  for (; i < n; ++i) r = step1(r, i);
  return r;
}

void gelu(const float* x, float* y, std::int64_t n, bool tanh) {
  if (tanh)
    map(x, y, n, [](auto d, auto v) HWY_ATTR { return vgelu_tanh(d, v); });
  else
    map(x, y, n, [](auto d, auto v) HWY_ATTR { return vgelu(d, v); });
}
void gelu_low(const float* x, float* y, std::int64_t n, bool tanh) {
  if (tanh) return gelu(x, y, n, true);
  map(x, y, n, [](auto d, auto v) HWY_ATTR { return vgelu_low(d, v); });
}
void gelu_grad(const float* x, const float* g, float* dx, std::int64_t n, bool tanh) {
  if (tanh)
    map(x, g, dx, n,
        [](auto d, auto v, auto w) HWY_ATTR { return hn::Mul(w, vgelu_tanh_slope(d, v)); });
  else
    map(x, g, dx, n, [](auto d, auto v, auto w) HWY_ATTR { return hn::Mul(w, vgelu_slope(d, v)); });
}
// Comparing keeps a NaN, which a maximum may lose.
void relu(const float* x, float* y, std::int64_t n) {
  map(x, y, n,
      [](auto d, auto v) HWY_ATTR { return hn::IfThenZeroElse(hn::Lt(v, hn::Zero(d)), v); });
}
void relu_grad(const float* y, const float* g, float* dx, std::int64_t n) {
  map(y, g, dx, n, [](auto d, auto v, auto w) HWY_ATTR {
    return hn::IfThenElseZero(hn::Gt(v, hn::Zero(d)), w);
  });
}
void blend(const float* a, const float* b, float* y, std::int64_t n, float keep) {
  map(a, b, y, n, [keep](auto d, auto v, auto w) HWY_ATTR {
    return hn::MulAdd(v, hn::Set(d, keep), hn::Mul(w, hn::Set(d, 1.0f - keep)));
  });
}
void exp_sub(const float* x, float* y, std::int64_t n, float subtract) {
  map(x, y, n,
      [subtract](auto d, auto v) HWY_ATTR { return vexp(d, hn::Sub(v, hn::Set(d, subtract))); });
}

// The sum is taken on the way. A partial vector is padded with -inf, whose exp is 0.
template <bool stored>
HWY_INLINE float exp_sub_sum_of(const float* x, float* y, std::int64_t n, float subtract) {
  const F32 d;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto s = hn::Set(d, subtract);
  const auto exp_at = [&](std::int64_t i)
                          HWY_ATTR { return vexp(d, hn::Sub(hn::LoadU(d, x + i), s)); };
  auto a = hn::Zero(d), b = a;
  std::int64_t i = 0;
  for (; i + 3 * lanes <= n; i += 3 * lanes) {
    const auto p = exp_at(i), q = exp_at(i + lanes), r = exp_at(i + 2 * lanes);
    if constexpr (stored) {
      hn::StoreU(p, d, y + i);
      hn::StoreU(q, d, y + i + lanes);
      hn::StoreU(r, d, y + i + 2 * lanes);
    }
    a = hn::Add(a, p);
    b = hn::Add(b, hn::Add(q, r));
  }
  for (; i + lanes <= n; i += lanes) {
    const auto p = exp_at(i);
    if constexpr (stored) hn::StoreU(p, d, y + i);
    a = hn::Add(a, p);
  }
  if (i < n) {
    HWY_ALIGN float part[hn::MaxLanes(d)];
    const std::size_t bytes = static_cast<std::size_t>(n - i) * sizeof(float);
    hn::Store(hn::Set(d, -std::numeric_limits<float>::infinity()), d, part);
    std::memcpy(part, x + i, bytes);
    const auto v = vexp(d, hn::Sub(hn::Load(d, part), s));
    b = hn::Add(b, v);
    hn::Store(v, d, part);
    if constexpr (stored) std::memcpy(y + i, part, bytes);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}
float exp_sub_sum(const float* x, float* y, std::int64_t n, float subtract) {
  return y != nullptr ? exp_sub_sum_of<true>(x, y, n, subtract)
                      : exp_sub_sum_of<false>(x, y, n, subtract);
}

// A NaN may be lost here (x86), never in the sum that follows in a softmax.
float max(const float* x, std::int64_t n) {
  const auto larger = [](float a, float b) { return a < b ? b : a; };
  return reduce(
      n, -std::numeric_limits<float>::infinity(),
      [x](auto d, auto a, std::int64_t i) HWY_ATTR { return hn::Max(a, hn::LoadU(d, x + i)); },
      [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); },
      [&](float a, std::int64_t i) { return larger(a, x[i]); }, larger);
}
float sum(const float* x, std::int64_t n) {
  return reduce(
      n, 0.0f,
      [x](auto d, auto a, std::int64_t i) HWY_ATTR { return hn::Add(a, hn::LoadU(d, x + i)); },
      [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); },
      [x](float a, std::int64_t i) { return a + x[i]; }, [](float a, float b) { return a + b; });
}
float dot(const float* x, const float* z, std::int64_t n) {
  return reduce(
      n, 0.0f,
      [x, z](auto d, auto a, std::int64_t i)
          HWY_ATTR { return hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, z + i), a); },
      [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); },
      [x, z](float a, std::int64_t i) { return a + x[i] * z[i]; },
      [](float a, float b) { return a + b; });
}

double sumsq(const float* x, std::int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> half;
  const std::int64_t lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto p = hn::PromoteTo(d, hn::LoadU(half, x + i)),
               q = hn::PromoteTo(d, hn::LoadU(half, x + i + lanes));
    const auto r = hn::PromoteTo(d, hn::LoadU(half, x + i + 2 * lanes)),
               s = hn::PromoteTo(d, hn::LoadU(half, x + i + 3 * lanes));
    a = hn::MulAdd(p, p, a);
    b = hn::MulAdd(q, q, b);
    c = hn::MulAdd(r, r, c);
    e = hn::MulAdd(s, s, e);
  }
  HWY_ALIGN double part[hn::MaxLanes(d)];
  hn::Store(hn::Add(hn::Add(a, b), hn::Add(c, e)), d, part);
  double total = part[0];
  for (std::int64_t k = 1; k < lanes; ++k) total += part[k];
  for (; i < n; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

void scale(const float* x, float* y, std::int64_t n, float factor) {
  map(x, y, n, [factor](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, factor)); });
}
void axpy(const float* x, float* y, std::int64_t n, float factor) {
  map(x, y, y, n,
      [factor](auto d, auto v, auto w) HWY_ATTR { return hn::MulAdd(v, hn::Set(d, factor), w); });
}
void add(const float* a, const float* b, float* y, std::int64_t n) {
  map(a, b, y, n, [](auto, auto v, auto w) HWY_ATTR { return hn::Add(v, w); });
}
void add_scalar(const float* a, float b, float* y, std::int64_t n) {
  map(a, y, n, [b](auto d, auto v) HWY_ATTR { return hn::Add(v, hn::Set(d, b)); });
}
void sub(const float* a, const float* b, float* y, std::int64_t n) {
  map(a, b, y, n, [](auto, auto v, auto w) HWY_ATTR { return hn::Sub(v, w); });
}
void mul(const float* a, const float* b, float* y, std::int64_t n) {
  map(a, b, y, n, [](auto, auto v, auto w) HWY_ATTR { return hn::Mul(v, w); });
}

HWY_INLINE Two add_two(Two x, Two y) { return {hn::Add(x.a, y.a), hn::Add(x.b, y.b)}; }

// y = x0 + x1 + ... over rows; eight at a time, so that y costs one load and one store per eight
// rows. bf16 is widened in registers.
template <class T>
HWY_INLINE void column_sum_of(const T* x, std::int64_t rows, std::int64_t pitch,
                              std::int64_t columns, float* y) {
  std::fill_n(y, columns, 0.0f);
  std::int64_t row = 0;
  for (; row + 8 <= rows; row += 8)
    along_row(columns, [&](std::int64_t c, auto where) TESSERA_ROW_ATTR {
      const T* const p = x + row * pitch + c;
      const auto pair = [&](int i) TESSERA_ROW_ATTR {
        return add_two(load_two(where, p + i * pitch), load_two(where, p + (i + 1) * pitch));
      };
      const Two sum = add_two(add_two(pair(0), pair(2)), add_two(pair(4), pair(6)));
      store_two<false>(where, add_two(load_two(where, y + c), sum), y + c);
    });
  for (; row < rows; ++row)
    along_row(columns, [&](std::int64_t c, auto where) TESSERA_ROW_ATTR {
      const Two v = load_two(where, x + row * pitch + c);
      store_two<false>(where, add_two(load_two(where, y + c), v), y + c);
    });
}
void column_sum(const float* x, std::int64_t rows, std::int64_t pitch, std::int64_t columns,
                float* y) {
  column_sum_of(x, rows, pitch, columns, y);
}
void column_sum_low(const std::uint16_t* x, std::int64_t rows, std::int64_t pitch,
                    std::int64_t columns, float* y) {
  column_sum_of(x, rows, pitch, columns, y);
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::exec::cpu {

HWY_EXPORT(gelu);
HWY_EXPORT(gelu_low);
HWY_EXPORT(gelu_grad);
HWY_EXPORT(relu);
HWY_EXPORT(relu_grad);
HWY_EXPORT(blend);
HWY_EXPORT(exp_sub);
HWY_EXPORT(exp_sub_sum);
HWY_EXPORT(max);
HWY_EXPORT(sum);
HWY_EXPORT(dot);
HWY_EXPORT(sumsq);
HWY_EXPORT(scale);
HWY_EXPORT(axpy);
HWY_EXPORT(add);
HWY_EXPORT(add_scalar);
HWY_EXPORT(sub);
HWY_EXPORT(mul);
HWY_EXPORT(column_sum);
HWY_EXPORT(column_sum_low);

void vector_gelu(const float* x, float* y, std::int64_t n, bool tanh) {
  HWY_DYNAMIC_DISPATCH(gelu)(x, y, n, tanh);
}
void vector_gelu_low(const float* x, float* y, std::int64_t n, bool tanh) {
  HWY_DYNAMIC_DISPATCH(gelu_low)(x, y, n, tanh);
}
void vector_gelu_grad(const float* x, const float* g, float* dx, std::int64_t n, bool tanh) {
  HWY_DYNAMIC_DISPATCH(gelu_grad)(x, g, dx, n, tanh);
}
void vector_exp_sub(const float* x, float* y, std::int64_t n, float subtract) {
  HWY_DYNAMIC_DISPATCH(exp_sub)(x, y, n, subtract);
}
float vector_exp_sub_sum(const float* x, float* y, std::int64_t n, float subtract) {
  return HWY_DYNAMIC_DISPATCH(exp_sub_sum)(x, y, n, subtract);
}
float vector_max(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(max)(x, n); }
float vector_sum(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(sum)(x, n); }
float vector_dot(const float* a, const float* b, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(dot)(a, b, n);
}
double vector_sumsq(const float* x, std::int64_t n) { return HWY_DYNAMIC_DISPATCH(sumsq)(x, n); }
void vector_column_sum(const float* x, std::int64_t rows, std::int64_t pitch, std::int64_t columns,
                       float* y) {
  HWY_DYNAMIC_DISPATCH(column_sum)(x, rows, pitch, columns, y);
}
void vector_column_sum(const std::uint16_t* x, std::int64_t rows, std::int64_t pitch,
                       std::int64_t columns, float* y) {
  HWY_DYNAMIC_DISPATCH(column_sum_low)(x, rows, pitch, columns, y);
}

void vector_fill(float* y, std::int64_t n, float value) { std::fill_n(y, n, value); }
void vector_copy(const float* x, float* y, std::int64_t n) {
  if (x != y && n > 0) std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(float));
}
void vector_scale(const float* x, float* y, std::int64_t n, float factor) {
  HWY_DYNAMIC_DISPATCH(scale)(x, y, n, factor);
}
void vector_relu(const float* x, float* y, std::int64_t n) { HWY_DYNAMIC_DISPATCH(relu)(x, y, n); }
void vector_relu_grad(const float* y, const float* g, float* dx, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(relu_grad)(y, g, dx, n);
}
void vector_blend(const float* a, const float* b, float* y, std::int64_t n, float keep) {
  HWY_DYNAMIC_DISPATCH(blend)(a, b, y, n, keep);
}
void vector_axpy(const float* x, float* y, std::int64_t n, float factor) {
  HWY_DYNAMIC_DISPATCH(axpy)(x, y, n, factor);
}
void vector_add(const float* a, const float* b, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(add)(a, b, y, n);
}
void vector_add_scalar(const float* a, float b, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(add_scalar)(a, b, y, n);
}
void vector_sub(const float* a, const float* b, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(sub)(a, b, y, n);
}
void vector_mul(const float* a, const float* b, float* y, std::int64_t n) {
  HWY_DYNAMIC_DISPATCH(mul)(a, b, y, n);
}

}  // namespace tessera::exec::cpu
#endif
