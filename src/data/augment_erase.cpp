#include "data/augment_erase.h"

#include <algorithm>
#include <cmath>

namespace tessera::data {

Region draw_erase(Draw draw, const EraseOptions& options, int height, int width) {
  if (draw.uniform() >= options.probability) return {};
  const double area = static_cast<double>(height) * width;
  for (int tries = 0; tries < 10; ++tries) {
    const double part = area * draw.uniform(options.scale_low, options.scale_high);
    const double ratio =
        std::exp(draw.uniform(std::log(options.ratio_low), std::log(options.ratio_high)));
    const int h = static_cast<int>(std::lround(std::sqrt(part * ratio))),
              w = static_cast<int>(std::lround(std::sqrt(part / ratio)));
    if (h < 1 || w < 1 || h >= height || w >= width) continue;
    const int top = draw.below(height - h + 1), left = draw.below(width - w + 1);
    return {top, left, h, w};
  }
  return {};
}

Region draw_cutout(Draw draw, int size, int height, int width) {
  const int top = draw.below(height) - size / 2, left = draw.below(width) - size / 2;
  const int y = std::max(top, 0), x = std::max(left, 0);
  return {y, x, std::min(top + size, height) - y, std::min(left + size, width) - x};
}

void erase(const Region& region, int width, int channels, std::span<float> image) {
  for (int y = region.top; y < region.top + region.h; ++y)
    std::fill_n(&image[(static_cast<std::size_t>(y) * width + region.left) * channels],
                static_cast<std::size_t>(region.w) * channels, 0.0f);
}

void erase_random(const Region& region, Key key, int width, int channels, std::span<float> image) {
  std::uint64_t next = 0;
  for (int y = region.top; y < region.top + region.h; ++y) {
    float* row = &image[(static_cast<std::size_t>(y) * width + region.left) * channels];
    for (int i = 0; i < region.w * channels; ++i) row[i] = static_cast<float>(normal(key, next++));
  }
}

}  // namespace tessera::data
