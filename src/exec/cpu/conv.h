// The gather behind every convolution: which source pixels a tile of result pixels reads.
// Convention: images are [b,h,w,c], so what one tap reads of one pixel is a contiguous run of channels.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {

struct Gather {
  const float* data;
  std::int64_t h, w, c;
};
struct Tap {
  std::int64_t row, col;  // relative to a pixel of the source
};
// `pixels`: (image, row, col) of each; `channels` of them from `from.data` on; `to`: [count, taps, channels].
void gather_taps(const Gather& from, const std::int64_t* pixels, std::int64_t count, const Tap* taps, std::int64_t tap_count,
                 std::int64_t channels, float* to);

}  // namespace tessera::exec::cpu
