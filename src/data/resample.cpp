#include "data/resample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "data/resample_dot.h"

namespace tessera::data {
namespace {

constexpr int precision = tap_bits;
constexpr std::int32_t half = tap_half;
typedef std::int32_t Four __attribute__((vector_size(16)));
constexpr std::size_t slack = 8;  // values that the pass across may read or write behind a row
constexpr int strip =
    4;  // source rows that are squeezed together, so that a weight is loaded once for all

// Calls body with the number of taps as a constant where it is one of the usual ones, so that its
// loops unroll; else with 0.
template <class Body>
void with_count(int count, Body&& body) {
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
      return body(std::integral_constant<int, 0>{});
  }
}

void widen(const std::uint8_t* __restrict__ src, std::size_t values,
           std::int32_t* __restrict__ dst) {
  for (std::size_t i = 0; i < values; ++i) dst[i] = src[i];
}

// A strip of source rows, `pitch` values apart, into rows of `line`. Weights are not negative and
// make at most 255.5 of 255, so that there is nothing to clamp. Up to four channels at once: reads
// and writes four values a pixel, of which those past `c` belong to the next one, which comes
// later.
template <int known>
void squeeze_across(const std::int32_t* src, std::size_t pitch, const Taps& taps, int c,
                    std::int32_t* dst, std::size_t line) {
  const int count = known > 0 ? known : taps.count;
  const std::int32_t* weights = taps.weights.data();
  const int origin = taps.reads_from();
  for (const int first : taps.first) {
    const std::int32_t* at = src + static_cast<std::ptrdiff_t>(first - origin) * c;
    Four sums[strip];
    for (Four& sum : sums) sum = Four{half, half, half, half};
    for (int t = 0; t < count; ++t, at += c) {
      if (known > 2 && t == known - 1 && weights[t] == 0) break;
      for (std::size_t r = 0; r < strip; ++r) {
        Four value;
        std::memcpy(&value, at + r * pitch, sizeof(value));
        sums[r] += weights[t] * value;
      }
    }
    for (std::size_t r = 0; r < strip; ++r) {
      const Four rounded = sums[r] >> precision;
      std::memcpy(dst + r * line, &rounded, sizeof(rounded));
    }
    weights += count;
    dst += c;
  }
}

// Any number of channels, one at a time.
void squeeze_across_many(const std::int32_t* src, std::size_t pitch, const Taps& taps, int c,
                         std::int32_t* dst, std::size_t line) {
  for (std::size_t r = 0; r < strip; ++r, src += pitch) {
    std::int32_t* out = dst + r * line;
    for (std::size_t i = 0; i < taps.first.size(); ++i)
      for (int k = 0; k < c; ++k) {
        std::int32_t sum = half;
        const std::int32_t* at =
            src + static_cast<std::ptrdiff_t>(taps.first[i] - taps.reads_from()) * c + k;
        for (int t = 0; t < taps.count; ++t, at += c)
          sum += *at * taps.weights[i * static_cast<std::size_t>(taps.count) + t];
        *out++ = sum >> precision;
      }
  }
}

// The overshoot of a cubic filter is cut off after each pass, as Pillow does.
std::int32_t as_byte(std::int32_t sum) {
  return std::clamp(sum >> precision, std::int32_t{0}, std::int32_t{255});
}

template <class Row>
void squeeze_down_cut(const Row& row, const std::int32_t* weights, int count, std::size_t values,
                      std::uint8_t* dst) {
  for (std::size_t i = 0; i < values; ++i) {
    std::int32_t sum = half;
    for (int t = 0; t < count; ++t) sum += weights[t] * row(t)[i];
    dst[i] = static_cast<std::uint8_t>(as_byte(sum));
  }
}

// One target row from the rows that row(0), row(1), ... point to.
template <int known, class Row>
void squeeze_down(const Row& row, const std::int32_t* weights, int count, std::size_t values,
                  std::int32_t* __restrict__ sums, std::uint8_t* __restrict__ dst) {
  if constexpr (known > 0) {
    const std::int32_t* rows[known];
    std::int32_t w[known];
    for (int t = 0; t < known; ++t) {
      rows[t] = row(t);
      w[t] = weights[t];
    }
    for (std::size_t i = 0; i < values; ++i) {
      std::int32_t sum = half;
      for (int t = 0; t < known; ++t) sum += w[t] * rows[t][i];
      dst[i] = static_cast<std::uint8_t>(sum >> precision);
    }
  } else {
    std::fill_n(sums, values, half);
    for (int t = 0; t < count; ++t) {
      const std::int32_t* __restrict__ at = row(t);
      for (std::size_t i = 0; i < values; ++i) sums[i] += weights[t] * at[i];
    }
    for (std::size_t i = 0; i < values; ++i)
      dst[i] = static_cast<std::uint8_t>(sums[i] >> precision);
  }
}

// The pass across as lookups. Good for the taps, channels and bytes of a row it was made for.
struct Lookups {
  int quads = 0, reach = 0, c = 0;
  int bytes = 0;                     // of a source row, counted from the first pixel that is read
  std::size_t groups = 0;            // of four values each, an even number
  std::vector<dot::Lookup> lookups;  // [four values][quad]
  std::vector<std::int32_t> at;
};

// False where a lookup does not reach so far, or not inside of the row.
bool make_lookups(const Taps& taps, int c, int bytes, int reach, Lookups& made) {
  constexpr int lanes = 4;
  made.quads = (taps.count + dot::quad - 1) / dot::quad;
  made.reach = reach;
  made.c = c;
  made.bytes = bytes;
  if (c > lanes || bytes < reach) return false;
  const int values = static_cast<int>(taps.first.size()) * c;
  made.groups = static_cast<std::size_t>((values + 2 * lanes - 1) / (2 * lanes) * 2);
  made.lookups.assign(made.groups * made.quads, {});
  made.at.assign(made.lookups.size(), 0);
  std::size_t place = 0;
  for (int begin = 0; begin < values; begin += lanes)
    for (int q = 0; q < made.quads; ++q, ++place) {
      dot::Lookup& lookup = made.lookups[place];
      const auto byte_of = [&](int value, int tap) {
        return (taps.first[static_cast<std::size_t>(value / c)] - taps.reads_from() + tap) * c +
               value % c;
      };
      // From the leftmost byte on (of a later value where many come from one pixel), or before it
      // where the row would end.
      const int filled = std::min(lanes, values - begin),
                used = std::min(dot::quad, taps.count - q * dot::quad);
      int at = bytes - reach;
      for (int lane = 0; lane < filled; ++lane)
        at = std::min(at, byte_of(begin + lane, q * dot::quad));
      made.at[place] = at;
      for (int lane = 0; lane < filled; ++lane) {
        const std::int32_t* weights =
            &taps.weights[static_cast<std::size_t>((begin + lane) / c) * taps.count +
                          q * dot::quad];
        const int first = byte_of(begin + lane, q * dot::quad) - at;
        for (int t = 0; t < used; ++t) {
          if (weights[t] == 0) continue;  // 0 times whatever byte lies there
          if (first + t * c >= reach) return false;
          lookup.from[lane * dot::quad + t] = static_cast<std::uint8_t>(first + t * c);
          for (int d = 0; d < dot::digits; ++d)
            lookup.digit[d][lane * dot::quad + t] =
                static_cast<std::uint8_t>(weights[t] >> (8 * d));
        }
      }
    }
  return true;
}

struct ResizeScratch {
  Taps across, down;
  Lookups lookups;
  bool by_bytes = false;           // the pass across can be done by lookups
  std::vector<std::int32_t> wide;  // [strip][source values and slack]
  std::vector<std::int32_t> ring;  // the last rows that were squeezed across, each of `line` values
  std::vector<std::int32_t> sums;
};

// Where torchvision's centre crop begins: an odd rest is split so that the offset is even.
int center_offset(int size, int part) {
  return static_cast<int>(std::nearbyint((size - part) / 2.0));
}

}  // namespace

void resample(const Image& image, const Resampling& how, Image& out) {
  const auto& [from, height, width, window, filter] = how;
  const bool cut = filter == Filter::bicubic;
  CHECK(&image != &out, "an image is not resampled onto itself");
  CHECK(from.top >= 0 && from.left >= 0 && from.h > 0 && from.w > 0 &&
            from.top + from.h <= image.h && from.left + from.w <= image.w,
        fmt::format("part {} x {} at {}, {} of an image of {} x {}", from.h, from.w, from.top,
                    from.left, image.h, image.w));
  CHECK(window.top >= 0 && window.left >= 0 && window.top + window.h <= height &&
            window.left + window.w <= width,
        fmt::format("window {} x {} at {}, {} of {} x {}", window.h, window.w, window.top,
                    window.left, height, width));
  out.reshape(window.h, window.w, image.c);
  thread_local ResizeScratch s;
  static const bool has_dot = dot::available();
  const bool same = make_taps(from.w, width, window.left, window.w, filter, s.across);
  make_taps(from.h, height, window.top, window.h, filter, s.down);
  const int c = image.c, first = s.down.reads_from(), last = s.down.reads_to(),
            left = from.left + s.across.reads_from();
  if (const int bytes = (image.w - left) * c; !same || s.lookups.c != c || s.lookups.bytes != bytes)
    s.by_bytes = has_dot && !cut &&
                 (make_lookups(s.across, c, bytes, 16, s.lookups) ||
                  make_lookups(s.across, c, bytes, 32, s.lookups));
  const std::size_t values =
                        static_cast<std::size_t>(s.across.reads_to() - s.across.reads_from()) * c,
                    pitch = values + slack;
  const std::size_t row = static_cast<std::size_t>(window.w) * c, line = row + slack;
  const int held =
      (s.down.count + 2 * strip - 1) / strip * strip;  // rows of the ring: whole strips
  s.wide.resize(s.by_bytes ? 0 : strip * pitch);
  s.ring.resize(static_cast<std::size_t>(held) * line);
  s.sums.resize(row);
  const auto in_ring = [&](int y) {
    return s.ring.data() + static_cast<std::size_t>((y - first) % held) * line;
  };
  int made = first;  // rows before this one were squeezed across
  for (int y = 0; y < window.h; ++y) {
    const std::size_t i = static_cast<std::size_t>(y);
    for (; made < s.down.first[i] + s.down.count; made += strip) {
      const std::uint8_t* rows[strip];
      for (int r = 0; r < strip; ++r)
        rows[r] = image.at(from.top + std::min(made + r, last - 1), left);
      if (s.by_bytes) {
        dot::across(rows, s.lookups.lookups.data(), s.lookups.at.data(), s.lookups.quads,
                    s.lookups.reach, s.lookups.groups, in_ring(made), line);
        continue;
      }
      for (int r = 0; r < strip; ++r)
        widen(rows[r], values, s.wide.data() + static_cast<std::size_t>(r) * pitch);
      if (c > 4)
        squeeze_across_many(s.wide.data(), pitch, s.across, c, in_ring(made), line);
      else
        with_count(s.across.count, [&](auto count) {
          squeeze_across<count>(s.wide.data(), pitch, s.across, c, in_ring(made), line);
        });
      for (int r = 0; cut && r < strip; ++r)
        for (std::int32_t *at = in_ring(made + r), *end = at + row; at < end; ++at)
          *at = std::clamp(*at, std::int32_t{0}, std::int32_t{255});
    }
    const std::int32_t* weights = &s.down.weights[i * s.down.count];
    int used = s.down.count;
    while (used > 1 && weights[used - 1] == 0) --used;
    if (cut) {
      squeeze_down_cut([&](int t) { return in_ring(s.down.first[i] + t); }, weights, used, row,
                       out.at(y, 0));
      continue;
    }
    with_count(used, [&](auto count) {
      squeeze_down<count>([&](int t) { return in_ring(s.down.first[i] + t); }, weights, used, row,
                          s.sums.data(), out.at(y, 0));
    });
  }
}

Region read_by(const Resampling& how) {
  const auto reads = [&](int side, int to, int begin, int size) {
    if (side == to) return std::pair{begin, begin + size};
    const TapBounds bounds(side, to, how.filter);
    int count = 1;
    for (int i = begin; i < begin + size; ++i)
      count = std::max(count, bounds.end(i) - bounds.begin(i));
    const auto first = [&](int i) {
      return std::min(bounds.begin(i), side - count);
    };  // as in make_taps
    return std::pair{first(begin), first(begin + size - 1) + count};
  };
  const auto [top, bottom] = reads(how.from.h, how.h, how.window.top, how.window.h);
  const auto [left, right] = reads(how.from.w, how.w, how.window.left, how.window.w);
  return {how.from.top + top, how.from.left + left, bottom - top, right - left};
}

Resampling centered(int image_h, int image_w, int cover_h, int cover_w, int height, int width,
                    Filter filter) {
  CHECK(cover_h >= height && cover_w >= width,
        fmt::format("{} x {} does not cover {} x {}", cover_h, cover_w, height, width));
  // The tighter side becomes exactly what was asked; the other one follows, rounded down as
  // torchvision does.
  int tall = cover_h, wide = cover_w;
  const std::int64_t by_height = static_cast<std::int64_t>(image_w) * cover_h,
                     by_width = static_cast<std::int64_t>(image_h) * cover_w;
  if (by_height > by_width)
    wide = static_cast<int>(by_height / image_h);
  else
    tall = static_cast<int>(by_width / image_w);
  return {.from = {0, 0, image_h, image_w},
          .h = tall,
          .w = wide,
          .window = {center_offset(tall, height), center_offset(wide, width), height, width},
          .filter = filter};
}

}  // namespace tessera::data
