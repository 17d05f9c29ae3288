// Resizing, written so that a decoder stays the slow part: down first, a whole row at a time, then across, a whole pixel at a time.
// Convention: fractions are kept in between, so that only the last step rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "data/image.h"

namespace tessera::data {
namespace {

// Which source positions make each target position, and with which weights (they sum to 1): `count` of them from first[i] on, some 0 at an
// edge, so that every target has equally many.
struct Taps {
  int from = 0, to = 0, count = 0;
  std::vector<int> first;
  std::vector<float> weights;  // [to][count]
};

void make_taps(int from, int to, Taps& taps) {
  if (taps.from == from && taps.to == to) return;  // images of one size come in rows
  const double scale = static_cast<double>(from) / to, reach = std::max(1.0, scale);
  taps.from = from, taps.to = to;
  taps.count = std::min(from, static_cast<int>(2 * reach) + 2);
  taps.first.assign(static_cast<std::size_t>(to), 0);
  taps.weights.assign(static_cast<std::size_t>(to) * taps.count, 0.0f);
  for (int i = 0; i < to; ++i) {
    const double center = (i + 0.5) * scale;
    const int begin = std::max(0, static_cast<int>(center - reach + 0.5)), end = std::min(from, static_cast<int>(center + reach + 0.5));
    const int first = std::min(begin, from - taps.count);
    const auto weight = [&](int k) { return std::max(0.0, 1.0 - std::abs((k + 0.5 - center) / reach)); };
    double sum = 0;
    for (int k = begin; k < end; ++k) sum += weight(k);
    taps.first[static_cast<std::size_t>(i)] = first;
    for (int k = begin; k < end; ++k)
      taps.weights[static_cast<std::size_t>(i) * taps.count + (k - first)] = static_cast<float>(weight(k) / sum);
  }
}

struct Scratch {
  Taps across, down;
  std::vector<float> row;  // one target row before it is squeezed: [source width][channels], and 4 more to read past the end
};

std::uint8_t rounded(float value) { return static_cast<std::uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f)); }

void squeeze_down(const Image& image, const Box& box, const Taps& taps, int y, std::vector<float>& row) {
  const std::size_t n = static_cast<std::size_t>(box.w) * image.c;
  const float* weights = &taps.weights[static_cast<std::size_t>(y) * taps.count];
  float* __restrict__ sums = row.data();
  bool fresh = true;
  for (int t = 0; t < taps.count; ++t) {
    const float weight = weights[t];
    if (weight == 0) continue;
    const std::uint8_t* __restrict__ src = image.at(box.top + taps.first[static_cast<std::size_t>(y)] + t, box.left);
    if (fresh)
      for (std::size_t i = 0; i < n; ++i) sums[i] = weight * src[i];
    else
      for (std::size_t i = 0; i < n; ++i) sums[i] += weight * src[i];
    fresh = false;
  }
}

// Up to four channels at once: reads four values a pixel, of which those past `c` belong to the next one and are dropped.
void squeeze_across(const std::vector<float>& row, const Taps& taps, int c, std::uint8_t* out) {
  typedef float Four __attribute__((vector_size(16)));
  const float* weights = taps.weights.data();
  for (int x = 0; x < taps.to; ++x, weights += taps.count) {
    const float* src = row.data() + static_cast<std::size_t>(taps.first[static_cast<std::size_t>(x)]) * c;
    std::uint8_t* dst = out + static_cast<std::size_t>(x) * c;
    if (c <= 4) {
      Four sum = {};
      for (int t = 0; t < taps.count; ++t) {
        Four value;
        std::memcpy(&value, src + static_cast<std::size_t>(t) * c, sizeof(value));
        sum += weights[t] * value;
      }
      for (int k = 0; k < c; ++k) dst[k] = rounded(sum[k]);
    } else {
      for (int k = 0; k < c; ++k) {
        float sum = 0;
        for (int t = 0; t < taps.count; ++t) sum += weights[t] * src[static_cast<std::size_t>(t) * c + k];
        dst[k] = rounded(sum);
      }
    }
  }
}

}  // namespace

Image resize_bilinear(const Image& image, int height, int width) {
  Image out;
  resize_bilinear(image, {0, 0, image.h, image.w}, height, width, out);
  return out;
}

void resize_bilinear(const Image& image, const Box& box, int height, int width, Image& out) {
  CHECK(box.top >= 0 && box.left >= 0 && box.h > 0 && box.w > 0 && box.top + box.h <= image.h && box.left + box.w <= image.w,
        fmt::format("part {} x {} at {}, {} of an image of {} x {}", box.h, box.w, box.top, box.left, image.h, image.w));
  CHECK(&image != &out, "an image is not resized onto itself");
  out.reshape(height, width, image.c);
  if (box.h == height && box.w == width) {
    for (int y = 0; y < height; ++y) std::memcpy(out.at(y, 0), image.at(box.top + y, box.left), static_cast<std::size_t>(width) * image.c);
    return;
  }
  thread_local Scratch scratch;
  make_taps(box.w, width, scratch.across);
  make_taps(box.h, height, scratch.down);
  scratch.row.resize(static_cast<std::size_t>(box.w) * image.c + 4);
  for (int y = 0; y < height; ++y) {
    squeeze_down(image, box, scratch.down, y, scratch.row);
    squeeze_across(scratch.row, scratch.across, image.c, out.at(y, 0));
  }
}

}  // namespace tessera::data
