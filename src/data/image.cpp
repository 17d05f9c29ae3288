#include "data/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace tessera::data {
namespace {

// Which source positions make one target position, and with which weights (they sum to 1).
struct Taps {
  int first = 0;
  std::vector<float> weights;
};

std::vector<Taps> triangle_taps(int from, int to) {
  const double scale = static_cast<double>(from) / to, reach = std::max(1.0, scale);
  std::vector<Taps> out(static_cast<std::size_t>(to));
  for (int i = 0; i < to; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(center - reach + 0.5)), last = std::min(from, static_cast<int>(center + reach + 0.5));
    double sum = 0;
    std::vector<double> weights;
    for (int k = first; k < last; ++k) sum += weights.emplace_back(std::max(0.0, 1.0 - std::abs((k + 0.5 - center) / reach)));
    out[i].first = first;
    for (const double weight : weights) out[i].weights.push_back(static_cast<float>(weight / sum));
  }
  return out;
}

}  // namespace

Image::Image(int height, int width, int channels) : h(height), w(width), c(channels) {
  CHECK(height > 0 && width > 0 && channels > 0, fmt::format("image of {} x {} x {}", height, width, channels));
  pixels.resize(static_cast<std::size_t>(height) * width * channels);
}

Image to_channels(const Image& image, int channels) {
  CHECK(image.c >= 1 && image.c <= 4 && channels >= 1 && channels <= 4, fmt::format("{} channels to {}", image.c, channels));
  if (image.c == channels) return image;
  Image out(image.h, image.w, channels);
  const bool colour_in = image.c >= 3, alpha_in = image.c == 2 || image.c == 4, colour_out = channels >= 3,
             alpha_out = channels == 2 || channels == 4;
  const std::size_t count = static_cast<std::size_t>(image.h) * image.w;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* src = &image.pixels[i * image.c];
    std::uint8_t* dst = &out.pixels[i * channels];
    if (colour_out)
      for (int k = 0; k < 3; ++k) dst[k] = src[colour_in ? k : 0];
    else
      dst[0] = colour_in ? static_cast<std::uint8_t>((src[0] * 19595 + src[1] * 38470 + src[2] * 7471 + 32768) >> 16) : src[0];
    if (alpha_out) dst[channels - 1] = alpha_in ? src[image.c - 1] : 255;
  }
  return out;
}

Image resize_bilinear(const Image& image, int height, int width) {
  if (image.h == height && image.w == width) return image;
  Image out(height, width, image.c);
  const int c = image.c;
  // Rows first: wide[y][x][k] keeps fractions, so that only the last step rounds.
  const std::vector<Taps> across = triangle_taps(image.w, width), down = triangle_taps(image.h, height);
  std::vector<float> wide(static_cast<std::size_t>(image.h) * width * c);
  for (int y = 0; y < image.h; ++y)
    for (int x = 0; x < width; ++x)
      for (int k = 0; k < c; ++k) {
        float sum = 0;
        const std::uint8_t* src = image.at(y, across[x].first) + k;
        for (const float weight : across[x].weights) sum += weight * *src, src += c;
        wide[(static_cast<std::size_t>(y) * width + x) * c + k] = sum;
      }
  const std::size_t row = static_cast<std::size_t>(width) * c;
  std::vector<float> sums(row);
  for (int y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), 0.5f);
    for (std::size_t t = 0; t < down[y].weights.size(); ++t) {
      const float* src = &wide[(down[y].first + t) * row];
      for (std::size_t i = 0; i < row; ++i) sums[i] += down[y].weights[t] * src[i];
    }
    for (std::size_t i = 0; i < row; ++i) out.pixels[y * row + i] = static_cast<std::uint8_t>(std::clamp(sums[i], 0.0f, 255.0f));
  }
  return out;
}

Image center_crop(const Image& image, int height, int width) {
  CHECK(height <= image.h && width <= image.w, fmt::format("crop {} x {} of an image of {} x {}", height, width, image.h, image.w));
  Image out(height, width, image.c);
  const int top = (image.h - height) / 2, left = (image.w - width) / 2;
  for (int y = 0; y < height; ++y) std::memcpy(out.at(y, 0), image.at(top + y, left), static_cast<std::size_t>(width) * image.c);
  return out;
}

}  // namespace tessera::data
