#include "data/resample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace tessera::data {
namespace {

constexpr int precision = 22;        // bits of a weight: 8 for the pixel and 2 for the sum remain of 32
constexpr int lanes = 8;             // bytes that the pass across takes at once
constexpr std::size_t columns = 32;  // that the pass down keeps in registers
using Sums = std::array<std::int32_t, lanes>;

// Which source positions make one target position, and with which weights (they sum to 2^precision).
struct Taps {
  std::vector<int> first, count;
  std::vector<std::int32_t> weights;  // [target][stride], 0 behind `count`
  int stride = 0;
};

// Targets begin .. begin + size of `to`.
void triangle_taps(int from, int to, int begin, int size, Taps& taps) {
  const double scale = static_cast<double>(from) / to, reach = std::max(1.0, scale), narrow = 1.0 / reach;
  taps.stride = static_cast<int>(std::ceil(reach)) * 2 + 1;
  taps.first.resize(static_cast<std::size_t>(size));
  taps.count.resize(static_cast<std::size_t>(size));
  taps.weights.assign(static_cast<std::size_t>(size) * taps.stride, 0);
  thread_local std::vector<double> real;
  real.resize(static_cast<std::size_t>(taps.stride));
  for (int i = 0; i < size; ++i) {
    const double center = (begin + i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(center - reach + 0.5)), last = std::min(from, static_cast<int>(center + reach + 0.5));
    double sum = 0;
    for (int k = first; k < last; ++k)
      sum += real[static_cast<std::size_t>(k - first)] = std::max(0.0, 1.0 - std::abs((k - center + 0.5) * narrow));
    taps.first[static_cast<std::size_t>(i)] = first;
    taps.count[static_cast<std::size_t>(i)] = last - first;
    for (int k = 0; k < last - first; ++k)
      taps.weights[static_cast<std::size_t>(i) * taps.stride + k] =
          static_cast<std::int32_t>(0.5 + real[static_cast<std::size_t>(k)] / sum * (1 << precision));
  }
}

std::uint8_t rounded(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> precision, 0, 255)); }

// The taps of one target as the pass across wants them: groups of eight bytes of the source row, each byte with its weight.
struct Groups {
  int taps = 0;               // per group: as many whole pixels as eight bytes hold
  std::vector<int> count;     // [target]
  std::vector<Sums> weights;  // [target][most]
  int most = 0;
};

void group_taps(const Taps& taps, int c, Groups& groups) {
  const std::size_t targets = taps.first.size();
  groups.taps = lanes / c;
  groups.most = (taps.stride + groups.taps - 1) / groups.taps;
  groups.count.resize(targets);
  groups.weights.assign(targets * groups.most, Sums{});
  for (std::size_t i = 0; i < targets; ++i) {
    groups.count[i] = (taps.count[i] + groups.taps - 1) / groups.taps;
    for (int t = 0; t < taps.count[i]; ++t)
      for (int k = 0; k < c; ++k)
        groups.weights[i * groups.most + t / groups.taps][static_cast<std::size_t>(t % groups.taps) * c + k] =
            taps.weights[i * taps.stride + t];
  }
}

// `src` may be read up to seven bytes behind its last pixel; those bytes weigh 0.
template <int c>
void across(const std::uint8_t* __restrict__ src, const Taps& taps, const Groups& groups, std::uint8_t* __restrict__ dst) {
  constexpr int whole_taps = lanes / c;
  for (std::size_t i = 0; i < taps.first.size(); ++i) {
    const std::uint8_t* at = src + static_cast<std::size_t>(taps.first[i]) * c;
    const Sums* weights = &groups.weights[i * groups.most];
    Sums sums{};
    for (int g = 0; g < groups.count[i]; ++g, at += whole_taps * c)
      for (int j = 0; j < lanes; ++j) sums[j] += at[j] * weights[g][j];
    for (int k = 0; k < c; ++k) {
      std::int32_t sum = 1 << (precision - 1);
      for (int t = 0; t < whole_taps; ++t) sum += sums[t * c + k];
      *dst++ = rounded(sum);
    }
  }
}

void across_any(const std::uint8_t* src, const Taps& taps, int c, std::uint8_t* dst) {
  for (std::size_t i = 0; i < taps.first.size(); ++i)
    for (int k = 0; k < c; ++k) {
      std::int32_t sum = 1 << (precision - 1);
      const std::uint8_t* at = src + static_cast<std::size_t>(taps.first[i]) * c + k;
      for (int t = 0; t < taps.count[i]; ++t, at += c) sum += *at * taps.weights[i * taps.stride + t];
      *dst++ = rounded(sum);
    }
}

// `rows` is the top one of `count` rows of `row` bytes.
void down(const std::uint8_t* __restrict__ rows, std::size_t row, const std::int32_t* weights, int count, std::uint8_t* __restrict__ dst) {
  std::size_t i = 0;
  for (; i + columns <= row; i += columns) {
    std::int32_t sums[columns];
    std::fill_n(sums, columns, 1 << (precision - 1));
    for (int t = 0; t < count; ++t) {
      const std::uint8_t* at = rows + static_cast<std::size_t>(t) * row + i;
      for (std::size_t j = 0; j < columns; ++j) sums[j] += weights[t] * at[j];
    }
    for (std::size_t j = 0; j < columns; ++j) dst[i + j] = rounded(sums[j]);
  }
  for (; i < row; ++i) {
    std::int32_t sum = 1 << (precision - 1);
    for (int t = 0; t < count; ++t) sum += weights[t] * rows[static_cast<std::size_t>(t) * row + i];
    dst[i] = rounded(sum);
  }
}

struct Scratch {
  Taps across, down;
  Groups groups;
  std::vector<std::uint8_t> narrow, row;
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
    last = scratch.down.first.back() + scratch.down.count.back();
  }
  if (horizontal) {
    triangle_taps(from.w, width, window.left, window.w, scratch.across);
    if (c <= 4) group_taps(scratch.across, c, scratch.groups);
  }
  std::uint8_t* narrow = out.pixels.data();
  if (vertical) {
    scratch.narrow.resize(static_cast<std::size_t>(last - first) * row);
    narrow = scratch.narrow.data();
  }
  const std::uint8_t* end = image.pixels.data() + image.pixels.size();
  for (int y = first; y < last; ++y) {
    const std::uint8_t* src = image.at(from.top + y, from.left);
    std::uint8_t* dst = narrow + static_cast<std::size_t>(y - first) * row;
    if (!horizontal) {
      std::memcpy(dst, src + static_cast<std::size_t>(window.left) * c, row);
      continue;
    }
    const std::size_t bytes = static_cast<std::size_t>(from.w) * c;
    if (end - src < static_cast<std::ptrdiff_t>(bytes + lanes)) {  // the end of the image: make room to read behind it
      scratch.row.assign(bytes + lanes, 0);
      std::memcpy(scratch.row.data(), src, bytes);
      src = scratch.row.data();
    }
    switch (c) {
      case 1:
        across<1>(src, scratch.across, scratch.groups, dst);
        break;
      case 2:
        across<2>(src, scratch.across, scratch.groups, dst);
        break;
      case 3:
        across<3>(src, scratch.across, scratch.groups, dst);
        break;
      case 4:
        across<4>(src, scratch.across, scratch.groups, dst);
        break;
      default:
        across_any(src, scratch.across, c, dst);
    }
  }
  if (!vertical) return;
  for (int y = 0; y < window.h; ++y) {
    const std::size_t i = static_cast<std::size_t>(y);
    down(narrow + static_cast<std::size_t>(scratch.down.first[i] - first) * row, row, &scratch.down.weights[i * scratch.down.stride],
         scratch.down.count[i], out.at(y, 0));
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
