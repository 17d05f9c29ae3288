// The op normalise as a table: the number for each of the 256 values of a pixel, channel by
// channel. Convention: mean and deviation are rounded to f32; the number is computed of them in
// double and rounded to f32 once, so that executors agree to the bit.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "ir/op.h"

namespace tessera::exec {

using PixelTable = std::vector<std::array<float, 256>>;  // one row per channel

inline double of_channel(const std::vector<double>& list, std::size_t channel) {
  return static_cast<float>(list.size() == 1 ? list[0] : list[channel]);
}

inline float normalised(const ir::Normalise& attrs, std::size_t channel, int pixel) {
  return static_cast<float>((pixel / 255.0 - of_channel(attrs.mean, channel)) /
                            of_channel(attrs.deviation, channel));
}

inline PixelTable pixel_table(const ir::Normalise& attrs, std::size_t channels) {
  PixelTable table(channels);
  for (std::size_t channel = 0; channel < channels; ++channel)
    for (int pixel = 0; pixel < 256; ++pixel)
      table[channel][static_cast<std::size_t>(pixel)] = normalised(attrs, channel, pixel);
  return table;
}

}  // namespace tessera::exec
