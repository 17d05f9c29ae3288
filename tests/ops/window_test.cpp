// Windows by hand, and by the properties that define them: what is cut comes back, and nobody
// attends across the seam of a roll.
#include <numeric>

#include "ops/cases.h"
#include "ops/on_device.h"

namespace tessera::test::window_test {
namespace {

using ir::DType;
using ir::Op;
using ir::Shape;

class Window : public EveryDevice {};
FOR_EVERY_DEVICE(Window);

Array counting(Shape shape) {
  Array a(DType::f64, std::move(shape));
  for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, static_cast<double>(i + 1));
  return a;
}
void expect_values(const Array& a, const std::vector<double>& want) {
  ASSERT_EQ(a.size(), static_cast<std::int64_t>(want.size()));
  for (std::int64_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(a[i], want[static_cast<std::size_t>(i)]) << i;
}

TEST_P(Window, ByHand) {
  // 1 2 3     rolled by one up and left, padded to 2 x 4:  5 6 _ 4
  // 4 5 6                                                  2 3 _ 1
  const Array cut = run(Op::window, ir::Window{{2, 2}, {1, 1}, {}}, {counting({1, 2, 3, 1})})[0];
  EXPECT_EQ(cut.shape(), (Shape{1, 2, 4, 1}));
  expect_values(cut, {5, 6, 2, 3, 0, 4, 0, 1});
}

TEST_P(Window, WhatIsCutComesBack) {
  for (const Shape& image : {Shape{2, 4, 6, 3}, Shape{1, 5, 7, 2}, Shape{2, 1, 9, 1}})
    for (const Shape& size : {Shape{2, 2}, Shape{4, 3}, Shape{7, 7}})
      for (const Shape& shift : {Shape{0, 0}, Shape{1, 1}, Shape{0, 1}}) {
        const Array x = counting(image);
        const Array cut = run(Op::window, ir::Window{size, shift, {}}, {x})[0];
        const Array back =
            run(Op::unwindow, ir::Window{size, shift, {image[1], image[2]}}, {cut})[0];
        EXPECT_TRUE(back.same_bits(x));
      }
}

// Two tokens of a window may see each other exactly when they are as far apart in the image as in
// the window.
TEST_P(Window, MaskHidesWhatTheRollBroughtTogether) {
  const Shape size{4, 3}, shift{2, 1};
  const std::int64_t h = 8, w = 9, t = 12;
  const Array cut = run(Op::window, ir::Window{size, shift, {}}, {counting({1, h, w, 1})})[0];
  const Array mask = run(Op::window_mask, ir::WindowMask{size, shift, {h, w}, DType::f64}, {})[0];
  for (std::int64_t n = 0; n < 6; ++n)
    for (std::int64_t i = 0; i < t; ++i)
      for (std::int64_t j = 0; j < t; ++j) {
        const auto a = static_cast<std::int64_t>(cut[n * t + i]) - 1,
                   b = static_cast<std::int64_t>(cut[n * t + j]) - 1;
        const bool together = a / w - b / w == i / 3 - j / 3 && a % w - b % w == i % 3 - j % 3;
        EXPECT_EQ(mask[(n * t + i) * t + j], together ? 0 : -100) << n << " " << i << " " << j;
      }
}

TEST_P(Window, BiasFollowsTheRelativePosition) {
  // 1 x 3 windows: rows of the table stand for offsets -2 .. 2 of i - j
  const Array bias = run(Op::bias_table, ir::BiasTable{{1, 3}}, {counting({5, 1})})[0];
  expect_values(bias, {3, 2, 1, 4, 3, 2, 5, 4, 3});
  const Array grad = run(Op::bias_table_grad, ir::BiasTable{{1, 3}}, {counting({1, 3, 3})})[0];
  expect_values(grad, {3, 2 + 6, 1 + 5 + 9, 4 + 8, 7});
}

TEST_P(Window, RefusesWhatIsNoWindow) {
  const std::vector<ir::Type> image = {{DType::f32, {1, 4, 4, 2}, {}}};
  for (const auto& [size, shift] :
       {std::pair{Shape{0, 2}, Shape{0, 0}}, std::pair{Shape{2}, Shape{0, 0}},
        std::pair{Shape{2, 2}, Shape{2, 0}}, std::pair{Shape{2, 2}, Shape{-1, 0}},
        std::pair{Shape{2, 2}, Shape{}}, std::pair{Shape{1 << 21, 2}, Shape{0, 0}}})
    EXPECT_ANY_THROW(ir::infer(Op::window, ir::Window{size, shift, {}}, image));
  EXPECT_ANY_THROW(ir::infer(Op::unwindow, ir::Window{{2, 2}, {0, 0}, {4, 5}}, image));
  EXPECT_ANY_THROW(ir::infer(Op::bias_table, ir::BiasTable{{2, 2}},
                             std::vector<ir::Type>{{DType::f32, {8, 3}, {}}}));
}

}  // namespace
}  // namespace tessera::test::window_test
