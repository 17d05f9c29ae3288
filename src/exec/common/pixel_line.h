// The op normalise as a straight line per channel that has the bits of the table for all 256 values
// of a pixel: y = (x slope + offset) + (x slope_rest + offset_rest) in f32, each bracket rounded
// once. Such lines are found by trying.
#pragma once

#include <cmath>
#include <optional>

#include "exec/common/pixel_table.h"

namespace tessera::exec {

struct PixelLine {
  float slope, offset, slope_rest, offset_rest;
};

// The upper parts of slope and offset have so few bits that their line is exact and only the last
// sum rounds; the lower ones are what remains. `moved` is added to the rest of the offset.
inline PixelLine pixel_line(const ir::Normalise& attrs, std::size_t channel, double moved) {
  const double deviation = of_channel(attrs.deviation, channel);
  const double slope = 1 / (255 * deviation), offset = -of_channel(attrs.mean, channel) / deviation;
  // 16 bits, and 8 of the pixel: 24.
  const double grid = std::ldexp(1.0, std::ilogb(slope) - 15);
  const double upper_slope = std::nearbyint(slope / grid) * grid,
               upper_offset = std::nearbyint(offset / grid) * grid;
  return {static_cast<float>(upper_slope), static_cast<float>(upper_offset),
          static_cast<float>(slope - upper_slope),
          static_cast<float>(offset - upper_offset + moved * grid)};
}

// The first line of a channel for which holds(line). A value whose exact result lies very near the
// middle between two floats may fall on the other side; then the rest of the offset is moved by a
// hair.
template <class Holds>
std::optional<PixelLine> find_pixel_line(const ir::Normalise& attrs, std::size_t channel,
                                         const Holds& holds) {
  for (int hair = 0; hair < 32; ++hair) {
    const double moved = std::ldexp(hair % 2 == 0 ? hair / 2 : -(hair + 1) / 2, -20);
    const PixelLine line = pixel_line(attrs, channel, moved);
    if (holds(line)) return line;
  }
  return std::nullopt;
}

}  // namespace tessera::exec
