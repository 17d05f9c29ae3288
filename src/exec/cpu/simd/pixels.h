// Pixels to f32 by straight lines, vectorised: what the op normalise is made of.
#pragma once

#include <cstdint>

namespace tessera::exec::cpu {

// Values at a time: whole pixels of 1, 2, 3, 4 or 6 channels, and whole vectors.
inline constexpr int pixel_block = 48;

// y = (x slope + offset) + (x slope_rest + offset_rest) for blocks x pixel_block values; `lines`
// has the four numbers, pixel_block of each.
void vector_pixel_lines(const std::uint8_t* x, float* y, std::int64_t blocks, const float* lines);

}  // namespace tessera::exec::cpu
