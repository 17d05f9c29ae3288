// Passes over rows of channels, compiled once per instruction set by the files of batch norm. Rows
// are walked in the order of memory, since lines that lie apart come slowly, and with long vectors
// a few of them together, since what belongs to channels is then loaded once for all of them.
#if defined(TESSERA_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ROWS_INL_H
#undef TESSERA_ROWS_INL_H
#else
#define TESSERA_ROWS_INL_H
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "exec/cpu/simd/low-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {

using std::int64_t;
constexpr int64_t rows_together = HWY_ARCH_X86 ? 4 : 1;  // more were slower with short vectors

HWY_INLINE Two operator+(Two x, Two y) { return {hn::Add(x.a, y.a), hn::Add(x.b, y.b)}; }
HWY_INLINE Two operator-(Two x, Two y) { return {hn::Sub(x.a, y.a), hn::Sub(x.b, y.b)}; }
HWY_INLINE Two operator*(Two x, Two y) { return {hn::Mul(x.a, y.a), hn::Mul(x.b, y.b)}; }
// x y + z, and z - x y
HWY_INLINE Two mul_add(Two x, Two y, Two z) {
  return {hn::MulAdd(x.a, y.a, z.a), hn::MulAdd(x.b, y.b, z.b)};
}
HWY_INLINE Two neg_mul_add(Two x, Two y, Two z) {
  return {hn::NegMulAdd(x.a, y.a, z.a), hn::NegMulAdd(x.b, y.b, z.b)};
}
// v where x > 0, else zero.
HWY_INLINE Two where_positive(Two x, Two v) {
  const auto zero = hn::Zero(hn::ScalableTag<float>());
  return {hn::IfThenElseZero(hn::Gt(x.a, zero), v.a), hn::IfThenElseZero(hn::Gt(x.b, zero), v.b)};
}
// Zero where v < 0; comparing keeps a NaN.
HWY_INLINE Two relu_of(Two v) {
  const auto zero = hn::Zero(hn::ScalableTag<float>());
  return {hn::IfThenZeroElse(hn::Lt(v.a, zero), v.a), hn::IfThenZeroElse(hn::Lt(v.b, zero), v.b)};
}

// How far ahead of a pass over rows of c numbers lines are fetched: behind the rows that are walked
// together, and as far as memory is away. Processors do not see by themselves that several rows of
// several tensors are walked at once.
inline int64_t ahead_of(int64_t c) {
  constexpr int64_t numbers = 2048;
  return std::max(rows_together * c, numbers);
}
template <class Where, class T>
HWY_INLINE Two load_and_fetch(Where where, const T* x, int64_t ahead) {
  if constexpr (HWY_ARCH_X86)
    for (int64_t i = 0; i < lanes_of_two(); i += 64 / static_cast<int64_t>(sizeof(T)))
      hwy::Prefetch(x + ahead + i);
  return load_two(where, x);
}

// body(first row, how many rows, first channel, where in a row) for all rows and channels.
template <int count>
using RowCount = std::integral_constant<int, count>;
template <class Body>
HWY_INLINE void in_rows(int64_t rows, int64_t c, const Body& body) {
  int64_t row = 0;
  for (; row + rows_together <= rows; row += rows_together)
    along_short_row(c, [&](int64_t i, auto where)
                           TESSERA_ROW_ATTR { body(row, RowCount<rows_together>{}, i, where); });
  if constexpr (rows_together > 1)
    for (; row < rows; ++row)
      along_row(
          c, [&](int64_t i, auto where) TESSERA_ROW_ATTR { body(row, RowCount<1>{}, i, where); });
}

// Two sums of each channel over the rows, in their order: body(first row, how many, first channel,
// where, sums, sums) adds those of a few rows.
template <class Body>
HWY_INLINE void sum_rows(int64_t rows, int64_t c, float* first, float* second, const Body& body) {
  in_rows(rows, c, [&](int64_t row, auto count, int64_t i, auto where) TESSERA_ROW_ATTR {
    Two a = two_zeros(), b = a;
    if (row > 0) {
      a = load_two(where, first + i);
      b = load_two(where, second + i);
    }
    body(row, count, i, where, a, b);
    store_two<false>(where, a, first + i);
    store_two<false>(where, b, second + i);
  });
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
