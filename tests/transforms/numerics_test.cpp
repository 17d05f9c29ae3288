// Passes do nothing to numbers (to the bit), or no more than rounding; and the gradients are
// the derivatives.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "transforms/evaluate.h"
#include "transforms/tiny_vit.h"

namespace tessera::transforms::numerics_test {
namespace {

using namespace test;
using ir::DType;

constexpr std::int64_t batch = 5;

struct Start {
  models::ModelConfig model;
  Program program;  // gradients, simplified
  Values inputs, outputs;
};

Start start(const models::ModelConfig& m) {
  Start s{m, vit_gradients(m, DType::f64, batch), {}, {}};
  s.inputs = draw_inputs(s.program, static_cast<int>(m.classes), batch);
  s.outputs = evaluate(s.program, s.inputs);
  return s;
}

class Numerics : public testing::TestWithParam<bool> {
 protected:
  const Start s = start(GetParam() ? tiny_model_with_dropout() : tiny_model());
  void expect_kept(const Program& p, double tolerance) {
    expect_same(evaluate(p, s.inputs), s.outputs, tolerance);
  }
};

TEST_P(Numerics, ThePlanChangesNothing) {
  expect_same(interpret(s.program, s.inputs), s.outputs, 0);
}

TEST_P(Numerics, AutodiffKeepsTheForwardProgram) {
  const Program forward = vit_loss(s.model, DType::f64, batch);
  const Values before = evaluate(forward, s.inputs), after = evaluate(autodiff(forward), s.inputs);
  expect_same(after, before, 0);
  EXPECT_GT(after.size(), before.size());
}

TEST_P(Numerics, SimplifyKeepsEveryBit) {
  const Program raw = autodiff(vit_loss(s.model, DType::f64, batch));
  EXPECT_LT(simplify(raw).eqns.size(), raw.eqns.size());
  expect_same(evaluate(raw, s.inputs), s.outputs, 0);
  expect_kept(simplify(s.program), 0);
}

TEST_P(Numerics, RematKeepsEveryBit) {
  for (const int every : {1, 2, 3, 100}) {
    const Program p = remat(s.program, every);
    EXPECT_GT(p.eqns.size(), s.program.eqns.size()) << every;
    expect_kept(p, 0);
    expect_kept(simplify(p), 0);
  }
  EXPECT_EQ(remat(s.program, 0), s.program);
}

TEST_P(Numerics, BucketsKeepEveryBit) {
  const std::vector<Bucket> list = vit_buckets(s.model, DType::f64);
  expect_same(evaluate(buckets(s.program, list), into_buckets(s.inputs, list, s.inputs)), s.outputs,
              0);
}

TEST_P(Numerics, FusionsAgree) {
  expect_kept(fuse_contract(s.program), 1e-13);
  expect_kept(fuse_norm(s.program), 1e-13);
  expect_kept(fuse_loss(s.program), 1e-13);
  expect_kept(fuse_attention(place(strategy(s.program, {}))), 1e-13);
  expect_kept(fuse_all(s.program), 1e-13);
  expect_kept(fuse_all(remat(s.program, 1)), 1e-13);
}

TEST_P(Numerics, FusionsFindTheirPatterns) {
  auto count = [](const Program& p, ir::Op op) {
    return std::count_if(p.eqns.begin(), p.eqns.end(),
                         [&](const ir::Eqn& e) { return e.op == op; });
  };
  const Program p = fuse_all(s.program);
  EXPECT_EQ(count(p, ir::Op::cross_entropy), 1);
  EXPECT_EQ(count(p, ir::Op::log_softmax), 0);
  EXPECT_EQ(count(p, ir::Op::gelu), 0) << "every gelu follows a contract with bias";
  // ln_2 of every block and ln_1 of every block but the first follow a residual sum; the first
  // follows the embedding's dropout or position.
  EXPECT_GE(count(p, ir::Op::add_norm), 2 * s.model.depth - 1);
  // Marks stand between a stack of gradients and its readers until the program is placed.
  const Program placed = place(strategy(s.program, {}));
  EXPECT_EQ(count(placed, ir::Op::stack), s.model.depth);
  EXPECT_EQ(count(fuse_attention(placed), ir::Op::stack), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Numerics, testing::Values(false, true), [](const auto& info) {
  return info.param ? "MeanWithDropout" : "ClassToken";
});

TEST(Fold, NormBecomesPartOfTheConvolution) {
  const Program p = ir::parse(R"(program evaluate mesh()
  input x : f64[2,5,4,3] batch "x"
  input f : f64[3,3,3,3] param "f" (tap,tap,in,out)
  input m : f64[3] state "m" (c)
  input v : f64[3] state "v" (c)
  input g : f64[3] param "g" (c)
  c1 : f64[2,5,4,3] = conv pad=1 x f
  n1 : f64[2,5,4,3] = batch_norm_fixed c1 m v g m
  r1 : f64[2,5,4,3] = relu n1
  c2 : f64[2,5,4,3] = conv pad=1 r1 f
  n2 : f64[2,5,4,3] = batch_norm_fixed c2 m v g m
  s2 : f64[2,5,4,3] = add sig="bxyc,bxyc->bxyc" x n2
  r2 : f64[2,5,4,3] = relu s2
  output "y" = r2
)");
  Values inputs = draw_inputs(p, 5, batch);
  for (double& v : inputs.at("v")) v = 0.5 + v * v;
  const Program folded = fold_norm(p);
  EXPECT_EQ(folded.eqns.size(), 4u);
  expect_same(evaluate(folded, inputs), evaluate(p, inputs), 1e-13);
}

// Outputs of a step, with the micro-batches' inputs cut from those of the whole batch.
Values cut(const Values& inputs, const std::vector<std::int64_t>& micro) {
  Values out = inputs;
  std::int64_t at = 0;
  const std::int64_t total = std::accumulate(micro.begin(), micro.end(), std::int64_t{0});
  for (std::size_t m = 0; m < micro.size(); at += micro[m++])
    for (const char* name : {"images", "labels"}) {
      const std::vector<double>& whole = inputs.at(name);
      const auto each = static_cast<std::int64_t>(whole.size()) / total;
      out[name + ("." + std::to_string(m))] =
          std::vector<double>(whole.begin() + at * each, whole.begin() + (at + micro[m]) * each);
    }
  return out;
}

TEST(Accumulate, PartsGiveTheGradientsOfTheWhole) {
  for (const auto& m : {tiny_model(), tiny_model_with_dropout()}) {
    const Start s = start(m);
    for (const std::vector<std::int64_t>& micro :
         {std::vector<std::int64_t>{3, 2}, std::vector<std::int64_t>{2, 2, 1}}) {
      std::vector<Program> parts;
      for (const std::int64_t n : micro) parts.push_back(autodiff(vit_loss(m, DType::f64, n)));
      const Program p = accumulate(parts);
      const Values got = evaluate(simplify(p), cut(s.inputs, micro));
      expect_same(got, s.outputs, 1e-12);
      expect_same(evaluate(simplify(remat(simplify(p), 2)), cut(s.inputs, micro)), got,
                  0);  // recomputation within each part
    }
  }
}

TEST(Accumulate, RematTreatsEveryMicroBatchAlike) {
  auto recomputed = [](const Program& p) {
    return std::count_if(p.eqns.begin(), p.eqns.end(),
                         [](const ir::Eqn& e) { return e.phase == ir::Phase::recompute; });
  };
  const Program part = autodiff(vit_loss(tiny_model(), DType::f64, 2));
  for (const int every : {1, 2, 3}) {
    EXPECT_GT(recomputed(remat(simplify(part), every)), 0);
    EXPECT_EQ(recomputed(remat(simplify(accumulate({part, part, part})), every)),
              3 * recomputed(remat(simplify(part), every)));
  }
}

TEST(Gradients, AgreeWithFiniteDifferences) {
  for (const auto& m : {tiny_model(), tiny_model_with_dropout()}) {
    Start s = start(m);
    std::uint64_t draw = 0;
    for (const models::Param& p : models::parameters(m)) {
      const auto i = static_cast<std::size_t>(random_bits(Key{}.with("which"), draw++) %
                                              s.inputs.at(p.name).size());
      double& w = s.inputs.at(p.name)[i];
      const double kept = w, h = 1e-5;
      w = kept + h;
      const double up = evaluate(s.program, s.inputs).at("loss")[0];
      w = kept - h;
      const double down = evaluate(s.program, s.inputs).at("loss")[0];
      w = kept;
      EXPECT_NEAR(s.outputs.at("grad." + p.name)[i], (up - down) / (2 * h), 1e-9)
          << p.name << "[" << i << "]";
    }
  }
}

class Steps : public testing::TestWithParam<std::string> {};

TEST_P(Steps, FusedUpdatesAgree) {
  const models::ModelConfig m = tiny_model();
  StepOptions o;
  o.optimizer.name = GetParam();
  o.fuse = false;
  const Program p = vit_step(m, DType::f64, {batch}, o);
  const Values parameters = draw_inputs(vit_loss(m, DType::f64, batch), 5, batch);
  const Values inputs =
      into_buckets(parameters, vit_buckets(m, DType::f64), draw_inputs(p, 5, batch));
  const Values plain = evaluate(p, inputs);
  ASSERT_LT(0.5, plain.at("grad_norm")[0]) << "clipping is at work";
  expect_same(evaluate(simplify(fuse_update(p)), inputs), plain, 1e-13);
  expect_same(evaluate(fuse_all(p), inputs), plain, 1e-13);
}

TEST_P(Steps, AStepThatIsNotFiniteChangesNothing) {
  const models::ModelConfig m = tiny_model();
  StepOptions o;
  o.optimizer.name = GetParam();
  for (const bool fuse : {false, true}) {
    o.fuse = fuse;
    const Program p = vit_step(m, DType::f64, {batch}, o);
    Values inputs = draw_inputs(p, 5, batch);
    inputs["images"][3] = INFINITY;
    const Values after = evaluate(p, inputs);
    EXPECT_EQ(after.at("ok")[0], 0);
    for (const ir::Output& out : p.outputs)
      if (!out.updates.empty()) {
        EXPECT_EQ(after.at(out.name), inputs.at(out.updates)) << out.name;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Steps, testing::Values("adamw", "sgd"),
                         [](const auto& info) { return info.param; });

TEST(Precision, BfloatGradientsPointTheSameWay) {
  const models::ModelConfig m = tiny_model();
  const Program wide = vit_gradients(m, DType::f32, batch),
                low = simplify(precision(autodiff(vit_loss(m, DType::f32, batch)), DType::bf16));
  const Values inputs = draw_inputs(wide, 5, batch);
  const Values a = evaluate(low, inputs), b = evaluate(wide, inputs);
  EXPECT_LE(relative_error(a.at("loss"), b.at("loss")), 5e-3);
  for (const auto& [name, values] : b)
    if (name.starts_with("grad.")) {
      EXPECT_LE(relative_error(a.at(name), values), 5e-2) << name;
    }
  expect_same(evaluate(fuse_all(low), inputs), a, 3e-2);  // a rounding in between disappears
  expect_same(evaluate(simplify(fuse_low(fuse_all(low))), inputs), a, 3e-2);
}

}  // namespace
}  // namespace tessera::transforms::numerics_test
