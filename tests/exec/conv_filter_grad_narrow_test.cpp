// The gradient of filters from images of few channels against the one in double, with the
// micro-kernels that have a product of their own: borders, strides, strips of lines and chunks of
// them, and the same bits for any number of threads. Scratch begins as NaN, so each zero must be
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

namespace tessera::test::conv_filter_grad_narrow_test {
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

Array narrow(const Sizes& n, const std::vector<Array>& in, DType result, int threads) {
  const ir::Attrs attrs = n.attrs();
  Array dw(result, n.filters());
  const exec::cpu::Scratch need =
      exec::cpu::scratch_filter_grad_narrow(n.attrs(), n.gradient(), n.images(), n.filters())
          .aligned();
  Array shared(DType::u8, {static_cast<int64_t>(need.shared)});
  Array own(DType::u8, {static_cast<int64_t>(need.per_thread) * threads});
  for (const Array* a : {&dw, &shared, &own}) std::fill_n(a->data(), a->bytes(), std::byte{0xff});
  ThreadPool pool(threads);
  const std::vector<exec::Tensor> from = {in[0].tensor(), in[1].tensor()}, to = {dw.tensor()};
  exec::cpu::filter_grad_narrow(
      {Op::conv_filter_grad, attrs, from, to, pool, need, shared.data(), own.data()});
  EXPECT_TRUE(dw.guards_intact() && shared.guards_intact() && own.guards_intact());
  return dw;
}

void expect_exact(const Sizes& n) {
  SCOPED_TRACE(n.text());
  ASSERT_TRUE(exec::cpu::narrow_filters_serve(n.attrs(), n.gradient(), n.images(), n.filters()));
  const std::vector<Array> in = operands(n);
  std::vector<Array> wide;
  for (const Array& a : in) wide.push_back(a.as(DType::f64));
  ThreadPool pool(2);
  const Array exact = std::move(run_reference(Op::conv_filter_grad, n.attrs(), wide, pool)[0]);
  const Array once = narrow(n, in, DType::f32, 1);
  EXPECT_LE(relative_error(once, exact), 2e-6);  // that of the sums in the op cases
  EXPECT_LE(relative_error(narrow(n, in, DType::bf16, 3), exact), 4e-3);
  for (const int threads : {2, 5}) EXPECT_TRUE(once.same_bits(narrow(n, in, DType::f32, threads)));
}

TEST(NarrowFilters, AreThoseOfTheReference) {
  const MicrosInUse kept;
  int kernels = 0;
  for (const exec::cpu::Micro* micro : exec::cpu::low_micros()) {
    if (!micro->product) continue;
    ++kernels;
    ASSERT_TRUE(exec::cpu::use_low_micro(micro->name));
    for (const Sizes& n : std::vector<Sizes>{{2, 37, 41, 3, 64, 7, 7, 2, 3},
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
  const auto serve = [](const Sizes& n) {
    return exec::cpu::narrow_filters_serve(n.attrs(), n.gradient(), n.images(), n.filters());
  };
  EXPECT_TRUE(serve({8, 224, 224, 3, 64, 7, 7, 2, 3}));
  EXPECT_FALSE(serve({8, 224, 224, 16, 64, 3, 3, 1, 1}));  // many channels
  EXPECT_FALSE(serve({8, 224, 224, 3, 64, 1, 1, 1, 0}));   // one pixel is all that is read
  EXPECT_FALSE(serve({0, 224, 224, 3, 64, 7, 7, 2, 3}));   // no image
  EXPECT_FALSE(serve({1, 8, 20000, 3, 64, 7, 7, 1, 3}));   // lines too long
}

}  // namespace
}  // namespace tessera::test::conv_filter_grad_narrow_test
