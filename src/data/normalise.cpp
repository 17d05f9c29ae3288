#include "data/normalise.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace tessera::data {
namespace {

constexpr int block = 48;  // values: whole pixels of 1, 2, 3, 4 or 6 channels, and whole vectors

// The upper parts have so few bits that their line is exact and only the last sum rounds, the lower
// ones what remains.
void compute(const std::uint8_t* __restrict__ src, std::size_t blocks,
             const float* __restrict__ lines, float* __restrict__ out) {
  const float *slope = lines, *offset = slope + block, *slope_rest = offset + block,
              *offset_rest = slope_rest + block;
  for (std::size_t b = 0; b < blocks; ++b, src += block, out += block)
    for (int i = 0; i < block; ++i) {
      const float value = src[i];
      out[i] = (value * slope[i] + offset[i]) + (value * slope_rest[i] + offset_rest[i]);
    }
}

}  // namespace

Normalisation normalisation(std::string_view preset) {
  if (preset == "half") return {{0.5f}, {0.5f}};
  if (preset == "imagenet") return {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
  if (preset == "cifar10") return {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};
  if (preset == "cifar100") return {{0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}};
  throw Error(ErrorKind::usage, fmt::format("there is no normalisation '{}'", preset),
              "data.normalize", "choose half, imagenet, cifar10 or cifar100");
}

Normalise::Normalise(const Normalisation& statistics, int channels)
    : channels_(channels), black_(static_cast<std::size_t>(channels)) {
  for (const auto* list : {&statistics.mean, &statistics.deviation})
    if (list->size() != 1 && list->size() != static_cast<std::size_t>(channels))
      throw Error(ErrorKind::usage,
                  fmt::format("mean and deviation need 1 or {} numbers, one per channel; found {}",
                              channels, list->size()),
                  "data");
  table_.resize(static_cast<std::size_t>(channels) * 256);
  const auto of = [](const std::vector<float>& list, int k) {
    return static_cast<double>(list[list.size() == 1 ? 0 : k]);
  };
  std::vector<double> slope, offset;
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
    slope.push_back(1 / (255 * deviation)), offset.push_back(-mean / deviation);
  }
  if (!find_lines(slope, offset)) lines_.clear();
}

// Tried, not proven: a value whose exact result lies very near the middle between two floats may
// fall on the other side; then the rest of the offset is moved by a hair.
bool Normalise::find_lines(const std::vector<double>& slope, const std::vector<double>& offset) {
  if (block % channels_ != 0) return false;
  lines_.resize(4 * block);
  const auto bits = [](float number) { return std::bit_cast<std::uint32_t>(number); };
  for (int k = 0; k < channels_; ++k) {
    const std::size_t channel = static_cast<std::size_t>(k);
    const double grid =
        std::ldexp(1.0, std::ilogb(slope[channel]) - 15);  // 16 bits, and 8 of the value: 24
    const double upper_slope = std::nearbyint(slope[channel] / grid) * grid,
                 upper_offset = std::nearbyint(offset[channel] / grid) * grid;
    bool found = false;
    for (int hair = 0; hair < 32 && !found; ++hair) {
      const double moved =
          grid * std::ldexp(1.0, -20) * (hair % 2 == 0 ? hair / 2 : -(hair + 1) / 2);
      for (int i = k; i < block; i += channels_) {
        float* line = &lines_[static_cast<std::size_t>(i)];
        line[0] = static_cast<float>(upper_slope), line[block] = static_cast<float>(upper_offset);
        line[2 * block] = static_cast<float>(slope[channel] - upper_slope);
        line[3 * block] = static_cast<float>(offset[channel] - upper_offset + moved);
      }
      found = true;
      for (int value = 0; value < 256 && found; ++value) {
        std::uint8_t same[block];
        float results[block];
        std::fill_n(same, block, static_cast<std::uint8_t>(value));
        compute(same, 1, lines_.data(), results);
        for (int i = k; i < block; i += channels_)
          found = found && bits(results[i]) == bits(table_[channel * 256 + value]);
      }
    }
    if (!found) return false;
  }
  return true;
}

// `step`: +1, -1 for a mirrored row, 0 to repeat one pixel.
void Normalise::row(const std::uint8_t* src, int count, int step, float* __restrict__ out) const {
  const int c = channels_;
  const std::ptrdiff_t stride = static_cast<std::ptrdiff_t>(step) * c;
  if (step == 1 && !lines_.empty()) {
    const int blocks = count * c / block, values = blocks * block;
    compute(src, static_cast<std::size_t>(blocks), lines_.data(), out);
    src += values, out += values, count -= values / c;
  }
  if (c == 3) {
    const float *red = table_.data(), *green = red + 256, *blue = red + 512;
    for (int x = 0; x < count; ++x, src += stride, out += 3)
      out[0] = red[src[0]], out[1] = green[src[1]], out[2] = blue[src[2]];
    return;
  }
  for (int x = 0; x < count; ++x, src += stride)
    for (int k = 0; k < c; ++k) *out++ = table_[static_cast<std::size_t>(k) * 256 + src[k]];
}

void Normalise::operator()(const Image& image, std::span<float> out) const {
  CHECK(image.c == channels_ && out.size() == image.pixels.size(),
        "the output has the size of the image");
  row(image.pixels.data(), image.h * image.w, 1, out.data());
}

void Normalise::operator()(const Image& image, const Region& from, Padding padding, bool mirrored,
                           std::span<float> out) const {
  CHECK(image.c == channels_ && out.size() == static_cast<std::size_t>(from.h) * from.w * image.c,
        "the output has the size of the crop");
  const std::size_t width = static_cast<std::size_t>(from.w) * image.c;
  // Columns begin .. end of the crop lie inside of the image.
  const int begin = std::clamp(-from.left, 0, from.w),
            end = std::clamp(image.w - from.left, begin, from.w);
  float* dst = out.data();
  for (int y = 0; y < from.h; ++y, dst += width) {
    int line = from.top + y;
    if (padding == Padding::reflect) line = reflected(line, image.h);
    if (line < 0 || line >= image.h) {
      row(black_.data(), from.w, 0, dst);
      continue;
    }
    const auto place = [&](int x) {
      return dst + static_cast<std::size_t>(mirrored ? from.w - 1 - x : x) * image.c;
    };
    if (begin < end) {
      const int first = mirrored ? end - 1 : begin;
      row(image.at(line, from.left + first), end - begin, mirrored ? -1 : 1, place(first));
    }
    for (int x = 0; x < from.w; ++x) {
      if (x == begin) x = end;
      if (x >= from.w) break;
      row(padding == Padding::reflect ? image.at(line, reflected(from.left + x, image.w))
                                      : black_.data(),
          1, 1, place(x));
    }
  }
}

}  // namespace tessera::data
