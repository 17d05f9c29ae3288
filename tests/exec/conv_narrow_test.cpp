// Convolutions of images with few channels in bf16, with every micro-kernel that this machine has:
// against the one in double, with the same bits for any number of threads and for packed filters,
// and a NaN or an infinity reaches the windows that have it and no other. Scratch begins as NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "exec/conv_sizes.h"
#include "exec/cpu/gemm/micro.h"
#include "portable/micros_in_use.h"

namespace tessera::test::conv_narrow_test {
namespace {

using ir::DType;
using ir::Op;
using std::int64_t;

// Lines of results that are no groups of 16 pixels; rows of a filter that are one step of k, when
// channels are filled up to fours, and others that are not: too long, or too many.
const ConvSizes all_sizes[] = {{2, 37, 41, 3, 64, 7, 7, 2, 3}, {1, 20, 64, 3, 33, 7, 7, 2, 3},
                               {2, 9, 35, 1, 5, 5, 5, 1, 2},   {2, 10, 33, 2, 40, 3, 3, 1, 1},
                               {3, 8, 17, 4, 16, 3, 3, 2, 1},  {1, 12, 21, 5, 8, 3, 4, 1, 0},
                               {2, 9, 20, 7, 3, 2, 3, 1, 1},   {1, 12, 30, 3, 20, 8, 8, 2, 3},
                               {1, 1, 2, 1, 1, 1, 2, 1, 0},    {2, 4, 9, 2, 6, 1, 3, 1, 0},
                               {1, 3, 3, 3, 2, 5, 7, 1, 3},    {2, 40, 40, 3, 8, 11, 11, 4, 2},
                               {1, 20, 20, 1, 4, 17, 3, 1, 1}, {2, 5, 6, 9, 12, 3, 3, 1, 1},
                               {1, 33, 50, 1, 300, 7, 7, 1, 3}};

Array normal(const ir::Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  return normal_low(shape, random);
}
Array reference(const ConvSizes& n, const Array& x, const Array& f) {
  ThreadPool pool(2);
  return std::move(
      run_reference(Op::conv, n.attrs(), {x.as(DType::f64), f.as(DType::f64)}, pool)[0]);
}

Array convolved(const ConvSizes& n, const Array& x, const Array& f, bool packs, int threads) {
  const ir::Attrs attrs = n.attrs();
  const std::vector<exec::Tensor> in = {x.tensor(), f.tensor()};
  const std::vector<ir::Type> types = {{DType::bf16, n.images(), {}},
                                       {DType::bf16, n.filters(), {}}};
  Array y(DType::bf16, n.results());
  const std::vector<exec::Tensor> out = {y.tensor()};
  const exec::cpu::Scratch need = exec::cpu::scratch_conv(attrs, types, {}).aligned();
  Array shared(DType::u8, {static_cast<int64_t>(need.shared)});
  Array own(DType::u8, {static_cast<int64_t>(need.per_thread) * threads});
  Array packed(DType::u8, {exec::cpu::packed_conv(attrs, types, 1, {}).bytes});
  for (const Array* a : {&y, &shared, &own, &packed})
    std::fill_n(a->data(), a->bytes(), std::byte{0xff});
  ThreadPool pool(threads);
  exec::cpu::Call call{Op::conv, attrs, in, out, pool, need, shared.data(), own.data()};
  if (packs) {
    call.packed = packed.data();
    call.packed_bytes = packed.size();
    exec::cpu::pack_conv(call);
  }
  exec::cpu::fast_conv(call);
  for (const Array* a : {&y, &shared, &own, &packed}) EXPECT_TRUE(a->guards_intact());
  return y;
}

class NarrowConv : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(exec::cpu::use_low_micro(GetParam())); }
  MicrosInUse kept_;
};
std::vector<std::string> kernels() {
  std::vector<std::string> out;
  for (const exec::cpu::Micro* micro : exec::cpu::low_micros()) out.emplace_back(micro->name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(, NarrowConv, testing::ValuesIn(kernels()),
                         [](const auto& info) { return info.param; });

TEST_P(NarrowConv, IsThatOfTheReference) {
  for (const ConvSizes& n : all_sizes) {
    SCOPED_TRACE(n.text());
    const Array x = normal(n.images(), 1), f = normal(n.filters(), 2),
                once = convolved(n, x, f, false, 1);
    EXPECT_LE(relative_error(once, reference(n, x, f)), 4e-3);  // bf16 rounds to 2^-9
    for (const int threads : {2, 5})
      EXPECT_TRUE(once.same_bits(convolved(n, x, f, threads == 5, threads)));
  }
}

// A number beside a window is never multiplied, be it by zero.
TEST_P(NarrowConv, KeepsNaNsInTheirWindows) {
  for (const ConvSizes& n : all_sizes) {
    const Array clean = normal(n.images(), 1), f = normal(n.filters(), 2);
    for (const int64_t at : {int64_t{0}, clean.size() / 2, clean.size() / 3, clean.size() - 1})
      for (const double bad :
           {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        Array x = normal(n.images(), 1);
        x.set(at, bad);
        const Array got = convolved(n, x, f, true, 2), want = reference(n, x, f);
        int64_t different = 0;
        for (int64_t i = 0; i < got.size(); ++i)
          different += std::isfinite(got[i]) != std::isfinite(want[i]);
        EXPECT_EQ(different, 0) << n.text() << ", " << bad << " at " << at;
      }
  }
}

}  // namespace
}  // namespace tessera::test::conv_narrow_test
