// Batch norm as models write it: sums, normalisation and the derivative through both, against
// finite differences.
#include <cmath>

#include "ir/builder.h"
#include "ops/cases.h"
#include "ops/on_device.h"
#include "transforms/transforms.h"

namespace tessera::test::batch_norm_test {
namespace {

using namespace ir;

// loss = sum of y * weights, y = batch norm of x.
Program written(const Shape& shape, std::int64_t groups) {
  Builder b;
  const std::int64_t c = shape.back();
  const Var x = b.input(Input::param, "x", {DType::f64, shape, {}}),
            weights = b.input(Input::batch, "weights", {DType::f64, shape, {}});
  const Var gain = b.input(Input::param, "gain", {DType::f64, {c}, {}}),
            bias = b.input(Input::param, "bias", {DType::f64, {c}, {}});
  const Var shift = b.input(Input::state, "shift", {DType::f64, {c}, {}});
  BatchNorm attrs;
  attrs.groups = groups;
  const auto sums = b.emit(Op::moments, attrs, {x, shift});
  attrs.samples = shape[0];
  attrs.pixels = elements(shape) / shape[0] / c;
  const Var y = b.emit(Op::batch_norm, attrs, {x, sums[0], sums[1], shift, gain, bias})[0];
  b.output("loss", b.sum("bxyc->", b.mul(b.same(y, 2), y, weights)));
  return b.take();
}

class BatchNorm : public EveryDevice {};
FOR_EVERY_DEVICE(BatchNorm);

TEST_P(BatchNorm, GradientGoesThroughTheStatistics) {
  for (const std::int64_t groups : {1, 2, 3}) {
    const Program program = transforms::autodiff(written({5, 2, 3, 4}, groups));
    Arrays inputs;
    for (const Input& in : program.inputs)
      inputs.emplace(in.name,
                     make_normal(DType::f64, program.type(in.var).shape, "batch_norm_" + in.name));
    const auto loss = [&] { return run_program(*executor_, program, inputs).at("loss")[0]; };
    const Arrays outputs = run_program(*executor_, program, inputs);
    for (const char* name : {"x", "gain", "bias"}) {
      const Array& grad = outputs.at("grad." + std::string(name));
      Array& input = inputs.at(name);
      for (std::int64_t i = 0; i < input.size(); i += 7) {
        const double value = input[i], h = 1e-5;
        input.set(i, value + h);
        const double up = loss();
        input.set(i, value - h);
        const double down = loss();
        input.set(i, value);
        EXPECT_NEAR(grad[i], (up - down) / (2 * h), 1e-7 * (1 + std::abs(grad[i])))
            << groups << " groups, " << name << " " << i;
      }
    }
  }
}

// The shift is arithmetic, not meaning: far from the data it costs digits, nothing else.
TEST_P(BatchNorm, DoesNotDependOnTheShift) {
  const Program program = written({4, 3, 3, 2}, 1);
  Arrays inputs;
  for (const Input& in : program.inputs)
    inputs.emplace(in.name,
                   make_normal(DType::f64, program.type(in.var).shape, "shift_" + in.name));
  const double before = run_program(*executor_, program, inputs).at("loss")[0];
  for (std::int64_t i = 0; i < 2; ++i) inputs.at("shift").set(i, 30.0);
  EXPECT_NEAR(run_program(*executor_, program, inputs).at("loss")[0], before,
              1e-9 * std::abs(before));
}

// The op that fusion makes of a norm and its neighbours gives the bits of the equations that it
// stands for; sums may be rounded at another place.
TEST_P(BatchNorm, WithItsNeighboursItIsTheSameBits) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const Shape& shape :
         {Shape{5, 6, 7, 64}, Shape{3, 5, 4, 7}, Shape{2, 9, 9, 272}, Shape{40, 3}}) {
      const std::int64_t c = shape.back(), groups = 2;
      const DType stat = statistics_of(dtype);
      ir::BatchNorm attrs{1e-5, 0.1, groups, shape[0], elements(shape) / shape[0] / c};
      ir::BatchNorm relu = attrs;
      relu.relu = true;
      const auto image = [&](const char* name) { return make_normal(dtype, shape, name); };
      const auto channel = [&](const char* name) { return make_normal(stat, {c}, name); };
      const Array x = image("x"), g = image("g"), h = image("h"), r = image("r"),
                  shift = channel("shift"), gain = channel("gain"), bias = channel("bias");
      const std::string what = std::string(ir::name(dtype)) + " " + to_string(shape);
      const Sig same{shape.size() == 2 ? "bc,bc->bc" : "bxyc,bxyc->bxyc"};
      const auto sums = run(Op::moments, attrs, {x, shift});
      const std::vector<Array> in = {x, sums[0], sums[1], shift, gain, bias};
      const auto plain = run(Op::batch_norm, attrs, in), fused = run(Op::batch_norm, relu, in);
      const Array y = run(Op::relu, None{}, {plain[0]})[0];
      EXPECT_TRUE(fused[0].same_bits(y)) << what;
      EXPECT_TRUE(fused[1].same_bits(plain[1]) && fused[2].same_bits(plain[2])) << what;
      std::vector<Array> more = in;
      more.push_back(r);
      const Array added = run(Op::relu, None{}, {run(Op::add, same, {plain[0], r})[0]})[0];
      EXPECT_LE(relative_error(run(Op::batch_norm, relu, more)[0], added),
                is_low(dtype) ? 4e-3 : 1e-7)
          << what;

      const Array x2 = image("x2"), shift2 = channel("shift2"), gain2 = channel("gain2"),
                  bias2 = channel("bias2");
      const auto sums2 = run(Op::moments, attrs, {x2, shift2});
      const std::vector<Array> in2 = {x2, sums2[0], sums2[1], shift2, gain2, bias2};
      const auto plain2 = run(Op::batch_norm, attrs, in2);
      std::vector<Array> pair = in;
      pair.insert(pair.end(), in2.begin(), in2.end());
      const auto both = run(Op::batch_norm, relu, pair);
      const Array joined = run(Op::relu, None{}, {run(Op::add, same, {plain[0], plain2[0]})[0]})[0];
      EXPECT_LE(relative_error(both[0], joined), is_low(dtype) ? 8e-3 : 1e-7) << what;
      for (std::size_t k : {1u, 2u})
        EXPECT_TRUE(both[k].same_bits(plain[k]) && both[k + 2].same_bits(plain2[k])) << what;

      // The ReLU is open where its result says so.
      const Array &mean = plain[1], &rstd = plain[2];
      const Array dy = run(Op::relu_grad, None{}, {y, g})[0];
      const auto of_dy = run(Op::batch_norm_sums, attrs, {dy, x, mean, rstd}),
                 of_g = run(Op::batch_norm_sums, relu, {g, x, mean, rstd, gain, bias});
      EXPECT_TRUE(of_g[0].same_bits(of_dy[0]) && of_g[1].same_bits(of_dy[1])) << what;
      EXPECT_TRUE(
          run(Op::batch_norm_grad, relu, {g, x, mean, rstd, gain, of_dy[0], of_dy[1], bias})[0]
              .same_bits(run(Op::batch_norm_grad, attrs,
                             {dy, x, mean, rstd, gain, of_dy[0], of_dy[1]})[0]))
          << what;
      for (const bool two : {false, true}) {
        const Array dz =
            run(Op::relu_grad, None{}, {added, two ? run(Op::add, same, {g, h})[0] : g})[0];
        std::vector<Array> operands = {added, g, x, mean, rstd};
        if (two) operands.push_back(h);
        const auto all = run(Op::relu_grad_sums, attrs, operands),
                   of_dz = run(Op::batch_norm_sums, attrs, {dz, x, mean, rstd});
        EXPECT_TRUE(all[0].same_bits(dz)) << what;
        // The CPU adds up what it has not rounded yet, and a sum of few terms cancels.
        const double tolerance = is_low(dtype) && GetParam() == "cpu" ? 1e-2 : 0;
        EXPECT_LE(relative_error(all[1], of_dz[0]), tolerance) << what;
        EXPECT_LE(relative_error(all[2], of_dz[1]), tolerance) << what;
        operands.insert(operands.begin() + 5, {x2, plain2[1], plain2[2]});
        const auto of_two = run(Op::relu_grad_sums, attrs, operands),
                   of_x2 = run(Op::batch_norm_sums, attrs, {dz, x2, plain2[1], plain2[2]});
        for (std::size_t k : {0u, 1u, 2u}) EXPECT_TRUE(of_two[k].same_bits(all[k])) << what;
        EXPECT_LE(relative_error(of_two[3], of_x2[1]), tolerance) << what;
      }
    }
}

}  // namespace
}  // namespace tessera::test::batch_norm_test
