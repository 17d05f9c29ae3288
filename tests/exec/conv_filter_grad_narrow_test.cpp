// The gradient of filters from images of few channels against the one in double, with the
// micro-kernels that have a product of their own: borders, strides, strips of lines and chunks of
// them, and the same bits for any number of threads. Scratch begins as NaN, so each zero must be
// written.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exec/conv_sizes.h"
#include "portable/micros_in_use.h"

namespace tessera::test::conv_filter_grad_narrow_test {
namespace {

void expect_exact(const ConvSizes& n) {
  SCOPED_TRACE(n.text());
  const ir::Conv attrs = n.gradient_attrs();
  ASSERT_TRUE(exec::cpu::narrow_filters_serve(attrs, n.results(), n.images(), n.filters()));
  const FilterGradient narrow{
      exec::cpu::scratch_filter_grad_narrow(attrs, n.results(), n.images(), n.filters()),
      exec::cpu::filter_grad_narrow};
  test::expect_exact(n, narrow, narrow);
}

TEST(NarrowFilters, AreThoseOfTheReference) {
  const MicrosInUse kept;
  int kernels = 0;
  for (const exec::cpu::Micro* micro : exec::cpu::low_micros()) {
    if (!micro->product) continue;
    ++kernels;
    ASSERT_TRUE(exec::cpu::use_low_micro(micro->name));
    for (const ConvSizes& n : std::vector<ConvSizes>{{2, 37, 41, 3, 64, 7, 7, 2, 3},
                                                     {1, 224, 224, 3, 64, 7, 7, 2, 3},
                                                     {40, 9, 11, 3, 33, 3, 3, 1, 1},
                                                     {2, 10, 33, 2, 40, 3, 3, 1, 1},
                                                     {3, 8, 17, 4, 16, 3, 3, 2, 1},
                                                     {1, 12, 21, 5, 8, 3, 4, 1, 0},
                                                     {2, 9, 20, 7, 3, 2, 3, 1, 1},
                                                     {1, 20, 23, 1, 5, 5, 5, 3, 2},
                                                     {1, 9, 9, 2, 3, 1, 2, 3, 0},
                                                     {2, 15, 16, 15, 70, 3, 5, 1, 2},
                                                     {1, 1, 2, 1, 1, 1, 2, 1, 0},
                                                     {2, 60, 300, 3, 8, 11, 11, 4, 2}})
      expect_exact(n);
  }
  if (kernels == 0) GTEST_SKIP() << "no micro-kernel here has a product of its own";
}

TEST(NarrowFilters, ServeImagesOfFewChannels) {
  const auto serve = [](const ConvSizes& n) {
    return exec::cpu::narrow_filters_serve(n.gradient_attrs(), n.results(), n.images(),
                                           n.filters());
  };
  EXPECT_TRUE(serve({8, 224, 224, 3, 64, 7, 7, 2, 3}));
  EXPECT_FALSE(serve({8, 224, 224, 16, 64, 3, 3, 1, 1}));  // many channels
  EXPECT_FALSE(serve({8, 224, 224, 3, 64, 1, 1, 1, 0}));   // one pixel is all that is read
  EXPECT_FALSE(serve({0, 224, 224, 3, 64, 7, 7, 2, 3}));   // no image
  EXPECT_FALSE(serve({1, 8, 20000, 3, 64, 7, 7, 1, 3}));   // lines too long
}

}  // namespace
}  // namespace tessera::test::conv_filter_grad_narrow_test
