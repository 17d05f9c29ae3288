#include "data/resample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tessera::data {
namespace {

constexpr int precision = 22;  // bits of a weight: 8 for the pixel and 2 for the sum remain of 32
constexpr std::int32_t half = 1 << (precision - 1);
typedef std::int32_t Four __attribute__((vector_size(16)));
constexpr std::size_t slack = 4;  // values that the pass across may read or write behind a row

// Which source positions make one target position, and with which weights (they sum to 2^precision, give or take the rounding).
struct Taps {
  std::vector<int> first;
  std::vector<std::int32_t> weights;  // [target][count]; 0 where a target needs fewer
  int count = 0;
};

// Targets begin .. begin + size of `to`.
void triangle_taps(int from, int to, int begin, int size, Taps& taps) {
  const double scale = static_cast<double>(from) / to, reach = std::max(1.0, scale), narrow = 1.0 / reach;
  const auto bounds = [&](int i) {
    const double center = (begin + i + 0.5) * scale;
    return std::pair{std::max(0, static_cast<int>(center - reach + 0.5)), std::min(from, static_cast<int>(center + reach + 0.5))};
  };
  taps.count = 1;
  for (int i = 0; i < size; ++i) taps.count = std::max(taps.count, bounds(i).second - bounds(i).first);
  taps.first.resize(static_cast<std::size_t>(size));
  taps.weights.assign(static_cast<std::size_t>(size) * taps.count, 0);
  thread_local std::vector<double> real;
  real.resize(static_cast<std::size_t>(taps.count));
  for (int i = 0; i < size; ++i) {
    const double center = (begin + i + 0.5) * scale;
    const auto [first, last] = bounds(i);
    double sum = 0;
    for (int k = first; k < last; ++k)
      sum += real[static_cast<std::size_t>(k - first)] = std::max(0.0, 1.0 - std::abs((k - center + 0.5) * narrow));
    taps.first[static_cast<std::size_t>(i)] = std::min(first, from - taps.count);  // what weighs nothing lies inside, too
    std::int32_t* weights = &taps.weights[static_cast<std::size_t>(i) * taps.count + (first - taps.first[static_cast<std::size_t>(i)])];
    for (int k = 0; k < last - first; ++k)
      weights[k] = static_cast<std::int32_t>(0.5 + real[static_cast<std::size_t>(k)] / sum * (1 << precision));
  }
}

// Weights are not negative and make at most 255.5 of 255: nothing to clamp.
std::uint8_t rounded(std::int32_t sum) { return static_cast<std::uint8_t>(sum >> precision); }

// Up to four channels at once: reads and writes four values a pixel, of which those past `c` belong to the next one, which comes later.
// `known`: the number of taps where it is worth its own loop, or 0.
template <int known>
void across(const std::int32_t* src, const Taps& taps, int c, std::int32_t* sums) {
  const int count = known > 0 ? known : taps.count;
  const std::int32_t* weights = taps.weights.data();
  for (const int first : taps.first) {
    const std::int32_t* at = src + static_cast<std::ptrdiff_t>(first) * c;
    Four sum = {half, half, half, half};
    for (int t = 0; t < count; ++t, at += c) {
      Four value;
      std::memcpy(&value, at, sizeof(value));
      sum += weights[t] * value;
    }
    std::memcpy(sums, &sum, sizeof(sum));
    weights += count;
    sums += c;
  }
}

void across_any(const std::int32_t* src, const Taps& taps, int c, std::int32_t* sums) {
  for (std::size_t i = 0; i < taps.first.size(); ++i)
    for (int k = 0; k < c; ++k) {
      std::int32_t sum = half;
      const std::int32_t* at = src + static_cast<std::ptrdiff_t>(taps.first[i]) * c + k;
      for (int t = 0; t < taps.count; ++t, at += c) sum += *at * taps.weights[i * static_cast<std::size_t>(taps.count) + t];
      *sums++ = sum;
    }
}

struct Row {
  std::vector<std::int32_t> wide, sums;
};

void widen(const std::uint8_t* __restrict__ src, std::size_t values, std::int32_t* __restrict__ dst) {
  for (std::size_t i = 0; i < values; ++i) dst[i] = src[i];
}
void narrow(const std::int32_t* __restrict__ src, std::size_t values, std::uint8_t* __restrict__ dst) {
  for (std::size_t i = 0; i < values; ++i) dst[i] = rounded(src[i]);
}

void across_row(const std::uint8_t* src, std::size_t values, const Taps& taps, int c, Row& row, std::uint8_t* dst) {
  std::int32_t* wide = row.wide.data();
  widen(src, values, wide);
  std::int32_t* sums = row.sums.data();
  if (c > 4)
    across_any(wide, taps, c, sums);
  else if (taps.count == 2)
    across<2>(wide, taps, c, sums);
  else if (taps.count == 3)
    across<3>(wide, taps, c, sums);
  else if (taps.count == 4)
    across<4>(wide, taps, c, sums);
  else
    across<0>(wide, taps, c, sums);
  narrow(sums, taps.first.size() * c, dst);
}

// `rows` is the top one of `count` rows of `row` bytes. A known count lets the compiler run along the row with all sums in registers.
template <int count>
void down(const std::uint8_t* __restrict__ rows, std::size_t row, const std::int32_t* weights, std::uint8_t* __restrict__ dst) {
  std::int32_t w[count];
  std::copy_n(weights, count, w);
  for (std::size_t i = 0; i < row; ++i) {
    std::int32_t sum = half;
    for (int t = 0; t < count; ++t) sum += w[t] * rows[static_cast<std::size_t>(t) * row + i];
    dst[i] = rounded(sum);
  }
}

void down_any(const std::uint8_t* rows, std::size_t row, const std::int32_t* weights, int count, std::int32_t* __restrict__ sums,
              std::uint8_t* dst) {
  std::fill_n(sums, row, half);
  for (int t = 0; t < count; ++t) {
    const std::uint8_t* __restrict__ at = rows + static_cast<std::size_t>(t) * row;
    for (std::size_t i = 0; i < row; ++i) sums[i] += weights[t] * at[i];
  }
  narrow(sums, row, dst);
}

struct Scratch {
  Taps across, down;
  Row row;
  std::vector<std::uint8_t> narrow;
};

// Where torchvision's centre crop begins: an odd rest is split so that the offset is even.
int center_offset(int size, int part) { return static_cast<int>(std::nearbyint((size - part) / 2.0)); }

}  // namespace

void shape(Image& image, int height, int width, int channels) {
  CHECK(height > 0 && width > 0 && channels > 0, fmt::format("image of {} x {} x {}", height, width, channels));
  image.h = height, image.w = width, image.c = channels;
  image.pixels.resize(static_cast<std::size_t>(height) * width * channels);
}

void resample(const Image& image, const Region& from, int height, int width, const Region& window, Image& out) {
  CHECK(&image != &out, "an image is not resampled onto itself");
  CHECK(from.top >= 0 && from.left >= 0 && from.h > 0 && from.w > 0 && from.top + from.h <= image.h && from.left + from.w <= image.w,
        fmt::format("part {} x {} at {}, {} of an image of {} x {}", from.h, from.w, from.top, from.left, image.h, image.w));
  CHECK(window.top >= 0 && window.left >= 0 && window.top + window.h <= height && window.left + window.w <= width,
        fmt::format("window {} x {} at {}, {} of {} x {}", window.h, window.w, window.top, window.left, height, width));
  const int c = image.c;
  shape(out, window.h, window.w, c);
  const std::size_t row = static_cast<std::size_t>(window.w) * c;
  thread_local Scratch scratch;

  // The rows that the pass down will read.
  const bool vertical = from.h != height, horizontal = from.w != width;
  int first = window.top, last = window.top + window.h;
  if (vertical) {
    triangle_taps(from.h, height, window.top, window.h, scratch.down);
    first = scratch.down.first.front();
    last = scratch.down.first.back() + scratch.down.count;
  }
  const std::size_t values = static_cast<std::size_t>(from.w) * c;
  if (horizontal) {
    triangle_taps(from.w, width, window.left, window.w, scratch.across);
    scratch.row.wide.resize(values + slack);
  }
  scratch.row.sums.resize(row + slack);
  std::uint8_t* rows = out.pixels.data();
  if (vertical) {
    scratch.narrow.resize(static_cast<std::size_t>(last - first) * row);
    rows = scratch.narrow.data();
  }
  for (int y = first; y < last; ++y) {
    const std::uint8_t* src = image.at(from.top + y, from.left);
    std::uint8_t* dst = rows + static_cast<std::size_t>(y - first) * row;
    if (horizontal)
      across_row(src, values, scratch.across, c, scratch.row, dst);
    else
      std::memcpy(dst, src + static_cast<std::size_t>(window.left) * c, row);
  }
  if (!vertical) return;
  for (int y = 0; y < window.h; ++y) {
    const std::size_t i = static_cast<std::size_t>(y);
    const std::uint8_t* top = rows + static_cast<std::size_t>(scratch.down.first[i] - first) * row;
    const std::int32_t* weights = &scratch.down.weights[i * scratch.down.count];
    switch (scratch.down.count) {
      case 2:
        down<2>(top, row, weights, out.at(y, 0));
        break;
      case 3:
        down<3>(top, row, weights, out.at(y, 0));
        break;
      case 4:
        down<4>(top, row, weights, out.at(y, 0));
        break;
      default:
        down_any(top, row, weights, scratch.down.count, scratch.row.sums.data(), out.at(y, 0));
    }
  }
}

void resample_center(const Image& image, int cover_h, int cover_w, int height, int width, Image& out) {
  CHECK(cover_h >= height && cover_w >= width, fmt::format("{} x {} does not cover {} x {}", cover_h, cover_w, height, width));
  // The tighter side becomes exactly what was asked; the other one follows, rounded down as torchvision does.
  int tall = cover_h, wide = cover_w;
  const std::int64_t by_height = static_cast<std::int64_t>(image.w) * cover_h, by_width = static_cast<std::int64_t>(image.h) * cover_w;
  if (by_height > by_width)
    wide = static_cast<int>(by_height / image.h);
  else
    tall = static_cast<int>(by_width / image.w);
  resample(image, whole(image), tall, wide, {center_offset(tall, height), center_offset(wide, width), height, width}, out);
}

}  // namespace tessera::data
