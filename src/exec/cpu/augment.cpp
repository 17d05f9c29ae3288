// Pictures of a batch to numbers, augmented on the way, and out of a set that is held whole. Each
// picture is a task.
#include <algorithm>
#include <cstring>

#include "exec/common/augmented.h"
#include "exec/common/pixel_table.h"
#include "exec/common/resize.h"
#include "exec/cpu/kernel.h"

namespace tessera::exec::cpu {
namespace {

// A picture and what becomes of it.
struct Seen {
  const std::uint8_t* pixels = nullptr;
  const PictureDraw* draw = nullptr;
};

// Writes the numbers of one pixel of the result, before it is mixed.
void look_at(const Seen& seen, const PictureShape& shape, bool reflect, const PixelTable& table,
             std::int64_t y, std::int64_t x, float* out) {
  if (is_hidden(*seen.draw, y, x)) return void(std::fill_n(out, shape.c, 0.0f));
  const std::int64_t row = shown_row(*seen.draw, shape, y, reflect),
                     column = shown_column(*seen.draw, shape, x, reflect);
  const std::uint8_t* pixel =
      row < 0 || column < 0 ? nullptr : seen.pixels + row * shape.row() + column * shape.c;
  for (std::int64_t k = 0; k < shape.c; ++k)
    out[k] = table[static_cast<std::size_t>(k)][pixel ? pixel[k] : 0];
}

// The partner's pixel takes the place of what is in `own`, or is blended with it; `other` has room
// for it.
void mix_in(const Seen& partner, const PictureDraw& draw, const PictureShape& shape, bool reflect,
            const PixelTable& table, std::int64_t y, std::int64_t x, float* other, float* own) {
  const bool patched = draw.patch.holds(y, x);
  if (!patched && draw.keep == PictureDraw::whole) return;
  look_at(partner, shape, reflect, table, y, x, other);
  for (std::int64_t k = 0; k < shape.c; ++k)
    own[k] = patched ? other[k] : blended(draw.keep, own[k], other[k]);
}

}  // namespace

void fast_augment(const Call& call) {
  const ir::Augment& attrs = call.attr<ir::Augment>();
  const ir::Shape& dims = call.in[0].shape;
  const PictureShape shape{dims[1], dims[2], dims[3]};
  const PixelTable& table = call.once<PixelTable>(
      [&] { return pixel_table(numbers_of(attrs), static_cast<std::size_t>(shape.c)); });
  const auto seen = [&](std::size_t operand, std::int64_t sample) {
    return Seen{call.in[operand].as<std::uint8_t>() + sample * shape.values(),
                call.in[operand + 1].as<PictureDraw>() + sample};
  };
  call.pool.parallel_for(dims[0], [&](std::int64_t sample, int thread) {
    const Seen own = seen(0, sample);
    const bool mixes = call.in.size() == 4 && reads_partner(*own.draw);
    float* to = call.out[0].as<float>() + sample * shape.values();
    for (std::int64_t y = 0; y < shape.h; ++y)
      for (std::int64_t x = 0; x < shape.w; ++x, to += shape.c) {
        look_at(own, shape, attrs.reflect, table, y, x, to);
        if (mixes)
          mix_in(seen(2, sample), *own.draw, shape, attrs.reflect, table, y, x,
                 call.scratch_of<float>(thread), to);
      }
  });
}

Scratch scratch_augment(const ir::Attrs&, std::span<const ir::Type> in, std::span<const ir::Type>) {
  return {0, static_cast<std::size_t>(in[0].shape[3]) * sizeof(float)};
}

void fast_gather_samples(const Call& call) {
  const Tensor &set = call.in[0], &indices = call.in[1], &out = call.out[0];
  const std::int64_t count = set.shape[0], samples = indices.elements();
  const std::int64_t bytes = samples == 0 ? 0 : out.elements() / samples * ir::size_of(out.dtype);
  call.pool.parallel_for(samples, [&](std::int64_t sample, int) {
    const std::int64_t index = indices.as<std::int32_t>()[sample];
    std::byte* to = out.data + sample * bytes;
    if (index < 0 || index >= count)
      std::memset(to, 0, static_cast<std::size_t>(bytes));
    else
      std::memcpy(to, set.data + index * bytes, static_cast<std::size_t>(bytes));
  });
}

// Across first: what the pass down reads is the thread's scratch, one value for every pixel of the
// result's columns.
void fast_resize(const Call& call) {
  const ResizeTaps& taps =
      call.once<ResizeTaps>([&] { return resize_taps(call.attr<ir::Resize>(), call.in[0].shape); });
  const ir::Shape &from = call.in[0].shape, &to = call.out[0].shape;
  const std::int64_t c = from[3], row = to[2] * c;
  call.pool.parallel_for(from[0], [&](std::int64_t sample, int thread) {
    const std::uint8_t* picture = call.in[0].as<std::uint8_t>() + sample * from[1] * from[2] * c;
    std::uint8_t* const rows = call.scratch_of<std::uint8_t>(thread);
    for (std::int64_t y = taps.down.reads_from(); y < taps.down.reads_to(); ++y)
      for (std::int64_t i = 0; i < row; ++i)
        rows[y * row + i] = resized_value(taps.across, i / c, [&](std::int64_t column) {
          return picture[(y * from[2] + column) * c + i % c];
        });
    std::uint8_t* out = call.out[0].as<std::uint8_t>() + sample * to[1] * row;
    for (std::int64_t y = 0; y < to[1]; ++y)
      for (std::int64_t i = 0; i < row; ++i)
        *out++ = resized_value(taps.down, y, [&](std::int64_t at) { return rows[at * row + i]; });
  });
}

Scratch scratch_resize(const ir::Attrs& attrs, std::span<const ir::Type> in,
                       std::span<const ir::Type>) {
  const std::int64_t values = in[0].shape[1] * std::get<ir::Resize>(attrs).columns * in[0].shape[3];
  return {0, static_cast<std::size_t>(values)};
}

}  // namespace tessera::exec::cpu
