// Fusion adds to an op in mixed precision: results in a low type beside f32, and sums over
// rows. Each is compared with the op without them, whose own results must not change by a bit.
#include <cmath>

#include "ir/builder.h"
#include "ops/cases.h"
#include "ops/on_device.h"

namespace tessera::test::fused_test {
namespace {

using ir::DType;
using ir::Op;

class Fused : public EveryDevice {
 protected:
  // Rows that a warp keeps, that a block keeps, that are walked; odd sizes; one row, one column,
  // none.
  static std::vector<ir::Shape> shapes() {
    return {{2, 197, 768}, {33, 96}, {5, 1000}, {3, 7, 65}, {1, 5120}, {4, 1}, {0, 24}};
  }
  Array cast(const Array& x, DType to) { return run(Op::cast, ir::Cast{to}, {x})[0]; }
};

Array make(const ir::Shape& shape, const std::string& name) {
  return make_normal(DType::f32, shape, name);
}
Array positive(const ir::Shape& shape, const std::string& name) {
  Array x = make(shape, name);
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, 0.5 + std::abs(x[i]));
  return x;
}

// The norm of what a sum over rows is off by, of that of its terms' magnitudes.
void expect_sums(const Array& sums, const Array& x, double tolerance, const std::string& what) {
  const std::int64_t c = sums.size();
  double off = 0, scale = 1e-30;
  for (std::int64_t column = 0; column < c; ++column) {
    double sum = 0, size = 0;
    for (std::int64_t i = column; i < x.size(); i += c) {
      sum += x[i];
      size += std::abs(x[i]);
    }
    off += (sums[column] - sum) * (sums[column] - sum);
    scale += size * size;
  }
  EXPECT_LE(std::sqrt(off / scale), tolerance) << what;
}

std::string name_of(const ir::Shape& shape, DType low) {
  std::string out(ir::name(low));
  for (const std::int64_t extent : shape) out += " " + std::to_string(extent);
  return out;
}

TEST_P(Fused, ANormInALowTypeIsItsCast) {
  for (const DType low : {DType::bf16, DType::f16})
    for (const ir::Shape& shape : shapes()) {
      const Array x = make(shape, "x"), r = make(shape, "r"), gain = make({shape.back()}, "gain"),
                  bias = make({shape.back()}, "bias");
      const std::string what = name_of(shape, low);
      const auto plain = run(Op::layer_norm, ir::Norm{1e-5}, {x, gain, bias}),
                 fused = run(Op::layer_norm, ir::Norm{1e-5, low}, {x, gain, bias});
      EXPECT_TRUE(fused[0].same_bits(cast(plain[0], low))) << what;
      EXPECT_TRUE(fused[1].same_bits(plain[1]) && fused[2].same_bits(plain[2])) << what;
      const auto added = run(Op::add_norm, ir::Norm{1e-5}, {x, r, gain, bias}),
                 both = run(Op::add_norm, ir::Norm{1e-5, low}, {x, r, gain, bias});
      EXPECT_TRUE(both[0].same_bits(added[0])) << what;
      EXPECT_TRUE(both[1].same_bits(cast(added[1], low))) << what;
      EXPECT_TRUE(both[2].same_bits(added[2]) && both[3].same_bits(added[3])) << what;
    }
}

// A product's result in a low type is read as its cast to f32 would be.
TEST_P(Fused, ANormReadsWhatIsAddedInALowType) {
  for (const DType low : {DType::bf16, DType::f16})
    for (const ir::Shape& shape : shapes()) {
      ir::Shape outer = shape;
      outer.pop_back();
      const Array x = make(shape, "x"), r = cast(make(shape, "r"), low),
                  gain = make({shape.back()}, "gain"), bias = make({shape.back()}, "bias"),
                  mean = make(outer, "mean"), rstd = positive(outer, "rstd");
      const ir::Norm norm{1e-5, low};
      const auto same = [&](const std::vector<Array>& narrow, const std::vector<Array>& wide) {
        ASSERT_EQ(narrow.size(), wide.size());
        for (std::size_t i = 0; i < wide.size(); ++i)
          EXPECT_TRUE(narrow[i].same_bits(wide[i])) << name_of(shape, low) << " result " << i;
      };
      same(run(Op::add_norm, norm, {x, r, gain, bias}),
           run(Op::add_norm, norm, {x, cast(r, DType::f32), gain, bias}));
      same(run(Op::layer_norm_grad, norm, {r, x, mean, rstd, gain, x}),
           run(Op::layer_norm_grad, norm, {cast(r, DType::f32), x, mean, rstd, gain, x}));
    }
}

TEST_P(Fused, AGradientOfANormIsGivenTwiceAndSummed) {
  for (const DType low : {DType::bf16, DType::f16})
    for (const ir::Shape& shape : shapes())
      for (const bool addend : {false, true}) {
        ir::Shape outer = shape;
        outer.pop_back();
        std::vector<Array> in{make(shape, "dy"), make(shape, "x"), make(outer, "mean"),
                              positive(outer, "rstd"), make({shape.back()}, "gain")};
        if (addend) in.push_back(make(shape, "addend"));
        const auto plain = run(Op::layer_norm_grad, ir::Norm{1e-5}, in),
                   fused = run(Op::layer_norm_grad, ir::Norm{1e-5, low}, in);
        ASSERT_EQ(fused.size(), 5u);
        const std::string what = name_of(shape, low);
        EXPECT_TRUE(fused[0].same_bits(plain[0])) << what;
        EXPECT_TRUE(fused[3].same_bits(cast(plain[0], low))) << what;
        expect_sums(fused[4], plain[0], 1e-6, what);
        // In how many parts rows are added up may differ.
        EXPECT_LE(relative_error(fused[1], plain[1]), 1e-5) << what;
        EXPECT_LE(relative_error(fused[2], plain[2]), 1e-5) << what;
      }
}

// The first norm of a model: nobody but the product behind it reads the gradient.
TEST_P(Fused, AGradientOfANormMayBeReadInTheLowTypeAlone) {
  for (const ir::Shape& shape : shapes()) {
    ir::Shape outer = shape;
    outer.pop_back();
    const std::vector<Array> in{make(shape, "dy"), make(shape, "x"), make(outer, "mean"),
                                positive(outer, "rstd"), make({shape.back()}, "gain")};
    const auto all = run(Op::layer_norm_grad, ir::Norm{1e-5, DType::bf16}, in);
    ir::Builder b;
    std::vector<ir::Var> operands;
    Arrays inputs;
    for (const Array& x : in) {
      const std::string name = "x" + std::to_string(operands.size());
      operands.push_back(b.input(ir::Input::batch, name, x.type()));
      inputs[name] = x;
    }
    const auto results = b.emit_named(Op::layer_norm_grad, ir::Norm{1e-5, DType::bf16}, operands,
                                      {"_", "_", "_", "copy", "sum"});
    b.output("copy", results[3]);
    b.output("sum", results[4]);
    const Arrays got = run_program(*executor_, b.program(), inputs);
    EXPECT_TRUE(got.at("copy").same_bits(all[3])) << name_of(shape, DType::bf16);
    // Rows that are walked are added up as they were rounded.
    EXPECT_LE(relative_error(got.at("sum"), all[4]), 2e-2) << name_of(shape, DType::bf16);
  }
}

TEST_P(Fused, AGradientOfAnActivationIsSummed) {
  for (const DType low : {DType::bf16, DType::f16})
    for (const ir::Shape& shape : shapes())
      for (const bool tanh : {false, true}) {
        const std::vector<Array> in{make_normal(low, shape, "x"), make_normal(low, shape, "g")};
        const auto plain = run(Op::gelu_grad, ir::Gelu{tanh}, in),
                   fused = run(Op::gelu_grad, ir::Gelu{tanh, true}, in);
        ASSERT_EQ(fused.size(), 2u);
        const std::string what = name_of(shape, low);
        EXPECT_EQ(fused[1].dtype(), DType::f32) << what;
        EXPECT_TRUE(fused[0].same_bits(plain[0])) << what;
        // The CPU adds up what it has not rounded yet.
        expect_sums(fused[1], plain[0], GetParam() == "cpu" ? 4e-3 : 1e-6, what);
      }
}

FOR_EVERY_DEVICE(Fused);

}  // namespace
}  // namespace tessera::test::fused_test
