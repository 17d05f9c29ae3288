// How a row of pixels becomes one of another length, as Pillow does it: which source positions make
// a target position, and with which weights. The loader and every device that resizes take their
// weights from here, so that they move the same bits.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

enum class Filter : std::uint8_t { bilinear, bicubic };

// The source positions begin .. end that make target i.
struct TapBounds {
  int from;
  double scale, reach;
  TapBounds(int from, int to, Filter filter);
  double center(int i) const { return (i + 0.5) * scale; }
  int begin(int i) const;
  int end(int i) const;
};

// The triangle, and Keys's cubic with a = -1/2.
double filter_weight(Filter filter, double x);

constexpr int tap_bits = 22;  // of a weight: 8 for the pixel and 2 for the sum remain of 32
constexpr std::int32_t tap_half = 1 << (tap_bits - 1);

// Weights sum to 2^tap_bits, give or take the rounding.
struct Taps {
  int from = 0, to = 0, begin = 0;  // targets begin .. begin + first.size() of `to`
  Filter filter = Filter::bilinear;
  int count = 0;           // of every target; 0 weighs what a target does not need
  std::vector<int> first;  // source positions first[i] .. first[i] + count lie in the source
  std::vector<std::int32_t> weights;  // [target][count]
  int reads_from() const { return first.front(); }
  int reads_to() const { return first.back() + count; }
};

// `size` targets of `to` from `begin` on. True: `taps` were these already.
bool make_taps(int from, int to, int begin, int size, Filter filter, Taps& taps);

}  // namespace tessera
