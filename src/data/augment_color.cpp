#include "data/augment_color.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera::data {
namespace {

using Table = std::array<std::uint8_t, 256>;

// Channels that carry colour: all but alpha.
int colours(const Image& image) { return image.c == 2 || image.c == 4 ? image.c - 1 : image.c; }
std::size_t count(const Image& image) { return static_cast<std::size_t>(image.h) * image.w; }

// Pillow blends in f32 and truncates. In double the product and the sum are exact, so that one
// rounding remains on every machine.
std::uint8_t blend(int from, int to, float factor) {
  const float mixed = static_cast<float>(from + static_cast<double>(factor) * (to - from));
  return static_cast<std::uint8_t>(std::clamp(mixed, 0.0f, 255.0f));
}

template <class F>
Table table_of(F&& value) {
  Table table;
  for (int i = 0; i < 256; ++i) table[static_cast<std::size_t>(i)] = value(i);
  return table;
}

void look_up(Image& image, const Table& table, int channel) {
  std::uint8_t* at = image.pixels.data() + channel;
  for (std::size_t i = 0; i < count(image); ++i, at += image.c) *at = table[*at];
}

void look_up(Image& image, const Table& table) {
  if (colours(image) == image.c)
    for (std::uint8_t& value : image.pixels) value = table[value];
  else
    for (int k = 0; k < colours(image); ++k) look_up(image, table, k);
}

std::array<std::int64_t, 256> histogram(const Image& image, int channel) {
  std::array<std::int64_t, 256> bins{};
  const std::uint8_t* at = image.pixels.data() + channel;
  for (std::size_t i = 0; i < count(image); ++i, at += image.c) ++bins[*at];
  return bins;
}

// BT.601 in 16-bit fixed point.
int luma(const std::uint8_t* rgb) {
  return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 32768) >> 16;
}

int grey(const std::uint8_t* pixel, int c) {
  if (c <= 2) return pixel[0];
  if (c <= 4) return luma(pixel);
  int sum = 0;
  for (int k = 0; k < c; ++k) sum += pixel[k];
  return (sum + c / 2) / c;
}

struct Hsv {
  std::uint8_t h = 0, s = 0, v = 0;
};

// The types follow Pillow's: f32 values, some of them computed in double.
Hsv to_hsv(int r, int g, int b) {
  const int most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least) return {0, 0, static_cast<std::uint8_t>(most)};
  const float range = static_cast<float>(most - least), s = range / static_cast<float>(most);
  const float red = static_cast<float>(most - r) / range,
              green = static_cast<float>(most - g) / range,
              blue = static_cast<float>(most - b) / range;
  float h = r == most ? blue - green
                      : static_cast<float>(g == most ? 2.0 + red - blue : 4.0 + green - red);
  const double turn = h / 6.0 + 1.0;  // 5/6 .. 11/6
  h = static_cast<float>(turn >= 1.0 ? turn - 1.0 : turn);
  return {static_cast<std::uint8_t>(std::clamp(static_cast<int>(h * 255.0), 0, 255)),
          static_cast<std::uint8_t>(std::clamp(static_cast<int>(s * 255.0), 0, 255)),
          static_cast<std::uint8_t>(most)};
}

void from_hsv(const Hsv& hsv, std::uint8_t* rgb) {
  if (hsv.s == 0) {
    rgb[0] = rgb[1] = rgb[2] = hsv.v;
    return;
  }
  const double place = hsv.h * 6.0 / 255.0;
  const int sector = static_cast<int>(place);
  const float f = static_cast<float>(place - sector), s = static_cast<float>(hsv.s / 255.0);
  const auto scaled = [&](double part) {
    return static_cast<std::uint8_t>(std::floor(hsv.v * (1.0 - part) + 0.5));
  };
  const std::uint8_t v = hsv.v, p = scaled(s), q = scaled(s * f), t = scaled(s * (1.0 - f));
  const auto put = [&](std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
    rgb[0] = red;
    rgb[1] = green;
    rgb[2] = blue;
  };
  switch (sector % 6) {
    case 0:
      return put(v, t, p);
    case 1:
      return put(q, v, p);
    case 2:
      return put(p, v, t);
    case 3:
      return put(p, q, v);
    case 4:
      return put(t, p, v);
    default:
      return put(v, p, q);
  }
}

}  // namespace

void brightness(Image& image, double factor) {
  look_up(image, table_of([&](int i) { return blend(0, i, static_cast<float>(factor)); }));
}

void contrast(Image& image, double factor) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < count(image); ++i) sum += grey(&image.pixels[i * image.c], image.c);
  const int mean =
      static_cast<int>(std::lround(static_cast<double>(sum) / static_cast<double>(count(image))));
  look_up(image, table_of([&](int i) { return blend(mean, i, static_cast<float>(factor)); }));
}

void saturation(Image& image, double factor) {
  if (image.c != 3 && image.c != 4) return;
  for (std::size_t i = 0; i < count(image); ++i) {
    std::uint8_t* pixel = &image.pixels[i * image.c];
    const int grey = luma(pixel);
    for (int k = 0; k < 3; ++k) pixel[k] = blend(grey, pixel[k], static_cast<float>(factor));
  }
}

// The smoothing kernel is 1 around a 5, over 13; the outermost pixels are not smoothed.
void sharpness(Image& image, double factor) {
  if (image.h < 3 || image.w < 3) return;
  thread_local std::vector<std::uint8_t> original;
  original = image.pixels;
  const std::ptrdiff_t c = image.c, row = static_cast<std::ptrdiff_t>(image.w) * c;
  for (int y = 1; y + 1 < image.h; ++y)
    for (int x = 1; x + 1 < image.w; ++x)
      for (int k = 0; k < colours(image); ++k) {
        const std::uint8_t* at = &original[static_cast<std::size_t>(y * row + x * c + k)];
        int sum = 4 * at[0];
        for (const std::ptrdiff_t line : {-row, std::ptrdiff_t{0}, row})
          sum += at[line - c] + at[line] + at[line + c];
        image.at(y, x)[k] = blend((2 * sum + 13) / 26, at[0], static_cast<float>(factor));
      }
}

void hue(Image& image, double turn) {
  if (image.c != 3 && image.c != 4) return;
  const auto shift =
      static_cast<std::uint8_t>(static_cast<int>(turn * 255));  // wraps around, as the hue does
  for (std::size_t i = 0; i < count(image); ++i) {
    std::uint8_t* pixel = &image.pixels[i * image.c];
    Hsv hsv = to_hsv(pixel[0], pixel[1], pixel[2]);
    hsv.h = static_cast<std::uint8_t>(hsv.h + shift);
    from_hsv(hsv, pixel);
  }
}

void posterize(Image& image, int bits) {
  const int mask = 0xff << (8 - std::clamp(bits, 0, 8));
  look_up(image, table_of([&](int i) { return static_cast<std::uint8_t>(i & mask); }));
}

void solarize(Image& image, double threshold) {
  look_up(image,
          table_of([&](int i) { return static_cast<std::uint8_t>(i < threshold ? i : 255 - i); }));
}

void invert(Image& image) {
  look_up(image, table_of([](int i) { return static_cast<std::uint8_t>(255 - i); }));
}

void autocontrast(Image& image) {
  for (int k = 0; k < colours(image); ++k) {
    const auto bins = histogram(image, k);
    int low = 0, high = 255;
    while (low < 255 && bins[static_cast<std::size_t>(low)] == 0) ++low;
    while (high > 0 && bins[static_cast<std::size_t>(high)] == 0) --high;
    if (high <= low) continue;
    const double scale = 255.0 / (high - low);
    volatile double offset = -low * scale;  // volatile: product and sum are rounded one by one, as
                                            // Pillow's are, on every machine
    look_up(
        image, table_of([&](int i) {
          volatile double product = i * scale;
          return static_cast<std::uint8_t>(std::clamp(static_cast<int>(product + offset), 0, 255));
        }),
        k);
  }
}

void equalize(Image& image) {
  for (int k = 0; k < colours(image); ++k) {
    const auto bins = histogram(image, k);
    int last = 255;
    while (bins[static_cast<std::size_t>(last)] == 0) --last;
    const std::int64_t step =
        (static_cast<std::int64_t>(count(image)) - bins[static_cast<std::size_t>(last)]) / 255;
    if (step == 0) continue;
    std::int64_t below = step / 2;
    look_up(image, table_of([&](int i) {
              const std::int64_t level = below / step;
              below += bins[static_cast<std::size_t>(i)];
              return static_cast<std::uint8_t>(std::min<std::int64_t>(level, 255));
            }),
            k);
  }
}

}  // namespace tessera::data
