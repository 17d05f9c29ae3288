// Resizing of images whose channels are numbers: the filters of resample.cpp without its rounding.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "data/resample.h"

namespace tessera::data {
namespace {

struct RealTaps {
  int first = 0;
  std::vector<double> weights;
};

// The taps of targets begin .. begin + size.
std::vector<RealTaps> real_taps(int from, int to, int begin, int size, Filter filter) {
  std::vector<RealTaps> out(static_cast<std::size_t>(size));
  const TapBounds bounds(from, to, filter);
  const double narrow = 1.0 / std::max(1.0, bounds.scale);
  for (int i = 0; i < size; ++i) {
    RealTaps& taps = out[static_cast<std::size_t>(i)];
    if (from == to) {
      taps = {begin + i, {1.0}};
      continue;
    }
    taps.first = bounds.begin(begin + i);
    double sum = 0;
    for (int k = taps.first; k < bounds.end(begin + i); ++k) {
      taps.weights.push_back(filter_weight(filter, (k - bounds.center(begin + i) + 0.5) * narrow));
      sum += taps.weights.back();
    }
    for (double& weight : taps.weights) weight /= sum;
  }
  return out;
}

}  // namespace

void resample(std::span<const float> image, int image_h, int image_w, int channels,
              const Resampling& how, std::vector<float>& out) {
  const auto& [from, height, width, window, filter] = how;
  CHECK(from.top >= 0 && from.left >= 0 && from.h > 0 && from.w > 0 &&
            from.top + from.h <= image_h && from.left + from.w <= image_w,
        fmt::format("part {} x {} at {}, {} of an array of {} x {}", from.h, from.w, from.top,
                    from.left, image_h, image_w));
  const auto across = real_taps(from.w, width, window.left, window.w, filter),
             down = real_taps(from.h, height, window.top, window.h, filter);
  const auto c = static_cast<std::size_t>(channels), row = static_cast<std::size_t>(window.w) * c;
  const int first = down.front().first,
            last = down.back().first + static_cast<int>(down.back().weights.size());
  std::vector<double> narrow(static_cast<std::size_t>(last - first) * row, 0.0);
  for (int y = first; y < last; ++y) {
    const float* src = &image[(static_cast<std::size_t>(from.top + y) * image_w + from.left) * c];
    double* to = &narrow[static_cast<std::size_t>(y - first) * row];
    for (const RealTaps& taps : across) {
      const float* at = src + static_cast<std::size_t>(taps.first) * c;
      for (const double weight : taps.weights)
        for (std::size_t k = 0; k < c; ++k) to[k] += weight * static_cast<double>(*at++);
      to += c;
    }
  }
  out.resize(static_cast<std::size_t>(window.h) * row);
  std::vector<double> sums(row);
  for (std::size_t y = 0; y < down.size(); ++y) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t t = 0; t < down[y].weights.size(); ++t) {
      const double* at = &narrow[(static_cast<std::size_t>(down[y].first - first) + t) * row];
      for (std::size_t i = 0; i < row; ++i) sums[i] += down[y].weights[t] * at[i];
    }
    for (std::size_t i = 0; i < row; ++i) out[y * row + i] = static_cast<float>(sums[i]);
  }
}

}  // namespace tessera::data
