// Resizing, written so that a decoder stays the slow part: down first, a whole row at a time, then across, a whole pixel at a time.
// Convention: fractions are kept in between, so that only the last step rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "data/image.h"

namespace tessera::data {
namespace {

// Which source positions make each target position, and with which weights (they sum to 1): `count` of them from first[i] on, some 0, so
// that every target has equally many.
struct Taps {
  int from = 0, to = 0, count = 0;
  std::vector<int> first;
  std::vector<float> weights;       // [to][count]
  std::vector<std::uint8_t> parts;  // the same in 255ths, for few taps
};

// Up to so many taps the rows are summed in 16 bits: weights in 255ths are off by less than a five-hundredth, which moves a sharp edge by
// less than one grey level. More taps have smaller weights and take floats.
constexpr int few = 4;

// Whole 255ths that sum to 255: rounded down, and what is missing goes where most was cut off.
void in_parts(const float* weights, int count, std::uint8_t* parts) {
  int missing = 255;
  float cut[few];
  for (int t = 0; t < count; ++t) {
    const float exact = weights[t] * 255;
    parts[t] = static_cast<std::uint8_t>(exact);
    cut[t] = exact - static_cast<float>(parts[t]);
    missing -= parts[t];
  }
  for (; missing > 0; --missing) {
    const auto most = std::max_element(cut, cut + count) - cut;
    ++parts[most];
    cut[most] -= 1;
  }
}

void make_taps(int from, int to, Taps& taps) {
  if (taps.from == from && taps.to == to) return;  // images of one size come in rows
  const double scale = static_cast<double>(from) / to, reach = std::max(1.0, scale);
  taps.from = from, taps.to = to;
  taps.count = std::min(from, static_cast<int>(std::ceil(2 * reach)));
  taps.first.assign(static_cast<std::size_t>(to), 0);
  taps.weights.assign(static_cast<std::size_t>(to) * taps.count, 0.0f);
  taps.parts.assign(taps.weights.size(), 0);
  for (int i = 0; i < to; ++i) {
    // Pixel k is nearer than `reach`; those are at most ceil(2 reach) in a row.
    const double center = (i + 0.5) * scale;
    const int first = std::clamp(static_cast<int>(std::floor(center - reach - 0.5)) + 1, 0, from - taps.count);
    float* weights = &taps.weights[static_cast<std::size_t>(i) * taps.count];
    double sum = 0;
    const auto weight = [&](int t) { return std::max(0.0, 1.0 - std::abs((first + t + 0.5 - center) / reach)); };
    for (int t = 0; t < taps.count; ++t) sum += weight(t);
    for (int t = 0; t < taps.count; ++t) weights[t] = static_cast<float>(weight(t) / sum);
    taps.first[static_cast<std::size_t>(i)] = first;
    if (taps.count <= few) in_parts(weights, taps.count, &taps.parts[static_cast<std::size_t>(i) * taps.count]);
  }
}

constexpr int strip = 4;  // target rows that are made together

struct Scratch {
  Taps across, down;
  std::vector<float> rows;   // [strip][source width x channels, and 4 more to read past the end]
  std::vector<float> lines;  // [strip][target width x channels, and 4 more]
};

// Calls body with the number of taps as a constant where it is one of the usual ones, so that its loops unroll.
template <class Body>
void with_count(int count, Body&& body) {
  static_assert(few == 4);
  switch (count) {
    case 1:
      return body(std::integral_constant<int, 1>{});
    case 2:
      return body(std::integral_constant<int, 2>{});
    case 3:
      return body(std::integral_constant<int, 3>{});
    case 4:
      return body(std::integral_constant<int, 4>{});
    default:
      return body(count);
  }
}

// One target row, as wide as the source, in 255ths.
template <class Count>
void squeeze_down(const Image& image, const Box& box, const Taps& taps, int y, Count count, float* __restrict__ row) {
  const std::size_t n = static_cast<std::size_t>(box.w) * image.c, pitch = static_cast<std::size_t>(image.w) * image.c;
  const std::uint8_t* __restrict__ src = image.at(box.top + taps.first[static_cast<std::size_t>(y)], box.left);
  if constexpr (std::is_same_v<Count, int>) {
    const float* __restrict__ weights = &taps.weights[static_cast<std::size_t>(y) * taps.count];
    std::fill(row, row + n, 0.0f);
    for (int t = 0; t < count; ++t, src += pitch)
      for (std::size_t i = 0; i < n; ++i) row[i] += 255 * weights[t] * src[i];
  } else {
    std::uint8_t parts[Count::value];
    std::copy_n(&taps.parts[static_cast<std::size_t>(y) * taps.count], Count::value, parts);
    for (std::size_t i = 0; i < n; ++i) {
      std::uint16_t sum = 0;  // at most 255 x 255
      for (int t = 0; t < count; ++t) sum = static_cast<std::uint16_t>(sum + parts[t] * src[t * pitch + i]);
      row[i] = sum;
    }
  }
}

typedef float Four __attribute__((vector_size(16)));

// A strip of target rows into `lines`. Up to four channels at once: four values a pixel are read and written, of which those past the
// channels belong to the next ones, which come after.
template <class Count>
void squeeze_across(const float* rows, std::size_t pitch, const Taps& taps, int channels, Count count, float* lines, std::size_t line) {
  const float* weights = taps.weights.data();
  const int* first = taps.first.data();
  const auto c = static_cast<std::size_t>(channels), to = static_cast<std::size_t>(taps.to), step = static_cast<std::size_t>(taps.count);
  for (std::size_t x = 0; x < to; ++x, weights += step) {
    const float* src = rows + static_cast<std::size_t>(first[x]) * c;
    Four sums[strip] = {};
    for (int t = 0; t < count; ++t, src += c)
      for (std::size_t r = 0; r < strip; ++r) {
        Four value;
        std::memcpy(&value, src + r * pitch, sizeof(value));
        sums[r] += weights[t] * value;
      }
    for (std::size_t r = 0; r < strip; ++r) std::memcpy(lines + r * line + x * c, &sums[r], sizeof(Four));
  }
}

// Any number of channels, one at a time.
void squeeze_across_many(const float* row, const Taps& taps, int c, float* line) {
  const float* weights = taps.weights.data();
  for (int x = 0; x < taps.to; ++x, weights += taps.count) {
    const float* src = row + static_cast<std::size_t>(taps.first[static_cast<std::size_t>(x)]) * c;
    for (int k = 0; k < c; ++k) {
      float sum = 0;
      for (int t = 0; t < taps.count; ++t) sum += weights[t] * src[static_cast<std::size_t>(t) * c + k];
      *line++ = sum;
    }
  }
}

// From 255ths. Weights are never negative and sum to 1, so that a value is 0 to 255 but for a rounding error, which the half absorbs.
void round_line(const float* __restrict__ line, std::size_t n, std::uint8_t* __restrict__ out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::uint8_t>(static_cast<std::int32_t>(line[i] * (1.0f / 255) + 0.5f));
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
  const std::size_t pitch = static_cast<std::size_t>(box.w) * image.c + 4, n = static_cast<std::size_t>(width) * image.c, line = n + 4;
  scratch.rows.resize(strip * pitch);
  scratch.lines.resize(strip * line);
  float *rows = scratch.rows.data(), *lines = scratch.lines.data();
  for (int y = 0; y < height; y += strip) {
    const int used = std::min(strip, height - y);
    with_count(scratch.down.count, [&](auto count) {
      for (int r = 0; r < used; ++r) squeeze_down(image, box, scratch.down, y + r, count, rows + r * pitch);
    });
    if (image.c <= 4)
      with_count(scratch.across.count, [&](auto count) { squeeze_across(rows, pitch, scratch.across, image.c, count, lines, line); });
    else
      for (int r = 0; r < used; ++r) squeeze_across_many(rows + r * pitch, scratch.across, image.c, lines + r * line);
    for (int r = 0; r < used; ++r) round_line(lines + r * line, n, out.at(y + r, 0));
  }
}

}  // namespace tessera::data
