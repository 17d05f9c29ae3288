#include "data/augment_geometry.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace tessera::data {

Region draw_resized_crop(Draw draw, int height, int width, double scale_low, double scale_high,
                         double ratio_low, double ratio_high) {
  const double area = static_cast<double>(height) * width;
  for (int tries = 0; tries < 10; ++tries) {
    const double part = area * draw.uniform(scale_low, scale_high);
    const double ratio = std::exp(draw.uniform(std::log(ratio_low), std::log(ratio_high)));
    const int w = static_cast<int>(std::lround(std::sqrt(part * ratio))),
              h = static_cast<int>(std::lround(std::sqrt(part / ratio)));
    if (w < 1 || w > width || h < 1 || h > height) continue;
    const int top = draw.below(height - h + 1), left = draw.below(width - w + 1);
    return {top, left, h, w};
  }
  const double ratio = static_cast<double>(width) / height;
  int h = height, w = width;
  if (ratio < ratio_low)
    h = std::max(1, static_cast<int>(std::lround(w / ratio_low)));
  else if (ratio > ratio_high)
    w = std::max(1, static_cast<int>(std::lround(h * ratio_high)));
  return {(height - h) / 2, (width - w) / 2, h, w};
}

Region draw_padded_crop(Draw draw, int height, int width, int pad) {
  const int down = draw.below(2 * pad + 1), right = draw.below(2 * pad + 1);
  return {down - pad, right - pad, height, width};
}

int reflected(int at, int size) {
  if (at >= 0 && at < size) return at;
  if (size == 1) return 0;
  const int period = 2 * (size - 1);
  at = (at % period + period) % period;
  return at < size ? at : period - at;
}

void crop(const Image& image, const Region& from, Padding padding, Image& out) {
  out.reshape(from.h, from.w, image.c);
  const std::size_t pixel = static_cast<std::size_t>(image.c);
  // Columns begin .. end of the result lie inside of the image.
  const int begin = std::clamp(-from.left, 0, from.w),
            end = std::clamp(image.w - from.left, begin, from.w);
  for (int y = 0; y < from.h; ++y) {
    int row = from.top + y;
    if (padding == Padding::reflect) row = reflected(row, image.h);
    if (row < 0 || row >= image.h) {
      std::memset(out.at(y, 0), 0, from.w * pixel);
      continue;
    }
    if (begin < end)
      std::memcpy(out.at(y, begin), image.at(row, from.left + begin), (end - begin) * pixel);
    for (int x = 0; x < from.w; ++x) {
      if (x == begin) x = end;
      if (x >= from.w) break;
      if (padding == Padding::reflect)
        std::memcpy(out.at(y, x), image.at(row, reflected(from.left + x, image.w)), pixel);
      else
        std::memset(out.at(y, x), 0, pixel);
    }
  }
}

void mirror(Image& image) {
  for (int y = 0; y < image.h; ++y) {
    std::uint8_t *left = image.at(y, 0), *right = image.at(y, image.w - 1);
    for (; left < right; left += image.c, right -= image.c)
      std::swap_ranges(left, left + image.c, right);
  }
}

// In 16.16 fixed point, as Pillow does: a last bit of a sine does not move a pixel. Good for sides
// up to 16384 and the maps below.
void transform(Image& image, const Affine& map) {
  thread_local Image original;
  original = image;
  const auto fixed = [](double value) {
    return static_cast<std::int64_t>(std::floor(value * 65536.0 + 0.5));
  };
  const std::int64_t a = fixed(map.a), b = fixed(map.b), d = fixed(map.d), e = fixed(map.e);
  std::int64_t row_x = fixed(map.c + map.a * 0.5 + map.b * 0.5),
               row_y = fixed(map.f + map.d * 0.5 + map.e * 0.5);
  const std::size_t pixel = static_cast<std::size_t>(image.c);
  std::uint8_t* out = image.pixels.data();
  for (int y = 0; y < image.h; ++y, row_x += b, row_y += e) {
    std::int64_t at_x = row_x, at_y = row_y;
    for (int x = 0; x < image.w; ++x, at_x += a, at_y += d, out += pixel) {
      const std::int64_t from_x = at_x >> 16, from_y = at_y >> 16;
      const bool inside = from_x >= 0 && from_x < image.w && from_y >= 0 && from_y < image.h;
      const std::uint8_t* src =
          inside ? original.at(static_cast<int>(from_y), static_cast<int>(from_x)) : nullptr;
      for (std::size_t k = 0; k < pixel; ++k) out[k] = inside ? src[k] : 0;
    }
  }
}

Affine shear_x(double slope) { return {1, slope, 0, 0, 1, 0}; }
Affine shear_y(double slope) { return {1, 0, 0, slope, 1, 0}; }
Affine translate(int right, int down) {
  return {1, 0, -static_cast<double>(right), 0, 1, -static_cast<double>(down)};
}

Affine rotate(double degrees, int height, int width) {
  const double angle = -degrees * std::numbers::pi / 180.0, cosine = std::cos(angle),
               sine = std::sin(angle);
  const double x = width / 2.0, y = height / 2.0;
  return {cosine, sine, x - cosine * x - sine * y, -sine, cosine, y + sine * x - cosine * y};
}

}  // namespace tessera::data
