// The augmentation of one picture of a batch as plain numbers: data/ draws them, the op augment
// moves the pixels on any device. Convention: it is one row of a table i32[n, 16]; boxes count
// pixels of the picture after the crop and the mirror.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera {

struct PictureBox {
  std::int32_t top = 0, left = 0, h = 0, w = 0;

  constexpr bool holds(std::int64_t y, std::int64_t x) const {
    return y >= top && y - top < h && x >= left && x - left < w;
  }
  bool operator==(const PictureBox&) const = default;
};

struct PictureDraw {
  // A share of 1. Shares are drawn on this grid (data/mix.h), so whole numbers of it are exact.
  static constexpr std::int32_t whole = 1 << 20;

  std::int32_t top = 0, left = 0;  // where the crop begins in the picture; outside is the padding
  std::int32_t mirrored = 0;       // the crop, from left to right
  PictureBox hidden[2] = {};       // erased, and cut out: numbers in it are 0
  std::int32_t keep = whole;       // the share that it keeps of itself; the rest is the partner's
  PictureBox patch = {};           // numbers in it are the partner's
  bool operator==(const PictureDraw&) const = default;
};

inline constexpr std::int64_t picture_draw_columns = 16;
static_assert(sizeof(PictureDraw) == picture_draw_columns * sizeof(std::int32_t));
static_assert(std::is_trivially_copyable_v<PictureDraw>);

}  // namespace tessera
