// The gradient of filters from turned images against the one in double, with every micro-kernel of
// bf16 that this machine has: borders, strides, groups of images and chunks of pixels, and the same
// bits for any number of threads. Scratch begins as NaN, so each zero between pixels must be
// written.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "exec/cpu/images/conv.h"
#include "ir/builder.h"
#include "ops/array.h"
#include "ops/interpret.h"
#include "portable/micros_in_use.h"

namespace tessera::test::conv_filter_grad_turned_test {
namespace {

using ir::DType;
using ir::Op;
using std::int64_t;

struct Sizes {
  int64_t b, h, w, c, o, k, l, stride, pad;

  ir::Conv attrs() const { return {stride, pad, k, l}; }
  ir::Shape images() const { return {b, h, w, c}; }
  ir::Shape gradient() const {
    return {b, (h + 2 * pad - k) / stride + 1, (w + 2 * pad - l) / stride + 1, o};
  }
  ir::Shape filters() const { return {k, l, c, o}; }
  std::string text() const {
    return ir::to_string(images()) + " " + ir::to_string(filters()) + " stride " +
           std::to_string(stride) + " pad " + std::to_string(pad);
  }
};

// Numbers that bf16 has.
std::vector<Array> operands(const Sizes& n) {
  std::mt19937 random(static_cast<unsigned>(n.h * 31 + n.c * 7 + n.o));
  std::normal_distribution<double> normal;
  std::vector<Array> in;
  for (const ir::Shape& shape : {n.gradient(), n.images()}) {
    Array& a = in.emplace_back(DType::bf16, shape);
    for (int64_t i = 0; i < a.size(); ++i) a.set(i, normal(random));
  }
  return in;
}

Array turned(const Sizes& n, const std::vector<Array>& in, DType result, int threads) {
  const ir::Attrs attrs = n.attrs();
  Array dw(result, n.filters());
  const exec::cpu::Scratch need =
      exec::cpu::scratch_filter_grad_turned(n.attrs(), n.gradient(), n.images(), n.filters(),
                                            result != DType::bf16)
          .aligned();
  Array shared(DType::u8, {static_cast<int64_t>(need.shared)});
  Array own(DType::u8, {static_cast<int64_t>(need.per_thread) * threads});
  for (const Array* a : {&dw, &shared, &own}) std::fill_n(a->data(), a->bytes(), std::byte{0xff});
  ThreadPool pool(threads);
  const std::vector<exec::Tensor> from = {in[0].tensor(), in[1].tensor()}, to = {dw.tensor()};
  exec::cpu::filter_grad_turned(
      {Op::conv_filter_grad, attrs, from, to, pool, need, shared.data(), own.data()});
  EXPECT_TRUE(dw.guards_intact() && shared.guards_intact() && own.guards_intact());
  return dw;
}

void expect_exact(const Sizes& n) {
  SCOPED_TRACE(n.text());
  ASSERT_TRUE(exec::cpu::turned_filters_serve(n.attrs(), n.gradient(), n.images(), n.filters()));
  const std::vector<Array> in = operands(n);
  std::vector<Array> wide;
  for (const Array& a : in) wide.push_back(a.as(DType::f64));
  ThreadPool pool(2);
  const Array exact = std::move(run_reference(Op::conv_filter_grad, n.attrs(), wide, pool)[0]);
  const Array once = turned(n, in, DType::f32, 1);
  EXPECT_LE(relative_error(once, exact), 2e-6);  // that of the sums in the op cases
  EXPECT_LE(relative_error(turned(n, in, DType::bf16, 3), exact), 4e-3);
  for (const int threads : {2, 5}) EXPECT_TRUE(once.same_bits(turned(n, in, DType::f32, threads)));
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
  for (const Sizes& n : std::vector<Sizes>{{2, 5, 6, 16, 4, 3, 3, 1, 1},
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
  const auto pays = [](const Sizes& n) {
    return exec::cpu::turned_filters_pay(n.attrs(), n.gradient(), n.images(), n.filters());
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
