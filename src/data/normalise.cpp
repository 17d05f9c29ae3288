#include "data/normalise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tessera::data {

Normalisation normalisation(std::string_view preset) {
  if (preset == "half") return {{0.5f}, {0.5f}};
  if (preset == "imagenet") return {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
  if (preset == "cifar10") return {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};
  if (preset == "cifar100") return {{0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}};
  throw Error(ErrorKind::usage, fmt::format("there is no normalisation '{}'", preset), "data.normalize",
              "choose half, imagenet, cifar10 or cifar100");
}

Normalise::Normalise(const Normalisation& statistics, int channels) : channels_(channels), black_(static_cast<std::size_t>(channels)) {
  for (const auto* list : {&statistics.mean, &statistics.deviation})
    if (list->size() != 1 && list->size() != static_cast<std::size_t>(channels))
      throw Error(ErrorKind::usage,
                  fmt::format("mean and deviation need 1 or {} numbers, one per channel; found {}", channels, list->size()), "data");
  table_.resize(static_cast<std::size_t>(channels) * 256);
  const auto of = [](const std::vector<float>& list, int k) { return static_cast<double>(list[list.size() == 1 ? 0 : k]); };
  for (int k = 0; k < channels; ++k) {
    const double mean = of(statistics.mean, k), deviation = of(statistics.deviation, k);
    if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation <= 0)
      throw Error(ErrorKind::usage,
                  fmt::format("mean {} and deviation {} of channel {}: expected finite numbers, the deviation above 0", mean, deviation, k),
                  "data");
    for (int value = 0; value < 256; ++value)
      table_[static_cast<std::size_t>(k) * 256 + value] = static_cast<float>((value / 255.0 - mean) / deviation);
  }
}

// `step`: +1, -1 for a mirrored row, 0 to repeat one pixel.
void Normalise::row(const std::uint8_t* src, int count, int step, float* __restrict__ out) const {
  const int c = channels_;
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(step) * c;
  if (c == 3) {
    const float *red = table_.data(), *green = red + 256, *blue = red + 512;
    for (int x = 0; x < count; ++x, src += stride, out += 3) out[0] = red[src[0]], out[1] = green[src[1]], out[2] = blue[src[2]];
    return;
  }
  for (int x = 0; x < count; ++x, src += stride)
    for (int k = 0; k < c; ++k) *out++ = table_[static_cast<std::size_t>(k) * 256 + src[k]];
}

void Normalise::operator()(const Image& image, std::span<float> out) const {
  CHECK(image.c == channels_ && out.size() == image.pixels.size(), "the output has the size of the image");
  row(image.pixels.data(), image.h * image.w, 1, out.data());
}

void Normalise::operator()(const Image& image, const Region& from, Padding padding, bool mirrored, std::span<float> out) const {
  CHECK(image.c == channels_ && out.size() == static_cast<std::size_t>(from.h) * from.w * image.c, "the output has the size of the crop");
  const std::size_t width = static_cast<std::size_t>(from.w) * image.c;
  // Columns begin .. end of the crop lie inside of the image.
  const int begin = std::clamp(-from.left, 0, from.w), end = std::clamp(image.w - from.left, begin, from.w);
  float* dst = out.data();
  for (int y = 0; y < from.h; ++y, dst += width) {
    int line = from.top + y;
    if (padding == Padding::reflect) line = reflected(line, image.h);
    if (line < 0 || line >= image.h) {
      row(black_.data(), from.w, 0, dst);
      continue;
    }
    const auto place = [&](int x) { return dst + static_cast<std::size_t>(mirrored ? from.w - 1 - x : x) * image.c; };
    if (begin < end) {
      const int first = mirrored ? end - 1 : begin;
      row(image.at(line, from.left + first), end - begin, mirrored ? -1 : 1, place(first));
    }
    for (int x = 0; x < from.w; ++x) {
      if (x == begin) x = end;
      if (x >= from.w) break;
      row(padding == Padding::reflect ? image.at(line, reflected(from.left + x, image.w)) : black_.data(), 1, 1, place(x));
    }
  }
}

}  // namespace tessera::data
