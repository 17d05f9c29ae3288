// Rules that the ops of windows and attention within them share: sizes, shifts, and how many
// windows an image has.
#pragma once

#include <string>

#include "base/check.h"
#include "ir/type.h"

namespace tessera::ops {

// The most of an attribute: products of four stay far from overflow.
inline constexpr std::int64_t most_window = std::int64_t{1} << 20;

inline void check_pair(const char* what, const ir::Shape& pair, std::int64_t least) {
  CHECK(pair.size() == 2, std::string(what) + " is [rows, columns]");
  for (const std::int64_t v : pair)
    CHECK(v >= least && v <= most_window, std::string(what) + " " + ir::to_string(pair) +
                                              " lies between " + std::to_string(least) +
                                              " and 2^20");
}
inline void check_shift(const ir::Shape& shift, const ir::Shape& size) {
  check_pair("shift", shift, 0);
  CHECK(
      shift[0] < size[0] && shift[1] < size[1],
      "a shift is smaller than its window: " + ir::to_string(shift) + " of " + ir::to_string(size));
}

// Windows of an image; what is missing from the last ones is padding.
inline std::int64_t windows(std::int64_t h, std::int64_t w, const ir::Shape& size) {
  const auto count = [](std::int64_t extent, std::int64_t of) { return (extent + of - 1) / of; };
  return count(h, size[0]) * count(w, size[1]);
}

}  // namespace tessera::ops
