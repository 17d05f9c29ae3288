// Resizing of pictures for every device: the taps of both passes, and one value of a pass.
#pragma once

#include <algorithm>

#include "base/resample_taps.h"
#include "ir/attrs.h"
#include "ir/type.h"

namespace tessera::exec {

struct ResizeTaps {
  Taps across, down;
};

// `pictures`: the shape [n,h,w,c] of those that are resized.
inline ResizeTaps resize_taps(const ir::Resize& a, const ir::Shape& pictures) {
  const Filter filter = a.cubic ? Filter::bicubic : Filter::bilinear;
  ResizeTaps out;
  const auto whole = [](std::int64_t n) { return static_cast<int>(n); };
  make_taps(whole(pictures[2]), whole(a.width), whole(a.left), whole(a.columns), filter,
            out.across);
  make_taps(whole(pictures[1]), whole(a.height), whole(a.top), whole(a.rows), filter, out.down);
  return out;
}

// Target i of a row whose source positions `value` gives.
template <class Value>
std::uint8_t resized_value(const Taps& taps, std::int64_t i, const Value& value) {
  std::int32_t sum = tap_half;
  for (int t = 0; t < taps.count; ++t)
    sum += taps.weights[static_cast<std::size_t>(i * taps.count + t)] *
           static_cast<std::int32_t>(value(taps.first[static_cast<std::size_t>(i)] + t));
  return static_cast<std::uint8_t>(std::clamp(sum >> tap_bits, 0, 255));
}

}  // namespace tessera::exec
