// Encoders for the decode tests: PNG of any colour type and JPEG of any colour space, in memory.
// Convention: they assume sound arguments and abort on failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/image.h"

namespace tessera::test {

using Bytes = std::vector<std::byte>;

// `samples` as PNG stores them: packed below 8 bits, host-endian 16; a palette for indexed images
// (with alphas: tRNS).
struct PngSpec {
  std::uint32_t h = 1, w = 1;
  std::uint8_t bit_depth = 8, color_type = 2;
  bool interlaced = false;
  std::vector<std::uint32_t> palette;  // 0xRRGGBB
  std::vector<std::uint8_t> alphas;
};
Bytes encode_png(const PngSpec& spec, const void* samples, std::size_t size);

// 1, 3 (RGB) or 4 (CMYK) channels; ycck only with 4.
Bytes encode_jpeg(const data::Image& image, int quality, bool progressive = false,
                  bool ycck = false);

// Smooth colours with a little structure, so that JPEG keeps them closely.
data::Image smooth_image(int h, int w, int c);

}  // namespace tessera::test
