// Sums over rows for a few vectors of channels, compiled once per instruction set by the files of
// batch norm.
#if defined(TESSERA_COLUMN_PAIR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_COLUMN_PAIR_INL_H
#undef TESSERA_COLUMN_PAIR_INL_H
#else
#define TESSERA_COLUMN_PAIR_INL_H
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::exec::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using std::int64_t;
using F32 = hn::ScalableTag<float>;
using V = hn::Vec<F32>;

// Sums over the rows of a block for W vectors of channels: term(row, at) gives what is added to
// both sums.
template <int W, class Term>
HWY_INLINE void column_pair(int64_t rows, int64_t at, float* first, float* second,
                            const Term& term) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V a[W], b[W];
  for (int k = 0; k < W; ++k) a[k] = b[k] = hn::Zero(d);
  for (int64_t row = 0; row < rows; ++row)
    for (int k = 0; k < W; ++k) term(row, at + k * lanes, a[k], b[k]);
  for (int k = 0; k < W; ++k) {
    hn::StoreU(a[k], d, first + at + k * lanes);
    hn::StoreU(b[k], d, second + at + k * lanes);
  }
}

// The same for all whole vectors of a row; the first channel that is left.
template <class Term>
HWY_INLINE int64_t column_pairs(int64_t rows, int64_t c, float* first, float* second,
                                const Term& term) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32()));
  int64_t at = 0;
  for (; at + 4 * lanes <= c; at += 4 * lanes) column_pair<4>(rows, at, first, second, term);
  for (; at + lanes <= c; at += lanes) column_pair<1>(rows, at, first, second, term);
  return at;
}

// W vectors of channels of one row are added to the sums of the rows before.
template <int W, class Term>
HWY_INLINE void add_row(int64_t row, int64_t at, float* HWY_RESTRICT first,
                        float* HWY_RESTRICT second, const Term& term) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V a[W], b[W];
  for (int k = 0; k < W; ++k) {
    a[k] = hn::LoadU(d, first + at + k * lanes);
    b[k] = hn::LoadU(d, second + at + k * lanes);
  }
  for (int k = 0; k < W; ++k) term(row, at + k * lanes, a[k], b[k]);
  for (int k = 0; k < W; ++k) {
    hn::StoreU(a[k], d, first + at + k * lanes);
    hn::StoreU(b[k], d, second + at + k * lanes);
  }
}

// column_pairs for a term that reads several tensors, with the same bits. Four short vectors are no
// more than a cache line, and lines of several tensors that lie apart come slowly: then whole rows
// are read one after the other, and the sums rest in the first-level cache.
template <class Term>
HWY_INLINE int64_t row_pairs(int64_t rows, int64_t c, float* first, float* second,
                             const Term& term) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(F32())), whole = c / lanes * lanes;
  constexpr int64_t few_lines = 4;
  if (hn::MaxLanes(F32()) > 4 || c <= few_lines * 4 * lanes)
    return column_pairs(rows, c, first, second, term);
  std::fill_n(first, whole, 0.0f);
  std::fill_n(second, whole, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t at = 0;
    for (; at + 4 * lanes <= c; at += 4 * lanes) add_row<4>(row, at, first, second, term);
    for (; at < whole; at += lanes) add_row<1>(row, at, first, second, term);
  }
  return whole;
}

}  // namespace tessera::exec::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
