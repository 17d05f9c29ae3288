// The gradient of filters from turned images against the one in double, with every micro-kernel of
// bf16 that this machine has: borders, strides, groups of images and chunks of pixels, and the same
// bits for any number of threads. Scratch begins as NaN, so each zero between pixels must be
// written.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exec/conv_sizes.h"
#include "portable/micros_in_use.h"

namespace tessera::test::conv_filter_grad_turned_test {
namespace {

void expect_exact(const ConvSizes& n) {
  SCOPED_TRACE(n.text());
  const ir::Conv attrs = n.gradient_attrs();
  ASSERT_TRUE(exec::cpu::turned_filters_serve(attrs, n.results(), n.images(), n.filters()));
  const auto turned = [&](bool direct) {
    return FilterGradient{
        exec::cpu::scratch_filter_grad_turned(attrs, n.results(), n.images(), n.filters(), direct),
        exec::cpu::filter_grad_turned};
  };
  test::expect_exact(n, turned(true), turned(false));
}

class TurnedImages : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(exec::cpu::use_low_micro(GetParam())); }
  MicrosInUse kept_;
};
std::vector<std::string> kernels() {
  std::vector<std::string> out;
  for (const exec::cpu::Micro* micro : exec::cpu::low_micros())
    if (micro->turns) out.emplace_back(micro->name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(, TurnedImages, testing::ValuesIn(kernels()),
                         [](const auto& info) { return info.param; });

TEST_P(TurnedImages, GiveTheGradientOfFilters) {
  for (const ConvSizes& n : std::vector<ConvSizes>{{2, 5, 6, 16, 4, 3, 3, 1, 1},
                                                   {2, 14, 14, 64, 40, 3, 3, 1, 1},
                                                   {3, 7, 7, 33, 65, 3, 3, 1, 1},
                                                   {2, 6, 7, 16, 31, 2, 5, 1, 0},
                                                   {3, 4, 3, 40, 7, 1, 1, 1, 0},
                                                   {2, 5, 6, 65, 64, 1, 1, 2, 0},
                                                   {3, 1, 1, 20, 5, 3, 3, 1, 1},
                                                   {1, 1, 1, 16, 1, 1, 1, 1, 0},
                                                   {2, 6, 6, 18, 9, 3, 3, 1, 2},
                                                   {2, 11, 10, 19, 34, 5, 3, 1, 1},
                                                   {1, 9, 7, 3, 33, 7, 7, 1, 3},
                                                   {2, 7, 9, 40, 33, 1, 1, 3, 0},
                                                   {2, 8, 9, 16, 16, 3, 1, 1, 0},
                                                   {20, 14, 14, 32, 32, 1, 1, 1, 0}})
    expect_exact(n);
}
TEST_P(TurnedImages, AreTurnedInGroupsWhereTheyAreMany) {
  expect_exact({9, 224, 224, 16, 1, 1, 1, 1, 0});
}

TEST(TurnedImagesPay, WhereEachNumberIsMultipliedOften) {
  const auto pays = [](const ConvSizes& n) {
    return exec::cpu::turned_filters_pay(n.gradient_attrs(), n.results(), n.images(), n.filters());
  };
  EXPECT_TRUE(pays({8, 14, 14, 256, 256, 3, 3, 1, 1}));
  EXPECT_TRUE(pays({8, 14, 14, 1024, 512, 1, 1, 1, 0}));
  EXPECT_TRUE(pays({8, 28, 28, 512, 1024, 1, 1, 2, 0}));
  EXPECT_FALSE(pays({8, 56, 56, 256, 64, 1, 1, 1, 0}));
  EXPECT_FALSE(pays({8, 224, 224, 3, 64, 3, 3, 1, 1}));       // few channels
  EXPECT_FALSE(pays({8, 28, 28, 256, 256, 3, 3, 2, 1}));      // every other pixel under each tap
  EXPECT_FALSE(pays({0, 14, 14, 256, 256, 3, 3, 1, 1}));      // no image
  EXPECT_FALSE(pays({1, 1200, 1200, 512, 512, 3, 3, 1, 1}));  // too large to be turned
}

}  // namespace
}  // namespace tessera::test::conv_filter_grad_turned_test
