#include "data/standard.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/rng.h"

namespace tessera::data {
namespace {

template <int channels>
void look_up(const std::uint8_t* src, const float* table, std::size_t count, std::ptrdiff_t step, float* dst) {
  for (std::size_t i = 0; i < count; ++i, src += step)
    for (int k = 0; k < channels; ++k) *dst++ = table[k * 256 + src[k]];
}

}  // namespace

std::vector<float> normalisation_table(const std::vector<float>& mean, const std::vector<float>& deviation, int channels) {
  for (const auto* list : {&mean, &deviation})
    if (list->size() != 1 && list->size() != static_cast<std::size_t>(channels))
      throw Error(ErrorKind::usage,
                  fmt::format("mean and deviation need 1 or {} numbers, one per channel; found {}", channels, list->size()), "data");
  std::vector<float> table(static_cast<std::size_t>(channels) * 256);
  for (int k = 0; k < channels; ++k) {
    const double m = mean[mean.size() == 1 ? 0 : k], d = deviation[deviation.size() == 1 ? 0 : k];
    if (!std::isfinite(m) || !std::isfinite(d) || d <= 0)
      throw Error(ErrorKind::usage,
                  fmt::format("mean {} and deviation {} of channel {}: expected finite numbers, the deviation above 0", m, d, k), "data");
    for (int value = 0; value < 256; ++value)
      table[static_cast<std::size_t>(k) * 256 + value] = static_cast<float>((value / 255.0 - m) / d);
  }
  return table;
}

void normalise(const Image& image, const std::vector<float>& table, bool mirrored, std::span<float> out) {
  CHECK(out.size() == image.pixels.size() && table.size() == static_cast<std::size_t>(image.c) * 256,
        fmt::format("an image of {} values into {}", image.pixels.size(), out.size()));
  const std::size_t row = static_cast<std::size_t>(image.w) * image.c;
  for (int y = 0; y < image.h; ++y) {
    const std::uint8_t* src = image.at(y, mirrored ? image.w - 1 : 0);
    const std::ptrdiff_t step = mirrored ? -image.c : image.c;
    float* dst = out.data() + static_cast<std::size_t>(y) * row;
    const auto count = static_cast<std::size_t>(image.w);
    switch (image.c) {
      case 1:
        look_up<1>(src, table.data(), count, step, dst);
        break;
      case 3:
        look_up<3>(src, table.data(), count, step, dst);
        break;
      default:
        for (std::size_t i = 0; i < count; ++i, src += step)
          for (int k = 0; k < image.c; ++k) *dst++ = table[static_cast<std::size_t>(k) * 256 + src[k]];
    }
  }
}

bool flipped(const SampleKey& key) {
  const Key flips = Key{key.seed}.with("flip").with(static_cast<std::uint64_t>(key.epoch));
  return random_bits(flips, static_cast<std::uint64_t>(key.position)) & 1;
}

Transform standard_transform(const StandardOptions& options) {
  return [options, table = normalisation_table(options.mean, options.deviation, options.channels)](const Image& image, const SampleKey& key,
                                                                                                   std::span<float> out) {
    thread_local Image fitted;
    const bool mirrored = options.flip && flipped(key);
    if (image.h == options.height && image.w == options.width) return normalise(image, table, mirrored, out);
    resize_bilinear(image, center_box(image.h, image.w, options.height, options.width), options.height, options.width, fitted);
    normalise(fitted, table, mirrored, out);
  };
}

}  // namespace tessera::data
