// Pillow's filters: which source positions make a target position, and with which weights.
#pragma once

#include <algorithm>
#include <cmath>

#include "data/resample.h"

namespace tessera::data {

// The source positions begin .. end that make target i.
struct Bounds {
  int from;
  double scale, reach;
  Bounds(int from_, int to, Filter filter)
      : from(from_),
        scale(static_cast<double>(from_) / to),
        reach(std::max(1.0, scale) * (filter == Filter::bicubic ? 2.0 : 1.0)) {}
  double center(int i) const { return (i + 0.5) * scale; }
  int begin(int i) const {
    return std::max(0, static_cast<int>(std::floor(center(i) - reach + 0.5)));
  }
  int end(int i) const {
    return std::min(from, static_cast<int>(std::floor(center(i) + reach + 0.5)));
  }
};

// The triangle, and Keys's cubic with a = -1/2.
inline double filter_weight(Filter filter, double x) {
  x = std::abs(x);
  if (filter == Filter::bilinear) return std::max(0.0, 1.0 - x);
  constexpr double a = -0.5;
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

}  // namespace tessera::data
