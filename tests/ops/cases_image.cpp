// Pixels and what becomes of them. See cases.h.
#include "ops/families.h"

namespace tessera::test {

using namespace ir;

Rows image_cases() {
  const Normalise photographs{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}, DType::f32},
      half{{0.5}, {0.5}, DType::f32};
  const auto row = [](const std::string& name, const Normalise& attrs, Shape shape) {
    Case c{"normalise_" + name,
           Op::normalise,
           attrs,
           {{std::move(shape), Fill::labels, DType::u8}},
           exact};
    c.classes = 256;
    return c;
  };
  const auto augment = [](const std::string& name, const Augment& attrs, Shape shape, bool mixes) {
    const Operand pictures{shape, Fill::labels, DType::u8},
        rows{{shape[0], 16}, Fill::picture_draws, DType::i32};
    Case c{"augment_" + name, Op::augment, attrs, {pictures, rows}, exact};
    if (mixes) c.in = {pictures, rows, pictures, rows};
    c.classes = 256;
    return c;
  };
  const Augment black{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}, DType::f32, false},
      reflecting{{0.5}, {0.25}, DType::f32, true};
  const auto gather = [](const std::string& name, Operand set, std::int64_t indices) {
    Case c{"gather_samples_" + name, Op::gather_samples, None{}, {set, labels_of(indices)}, exact};
    c.classes = 7;  // of sets with 6: one of them is not there
    return c;
  };
  const auto resize = [](const std::string& name, const Resize& attrs, Shape shape) {
    Case c{
        "resize_" + name, Op::resize, attrs, {{std::move(shape), Fill::labels, DType::u8}}, exact};
    c.classes = 256;
    return c;
  };
  return {
      resize("up", {48, 48, 0, 0, 48, 48, false}, {3, 8, 8, 3}),
      resize("down", {5, 7, 0, 0, 5, 7, false}, {4, 33, 21, 3}),
      resize("same", {6, 9, 0, 0, 6, 9, false}, {2, 6, 9, 3}),
      resize("cubic", {29, 31, 2, 3, 20, 25, true}, {2, 9, 14, 3}),
      resize("middle", {40, 30, 5, 0, 30, 30, false}, {2, 16, 12, 1}),
      resize("five_channels", {9, 9, 1, 1, 7, 8, true}, {2, 12, 5, 5}),
      resize("large", {1100, 40, 0, 0, 1100, 40, false}, {1, 64, 8, 1}),  // in two windows
      resize("one_pixel", {4, 4, 0, 0, 4, 4, false}, {2, 1, 1, 3}),
      resize("empty", {4, 4, 0, 0, 4, 4, false}, {0, 3, 3, 3}),
      augment("moved", black, {7, 9, 9, 3}, false),
      augment("reflected", reflecting, {7, 9, 11, 3}, false),
      augment("mixed", black, {9, 8, 9, 3}, true),
      augment("mixed_reflected", reflecting, {6, 5, 7, 3}, true),
      augment("grey", reflecting, {4, 12, 9, 1}, true),
      augment("five_channels", reflecting, {3, 7, 4, 5}, true),
      augment("one_pixel", reflecting, {4, 1, 1, 3}, true),
      augment("wide", black, {2, 40, 33, 3}, true),
      augment("empty", black, {0, 4, 4, 3}, true),
      gather("pictures", {{6, 8, 4, 3}, Fill::labels, DType::u8}, 5),
      gather("odd_pictures", {{6, 5, 3, 3}, Fill::labels, DType::u8}, 11),
      gather("numbers", {{6, 3}, Fill::normal}, 9),
      gather("labels", {{6}, Fill::labels, DType::i32}, 9),
      gather("nothing", {{6, 4}, Fill::labels, DType::u8}, 0),
      row("photographs", photographs, {2, 9, 11, 3}),
      row("flat", half, {40001}),
      row("half", half, {3, 5, 7, 3}),
      row("grey", {{0.1307}, {0.3081}, DType::f32}, {4, 28, 28, 1}),
      row("alpha", {{0.1, 0.2, 0.3, 0.4}, {0.5, 0.6, 0.7, 0.8}, DType::f32}, {2, 33, 17, 4}),
      row("five_channels", {{0.5}, {0.1, 0.2, 0.3, 0.4, 0.5}, DType::f32}, {3, 7, 3, 5}),
      row("many_chunks", photographs, {5, 64, 64, 3}),
      // No straight line gives the bits of this one: its values are looked up.
      row("far_off", {{1e20}, {3}, DType::f32}, {2, 9, 3, 3}),
      row("one", photographs, {1, 1, 1, 3}),
      row("empty", photographs, {0, 4, 4, 3}),
  };
}

}  // namespace tessera::test
