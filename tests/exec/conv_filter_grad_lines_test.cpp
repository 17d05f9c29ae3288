// The gradient of filters in f32 line by line against the one in double: borders, strides, lines of
// several images together, chunks of lines, and the same bits for any number of threads. Scratch
// begins as NaN, so each zero of a border must be written.
#include <gtest/gtest.h>

#include <vector>

#include "exec/conv_sizes.h"
#include "exec/cpu/gemm/micro.h"

namespace tessera::test::conv_filter_grad_lines_test {
namespace {

bool serves(const ConvSizes& n) {
  return exec::cpu::filter_lines_serve(n.gradient_attrs(), n.results(), n.images(), n.filters());
}

TEST(FilterLines, GiveTheGradientOfFilters) {
  if (!exec::cpu::micro_f32().in_place.tile) GTEST_SKIP() << "tiles of f32 read packed rows here";
  for (const ConvSizes& n : std::vector<ConvSizes>{{2, 5, 6, 16, 4, 3, 3, 1, 1},
                                                   {2, 14, 14, 64, 40, 3, 3, 1, 1},
                                                   {9, 7, 7, 33, 65, 3, 3, 1, 1},
                                                   {2, 6, 7, 16, 31, 2, 5, 1, 0},
                                                   {2, 5, 6, 61, 64, 1, 1, 2, 0},
                                                   {3, 1, 1, 20, 5, 3, 3, 1, 1},
                                                   {2, 6, 6, 18, 130, 3, 3, 1, 2},
                                                   {2, 11, 10, 19, 34, 5, 3, 2, 1},
                                                   {1, 19, 17, 3, 33, 7, 7, 2, 3},
                                                   {2, 7, 9, 40, 33, 1, 1, 3, 0},
                                                   {1, 6, 300, 1, 7, 3, 3, 1, 1},
                                                   {20, 32, 32, 16, 16, 3, 3, 1, 1}}) {
    SCOPED_TRACE(n.text());
    ASSERT_TRUE(serves(n));
    const FilterGradient lines{exec::cpu::scratch_filter_grad_lines(n.gradient_attrs(), n.results(),
                                                                    n.images(), n.filters()),
                               exec::cpu::filter_grad_lines};
    expect_exact_in_f32(n, lines);
  }
}
TEST(FilterLines, AreForFewChannelsThatWouldBeGathered) {
  EXPECT_FALSE(serves({8, 14, 14, 65, 40, 3, 3, 1, 1}));
  EXPECT_FALSE(serves({8, 14, 14, 64, 256, 1, 1, 1, 0}));  // filters of one pixel
  EXPECT_FALSE(serves({0, 14, 14, 16, 40, 3, 3, 1, 1}));   // no image
  EXPECT_FALSE(serves({2, 14, 14, 0, 40, 3, 3, 1, 1}));
}

}  // namespace
}  // namespace tessera::test::conv_filter_grad_lines_test
