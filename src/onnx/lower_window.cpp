// Shifted windows. The mask and the bias by relative position follow from parameters and sizes, so
// they become constants.
#include "onnx/lowering.h"

namespace tessera::onnx {
namespace {

using namespace ir;

std::int64_t windows_along(std::int64_t extent, std::int64_t size) {
  return (extent + size - 1) / size;
}

// Rows (or columns) from `shift` on, then those before it.
std::string rolled(Lowering& to, const std::string& x, int dim, std::int64_t extent,
                   std::int64_t shift) {
  if (shift == 0) return x;
  return to.node("Concat", {to.slice(x, dim, shift, extent), to.slice(x, dim, 0, shift)},
                 {{"axis", std::int64_t{dim}}});
}

void window(Lowering& to, const Eqn& e) {
  const Window& attrs = std::get<Window>(e.attrs);
  const Shape &s = to.shape(e.in[0]), &result = to.shape(e.out[0]);
  const std::int64_t wh = attrs.size[0], ww = attrs.size[1], rows = windows_along(s[1], wh),
                     columns = windows_along(s[2], ww);
  std::string x = to.name(e.in[0]);
  if (rows * wh != s[1] || columns * ww != s[2])
    x = to.node("Pad", {x, to.whole({0, 0, 0, 0, 0, rows * wh - s[1], columns * ww - s[2], 0})});
  x = rolled(to, x, 1, rows * wh, attrs.shift[0]);
  x = rolled(to, x, 2, columns * ww, attrs.shift[1]);
  x = to.reshape(x, {}, {s[0], rows, wh, columns, ww, s[3]});
  to.set(e.out[0], to.reshape(to.transpose(x, {0, 1, 3, 2, 4, 5}), {}, result));
}

void unwindow(Lowering& to, const Eqn& e) {
  const Window& attrs = std::get<Window>(e.attrs);
  const Shape& s = to.shape(e.out[0]);
  const std::int64_t wh = attrs.size[0], ww = attrs.size[1], rows = windows_along(s[1], wh),
                     columns = windows_along(s[2], ww);
  std::string x = to.reshape(to.name(e.in[0]), {}, {s[0], rows, columns, wh, ww, s[3]});
  x = to.reshape(to.transpose(x, {0, 1, 3, 2, 4, 5}), {}, {s[0], rows * wh, columns * ww, s[3]});
  const auto back = [](std::int64_t extent, std::int64_t shift) {
    return shift == 0 ? 0 : extent - shift;
  };
  x = rolled(to, x, 1, rows * wh, back(rows * wh, attrs.shift[0]));
  x = rolled(to, x, 2, columns * ww, back(columns * ww, attrs.shift[1]));
  if (rows * wh != s[1]) x = to.slice(x, 1, 0, s[1]);
  if (columns * ww != s[2]) x = to.slice(x, 2, 0, s[2]);
  to.set(e.out[0], x);
}

// Which part of a rolled dim a position belongs to.
std::int64_t part_of(std::int64_t position, std::int64_t extent, std::int64_t size,
                     std::int64_t shift) {
  if (shift == 0 || position < extent - size) return 0;
  return position < extent - shift ? 1 : 2;
}

void window_mask(Lowering& to, const Eqn& e) {
  const WindowMask& attrs = std::get<WindowMask>(e.attrs);
  const std::int64_t wh = attrs.size[0], ww = attrs.size[1], tokens = wh * ww,
                     rows = windows_along(attrs.image[0], wh),
                     columns = windows_along(attrs.image[1], ww);
  Constant mask{to.shape(e.out[0]), {}};
  for (std::int64_t n = 0; n < rows * columns; ++n) {
    const auto region = [&](std::int64_t t) {
      return 3 * part_of(n / columns * wh + t / ww, rows * wh, wh, attrs.shift[0]) +
             part_of(n % columns * ww + t % ww, columns * ww, ww, attrs.shift[1]);
    };
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j < tokens; ++j)
        mask.values.push_back(region(i) == region(j) ? 0.0F : -100.0F);
  }
  to.set_constant(e.out[0], std::move(mask));
}

void bias_table(Lowering& to, const Eqn& e) {
  const Shape& size = std::get<BiasTable>(e.attrs).size;
  const Constant& table = to.constant(e.in[0]);
  const std::int64_t heads = table.shape[1], w = size[1], tokens = size[0] * w;
  Constant bias{to.shape(e.out[0]), {}};
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < tokens; ++i)
      for (std::int64_t j = 0; j < tokens; ++j) {
        const std::int64_t row =
            (i / w - j / w + size[0] - 1) * (2 * w - 1) + i % w - j % w + w - 1;
        bias.values.push_back(table.values[static_cast<std::size_t>(row * heads + h)]);
      }
  to.set_constant(e.out[0], std::move(bias));
}

}  // namespace

bool lower_window(Lowering& to, const Eqn& e) {
  switch (e.op) {
    case Op::window:
      window(to, e);
      return true;
    case Op::unwindow:
      unwindow(to, e);
      return true;
    case Op::window_mask:
      window_mask(to, e);
      return true;
    case Op::bias_table:
      bias_table(to, e);
      return true;
    default:
      return false;
  }
}

}  // namespace tessera::onnx
