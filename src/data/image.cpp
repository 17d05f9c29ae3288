#include "data/image.h"

#include <fmt/format.h>

#include "base/check.h"

namespace tessera::data {

Image::Image(int height, int width, int channels) { reshape(height, width, channels); }

void Image::reshape(int height, int width, int channels) {
  CHECK(height > 0 && width > 0 && channels > 0,
        fmt::format("image of {} x {} x {}", height, width, channels));
  h = height;
  w = width;
  c = channels;
  pixels.resize(static_cast<std::size_t>(height) * width * channels);
  numbers.clear();
}

Image to_channels(const Image& image, int channels) {
  Image out;
  to_channels(image, channels, out);
  return out;
}

void to_channels(const Image& image, int channels, Image& out) {
  CHECK(image.c >= 1 && image.c <= 4 && channels >= 1 && channels <= 4,
        fmt::format("{} channels to {}", image.c, channels));
  if (image.c == channels) {
    out = image;
    return;
  }
  out.reshape(image.h, image.w, channels);
  const bool colour_in = image.c >= 3, alpha_in = image.c == 2 || image.c == 4,
             colour_out = channels >= 3, alpha_out = channels == 2 || channels == 4;
  const std::size_t count = static_cast<std::size_t>(image.h) * image.w;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* src = &image.pixels[i * image.c];
    std::uint8_t* dst = &out.pixels[i * channels];
    if (colour_out)
      for (int k = 0; k < 3; ++k) dst[k] = src[colour_in ? k : 0];
    else
      dst[0] = colour_in ? static_cast<std::uint8_t>(
                               (src[0] * 19595 + src[1] * 38470 + src[2] * 7471 + 32768) >> 16)
                         : src[0];
    if (alpha_out) dst[channels - 1] = alpha_in ? src[image.c - 1] : 255;
  }
}

}  // namespace tessera::data
