// The op augment for one number: the crop, the mirror and the padding say which pixel, boxes what
// is hidden and what the partner gives, the share how two are blended. Convention: kernels of every
// device call these, so that they agree to the bit; any row of draws is safe, whatever it holds.
#pragma once

#include <cstdint>

#include "base/picture_draw.h"
#include "ir/op.h"

namespace tessera::exec {

struct PictureShape {
  std::int64_t h = 0, w = 0, c = 0;
  constexpr std::int64_t row() const { return w * c; }
  constexpr std::int64_t values() const { return h * w * c; }
};

// A coordinate outside of 0 .. size-1 mirrored at the border pixels, as often as needed.
constexpr std::int64_t reflected_at(std::int64_t at, std::int64_t size) {
  if (at >= 0 && at < size) return at;
  if (size == 1) return 0;
  const std::int64_t period = 2 * (size - 1);
  at = (at % period + period) % period;
  return at < size ? at : period - at;
}

// The row and the column of the picture that a row and a column of the result show; -1: the
// padding.
constexpr std::int64_t shown(std::int64_t at, std::int64_t size, bool reflect) {
  if (reflect) return reflected_at(at, size);
  return at >= 0 && at < size ? at : -1;
}
constexpr std::int64_t shown_row(const PictureDraw& draw, const PictureShape& shape, std::int64_t y,
                                 bool reflect) {
  return shown(draw.top + y, shape.h, reflect);
}
constexpr std::int64_t shown_column(const PictureDraw& draw, const PictureShape& shape,
                                    std::int64_t x, bool reflect) {
  return shown(draw.left + (draw.mirrored ? shape.w - 1 - x : x), shape.w, reflect);
}

constexpr bool is_hidden(const PictureDraw& draw, std::int64_t y, std::int64_t x) {
  return draw.hidden[0].holds(y, x) || draw.hidden[1].holds(y, x);
}

constexpr bool reads_partner(const PictureDraw& draw) {
  return draw.keep != PictureDraw::whole || (draw.patch.h > 0 && draw.patch.w > 0);
}

// Products of f32 numbers are exact in double, so that fused or not gives the same bits.
constexpr float blended(std::int32_t keep, float own, float partner) {
  const double kept = keep * 0x1.0p-20, given = 1.0 - kept;
  return static_cast<float>(kept * own + given * partner);
}

inline ir::Normalise numbers_of(const ir::Augment& attrs) {
  return {attrs.mean, attrs.deviation, attrs.to};
}

}  // namespace tessera::exec
