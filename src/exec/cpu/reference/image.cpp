#include "exec/common/augmented.h"
#include "exec/common/pixel_table.h"
#include "exec/common/resize.h"
#include "exec/cpu/reference/instantiate.h"

namespace tessera::exec::cpu {

template <class T>
void reference_normalise(const Call& call) {
  const ir::Normalise& attrs = call.attr<ir::Normalise>();
  const std::int64_t channels = call.in[0].shape.back();
  for (std::int64_t i = 0; i < call.in[0].elements(); ++i)
    call.out[0].as<T>()[i] = static_cast<T>(normalised(
        attrs, static_cast<std::size_t>(i % channels), call.in[0].as<std::uint8_t>()[i]));
}

namespace {

// One number of a picture after its crop, its mirror and what hides it.
float augmented(const ir::Augment& attrs, const std::uint8_t* picture, const PictureDraw& draw,
                const PictureShape& shape, std::int64_t y, std::int64_t x, std::int64_t k) {
  if (is_hidden(draw, y, x)) return 0;
  const std::int64_t row = shown_row(draw, shape, y, attrs.reflect),
                     column = shown_column(draw, shape, x, attrs.reflect);
  const int pixel = row < 0 || column < 0 ? 0 : picture[row * shape.row() + column * shape.c + k];
  return normalised(numbers_of(attrs), static_cast<std::size_t>(k), pixel);
}

}  // namespace

template <class T>
void reference_augment(const Call& call) {
  const ir::Augment& attrs = call.attr<ir::Augment>();
  const ir::Shape& dims = call.in[0].shape;
  const PictureShape shape{dims[1], dims[2], dims[3]};
  for (std::int64_t i = 0; i < call.out[0].elements(); ++i) {
    const std::int64_t sample = i / shape.values(), y = i % shape.values() / shape.row(),
                       x = i % shape.row() / shape.c, k = i % shape.c;
    const auto number = [&](std::size_t operand) {
      return augmented(attrs, call.in[operand].as<std::uint8_t>() + sample * shape.values(),
                       call.in[operand + 1].as<PictureDraw>()[sample], shape, y, x, k);
    };
    const PictureDraw& draw = call.in[1].as<PictureDraw>()[sample];
    float value = number(0);
    if (call.in.size() == 4 && draw.patch.holds(y, x))
      value = number(2);
    else if (call.in.size() == 4 && draw.keep != PictureDraw::whole)
      value = blended(draw.keep, value, number(2));
    call.out[0].as<T>()[i] = static_cast<T>(value);
  }
}

template <class T>
void reference_gather_samples(const Call& call) {
  const Tensor &set = call.in[0], &out = call.out[0];
  const std::int64_t samples = call.in[1].elements();
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const std::int64_t index = call.in[1].as<std::int32_t>()[sample],
                       bytes = out.elements() / samples * ir::size_of(out.dtype);
    const bool there = index >= 0 && index < set.shape[0];
    for (std::int64_t i = 0; i < bytes; ++i)
      out.data[sample * bytes + i] = there ? set.data[index * bytes + i] : std::byte{0};
  }
}

template <class T>
void reference_resize(const Call& call) {
  const ResizeTaps taps = resize_taps(call.attr<ir::Resize>(), call.in[0].shape);
  const ir::Shape &from = call.in[0].shape, &to = call.out[0].shape;
  const std::int64_t c = from[3], row = from[2] * c;
  for (std::int64_t i = 0; i < call.out[0].elements(); ++i) {
    const std::int64_t k = i % c, x = i / c % to[2], y = i / c / to[2] % to[1],
                       sample = i / c / to[2] / to[1];
    const std::uint8_t* const picture = call.in[0].as<std::uint8_t>() + sample * from[1] * row + k;
    const auto across = [&](std::int64_t at) {
      return resized_value(taps.across, x,
                           [&](std::int64_t column) { return picture[at * row + column * c]; });
    };
    call.out[0].as<std::uint8_t>()[i] = resized_value(taps.down, y, across);
  }
}

REFERENCE(normalise)
REFERENCE(augment)
REFERENCE(gather_samples)
REFERENCE(resize)

}  // namespace tessera::exec::cpu
