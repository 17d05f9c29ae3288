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
  attrs.samples = shape[0], attrs.pixels = elements(shape) / shape[0] / c;
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

}  // namespace
}  // namespace tessera::test::batch_norm_test
