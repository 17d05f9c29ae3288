#include "data/normalise.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"

namespace tessera::data {

Normalisation normalisation(std::string_view preset) {
  if (preset == "half") return {{0.5}, {0.5}};
  if (preset == "imagenet") return {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};
  if (preset == "cifar10") return {{0.4914, 0.4822, 0.4465}, {0.2470, 0.2435, 0.2616}};
  if (preset == "cifar100") return {{0.5071, 0.4865, 0.4409}, {0.2673, 0.2564, 0.2762}};
  throw Error(ErrorKind::usage, fmt::format("there is no normalisation '{}'", preset),
              "data.normalize", "choose half, imagenet, cifar10 or cifar100");
}

Normalise::Normalise(const Normalisation& statistics, int channels) : channels_(channels) {
  for (const auto* list : {&statistics.mean, &statistics.deviation})
    if (list->size() != 1 && list->size() != static_cast<std::size_t>(channels))
      throw Error(ErrorKind::usage,
                  fmt::format("mean and deviation need 1 or {} numbers, one per channel; found {}",
                              channels, list->size()),
                  "data");
  table_.resize(static_cast<std::size_t>(channels) * 256);
  const auto of = [](const std::vector<double>& list, int k) {
    return static_cast<double>(static_cast<float>(list[list.size() == 1 ? 0 : k]));
  };
  for (int k = 0; k < channels; ++k) {
    const double mean = of(statistics.mean, k), deviation = of(statistics.deviation, k);
    if (!std::isfinite(mean) || !std::isfinite(deviation) || deviation <= 0)
      throw Error(ErrorKind::usage,
                  fmt::format("mean {} and deviation {} of channel {}: expected finite numbers, "
                              "the deviation above 0",
                              mean, deviation, k),
                  "data");
    for (int value = 0; value < 256; ++value)
      table_[static_cast<std::size_t>(k) * 256 + value] =
          static_cast<float>((value / 255.0 - mean) / deviation);
  }
}

void Normalise::operator()(const Image& image, std::span<float> out) const {
  CHECK(image.c == channels_ && out.size() == image.pixels.size(),
        "the output has the size of the image");
  const int c = channels_;
  const std::uint8_t* src = image.pixels.data();
  float* to = out.data();
  const std::size_t count = static_cast<std::size_t>(image.h) * image.w;
  if (c == 3) {
    const float *red = table_.data(), *green = red + 256, *blue = red + 512;
    for (std::size_t x = 0; x < count; ++x, src += 3, to += 3) {
      to[0] = red[src[0]];
      to[1] = green[src[1]];
      to[2] = blue[src[2]];
    }
    return;
  }
  for (std::size_t x = 0; x < count; ++x, src += c)
    for (int k = 0; k < c; ++k) *to++ = table_[static_cast<std::size_t>(k) * 256 + src[k]];
}

}  // namespace tessera::data
