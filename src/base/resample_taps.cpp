#include "base/resample_taps.h"

#include <algorithm>
#include <cmath>

namespace tessera {

TapBounds::TapBounds(int from_, int to, Filter filter)
    : from(from_),
      scale(static_cast<double>(from_) / to),
      reach(std::max(1.0, scale) * (filter == Filter::bicubic ? 2.0 : 1.0)) {}

int TapBounds::begin(int i) const {
  return std::max(0, static_cast<int>(std::floor(center(i) - reach + 0.5)));
}
int TapBounds::end(int i) const {
  return std::min(from, static_cast<int>(std::floor(center(i) + reach + 0.5)));
}

double filter_weight(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::bilinear) return std::max(0.0, 1.0 - x);
  constexpr double a = -0.5;
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

bool make_taps(int from, int to, int begin, int size, Filter filter, Taps& taps) {
  if (taps.from == from && taps.to == to && taps.begin == begin && taps.filter == filter &&
      taps.first.size() == static_cast<std::size_t>(size))
    return true;
  const TapBounds bounds(from, to, filter);
  taps.from = from;
  taps.to = to;
  taps.begin = begin;
  taps.filter = filter;
  taps.count = 1;
  taps.first.resize(static_cast<std::size_t>(size));
  if (from == to) {
    for (int i = 0; i < size; ++i) taps.first[static_cast<std::size_t>(i)] = begin + i;
    taps.weights.assign(static_cast<std::size_t>(size), 1 << tap_bits);
    return false;
  }
  for (int i = begin; i < begin + size; ++i)
    taps.count = std::max(taps.count, bounds.end(i) - bounds.begin(i));
  taps.weights.assign(static_cast<std::size_t>(size) * taps.count, 0);
  thread_local std::vector<double> real;
  real.resize(static_cast<std::size_t>(taps.count));
  const double narrow = 1.0 / std::max(1.0, bounds.scale);
  for (int i = 0; i < size; ++i) {
    const double center = bounds.center(begin + i);
    const int first = bounds.begin(begin + i), count = bounds.end(begin + i) - first;
    double sum = 0;
    for (int k = 0; k < count; ++k)
      sum += real[static_cast<std::size_t>(k)] =
          filter_weight(filter, (first + k - center + 0.5) * narrow);
    const int from_here = taps.first[static_cast<std::size_t>(i)] =
        std::min(first, from - taps.count);
    std::int32_t* weights =
        &taps.weights[static_cast<std::size_t>(i) * taps.count + (first - from_here)];
    for (int k = 0; k < count; ++k) {
      // Away from zero at halves, as Pillow rounds.
      const double scaled = real[static_cast<std::size_t>(k)] / sum * (1 << tap_bits);
      weights[k] = static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    }
  }
  return false;
}

}  // namespace tessera
