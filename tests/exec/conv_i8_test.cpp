// conv of i8 images and filters: every micro-kernel of this machine against the sums in double, for
// odd shapes; the same bits for any number of threads, packed filters or not.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "exec/cpu/gemm/i8.h"
#include "exec/executor.h"
#include "ir/builder.h"
#include "ops/array.h"
#include "ops/interpret.h"
#include "plan/plan.h"
#include "portable/micros_in_use.h"

namespace tessera::test::conv_i8_test {
namespace {

using ir::DType;
using ir::Op;

struct Sizes {
  std::int64_t b, h, w, c, o, k, l, stride, pad;
  int after = 0;  // operands behind the scales: 0, 2 or 3

  std::string text() const { return ir::to_string(ir::Shape{b, h, w, c, o, k, l, stride, pad}); }
};

const std::vector<Sizes> all = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0},
    {2, 5, 6, 3, 4, 3, 3, 1, 1, 2},
    {2, 7, 6, 5, 3, 3, 3, 2, 1, 3},
    {3, 1, 1, 4, 5, 3, 3, 1, 1},  // most of a window lies outside
    {1, 15, 13, 3, 5, 7, 7, 2, 3, 3},
    {2, 6, 7, 2, 3, 2, 5, 1, 0},
    {2, 11, 10, 3, 2, 5, 3, 3, 2, 2},
    {1, 2, 1, 3, 2, 5, 5, 1, 4},  // both borders in one window
    {2, 5, 6, 40, 37, 1, 1, 1, 0, 3},
    {2, 5, 6, 40, 64, 1, 1, 2, 0, 2},
    {2, 9, 7, 33, 65, 3, 3, 1, 1, 3},
    {4, 17, 16, 16, 300, 1, 1, 1, 0, 3},  // several tiles of both sides
    {1, 4, 4, 200, 24, 3, 3, 1, 1},       // several blocks of k
    {0, 5, 5, 3, 2, 3, 3, 1, 1, 3},
};

struct Problem {
  ir::Conv attrs;
  std::vector<Array> in;

  Problem(const Sizes& n, DType out)
      : attrs{.stride = n.stride, .pad = n.pad, .relu = n.after == 3, .out = out, .scales = 2} {
    std::mt19937 random(static_cast<unsigned>(1 + n.h * 31 + n.c * 7 + n.o));
    std::normal_distribution<double> normal;
    const auto add = [&](DType type, const ir::Shape& shape, const auto& number) {
      Array& a = in.emplace_back(type, shape);
      for (std::int64_t i = 0; i < a.size(); ++i) a.set(i, number());
    };
    const auto byte = [&] { return static_cast<double>(static_cast<int>(random() % 255) - 127); };
    const auto scale = [&] { return 0.01 + std::abs(normal(random)) * 0.05; };
    add(DType::i8, {n.b, n.h, n.w, n.c}, byte);
    add(DType::i8, {n.k, n.l, n.c, n.o}, byte);
    add(DType::f32, {}, scale);
    add(DType::f32, {n.o}, scale);
    if (n.after > 0) {
      add(DType::f32, {n.o}, scale);
      add(DType::f32, {n.o}, [&] { return normal(random); });
    }
    if (n.after > 2)
      add(out, ir::infer(Op::conv, attrs, types_of(in))[0].shape, [&] { return normal(random); });
  }
};

// As a plan: filters are a parameter, which is packed once where `packs`.
Array run_plan(const Problem& p, int threads, bool packs) {
  const auto executor = exec::make_executor("cpu", threads, {}, exec::Carrier::host, "", {});
  ir::Builder b;
  std::vector<ir::Var> operands;
  for (const Array& a : p.in)
    operands.push_back(b.input(operands.size() == 1 ? ir::Input::param : ir::Input::batch,
                               "x" + std::to_string(operands.size()), a.type()));
  b.output("y", b.emit(Op::conv, p.attrs, operands)[0]);
  plan::Target target = executor->target();
  target.packs = packs;
  const plan::Plan plan = plan::lower(b.program(), 0, target);
  const auto loaded = executor->load(plan);
  executor->write_persistent("x1", 0, {p.in[1].data(), p.in[1].bytes()});
  for (std::size_t i = 0; i < p.in.size(); ++i)
    if (i != 1) loaded->write("x" + std::to_string(i), {p.in[i].data(), p.in[i].bytes()});
  loaded->run();
  const ir::Type type = ir::infer(Op::conv, p.attrs, types_of(p.in))[0];
  Array y(type.dtype, type.shape);
  loaded->read("y", {y.data(), y.bytes()});
  return y;
}

class ConvI8 : public ::testing::Test {
 protected:
  MicrosInUse kept_;
};

TEST_F(ConvI8, EveryMicroKernelEqualsTheReference) {
  ThreadPool pool(2);
  for (const exec::cpu::Micro* micro : exec::cpu::i8_micros()) {
    ASSERT_TRUE(exec::cpu::use_i8_micro(micro->name));
    for (const Sizes& sizes : all)
      for (const DType out : {DType::f32, DType::bf16}) {
        const Problem p(sizes, out);
        const Array want = std::move(run_reference(Op::conv, p.attrs, p.in, pool)[0]);
        const Array got = run_plan(p, 2, true);
        EXPECT_LE(relative_error(got, want), out == DType::f32 ? 1e-6 : 4e-3)
            << micro->name << " " << sizes.text();
        for (const int threads : {1, 3})
          EXPECT_TRUE(got.same_bits(run_plan(p, threads, threads == 1))) << sizes.text();
      }
  }
}

// The largest magnitudes of both factors under a window of ResNet's largest filters.
TEST_F(ConvI8, SumsAreExact) {
  Problem p({1, 3, 3, 512, 2, 3, 3, 1, 0}, DType::f32);
  for (std::int64_t i = 0; i < p.in[0].size(); ++i) p.in[0].set(i, -127);
  for (std::int64_t i = 0; i < p.in[1].size(); ++i) p.in[1].set(i, i % 2 == 0 ? -127 : 127);
  p.in[2].set(0, 1);
  p.in[3].set(0, 1);
  p.in[3].set(1, 1);
  const Array y = run_plan(p, 1, true);
  EXPECT_EQ(y[0], 127.0 * 127 * 512 * 9);
  EXPECT_EQ(y[1], -127.0 * 127 * 512 * 9);
}

TEST_F(ConvI8, OperandsThatDoNotGoTogetherAreRefused) {
  const Problem p({1, 5, 5, 3, 4, 3, 3, 1, 1}, DType::f32);
  std::vector<ir::Type> types = types_of(p.in);
  EXPECT_NO_THROW(ir::infer(Op::conv, p.attrs, types));
  const auto refused = [&](ir::Conv attrs, std::vector<ir::Type> in) {
    EXPECT_THROW(ir::infer(Op::conv, attrs, in), std::exception);
  };
  ir::Conv attrs = p.attrs;
  attrs.out = {};
  refused(attrs, types);
  attrs.out = DType::i8;
  refused(attrs, types);
  attrs = p.attrs;
  attrs.scales = 0;
  refused(attrs, types);
  std::vector<ir::Type> other = types;
  other[1].dtype = DType::f32;
  refused(p.attrs, other);
  other = types;
  other[0].dtype = DType::f8e4m3;
  refused(p.attrs, other);
  other = types;
  other[3].shape = {3};
  refused(p.attrs, other);
  other = types;
  other[2].dtype = DType::bf16;
  refused(p.attrs, other);
  refused(p.attrs, {types[0], types[1]});
}

}  // namespace
}  // namespace tessera::test::conv_i8_test
