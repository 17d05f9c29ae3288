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
  return {
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
