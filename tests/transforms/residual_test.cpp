// Fusion of a residual network with batch norm gives the same numbers with and without, and
// every ReLU gone into its neighbours.
#include <gtest/gtest.h>

#include <algorithm>

#include "transforms/evaluate.h"
#include "transforms/tiny_vit.h"

namespace tessera::transforms::residual_test {
namespace {

using namespace test;
using namespace ir;

constexpr std::int64_t batch = 6;

models::ModelConfig tiny_resnet(const std::string& block, const std::string& stem) {
  models::ModelConfig m;
  m.family = "resnet";
  m.block = block;
  m.stem = stem;
  m.layers = {2, 2};
  m.width = 3;
  m.image_h = 8;
  m.image_w = 12;
  m.channels = 2;
  m.classes = 5;
  return m;
}

// Gradients of the loss, and the running statistics, of a model with the statistics of its batch.
Program resnet_gradients(const models::ModelConfig& m, DType real, std::int64_t groups) {
  Builder b;
  const Var images =
      b.input(Input::batch, "images", {real, {batch, m.image_h, m.image_w, m.channels}, {}});
  std::map<std::string, Var> params;
  for (const models::Param& p : models::parameters(m))
    params[p.name] =
        b.input(p.buffer ? Input::state : Input::param, p.name, {real, p.shape, {}}, p.dims);
  const models::Mode mode{.batch_statistics = true, .groups = groups};
  const Var logits =
      models::forward(b, m, images, mode, [&](const std::string& name) { return params.at(name); });
  const Var labels = b.input(Input::batch, "labels", {DType::i32, {batch}, {}});
  const Var logp = b.emit1(Op::log_softmax, None{}, {logits}, "logp");
  b.output("loss", b.sum("b->", b.emit1(Op::nll, Loss{0.1}, {logp, labels}, "nll"), "loss"));
  return simplify(autodiff(b.take()));
}

std::ptrdiff_t count(const Program& p, Op op) {
  return std::count_if(p.eqns.begin(), p.eqns.end(), [&](const Eqn& e) { return e.op == op; });
}

TEST(Residual, FusionKeepsEveryNumber) {
  for (const std::string block : {"basic", "bottleneck"})
    for (const std::string stem : {"cifar", "imagenet"})
      for (const std::int64_t groups : {1, 2}) {
        const Program p = resnet_gradients(tiny_resnet(block, stem), DType::f64, groups);
        const Values inputs = draw_inputs(p, 5, batch), before = evaluate(p, inputs);
        expect_same(evaluate(simplify(fuse_batch_norm(p)), inputs), before, 1e-12);
        expect_same(evaluate(simplify(fuse_batch_norm(remat(p, 1))), inputs), before, 1e-12);
      }
}

TEST(Residual, FusionKeepsTheNumbersOfF32) {
  const Program p = resnet_gradients(tiny_resnet("bottleneck", "imagenet"), DType::f32, 2);
  const Values inputs = draw_inputs(p, 5, batch), before = evaluate(p, inputs);
  expect_same(evaluate(simplify(fuse_batch_norm(p)), inputs), before, 2e-5);
}

// The image-sized sums that stay are of blocks whose input no ReLU with a sum made: the first.
TEST(Residual, FusionLeavesNoReluAlone) {
  for (const std::string block : {"basic", "bottleneck"})
    for (const std::string stem : {"cifar", "imagenet"}) {
      const Program p = resnet_gradients(tiny_resnet(block, stem), DType::f64, 1),
                    fused = simplify(fuse_batch_norm(p));
      EXPECT_GT(count(p, Op::relu_grad), 0);
      EXPECT_EQ(count(fused, Op::relu), 0) << block << " " << stem;
      EXPECT_EQ(count(fused, Op::relu_grad), 0) << block << " " << stem;
      EXPECT_EQ(count(fused, Op::relu_grad_sums), 4) << block << " " << stem;
      EXPECT_EQ(std::count_if(fused.eqns.begin(), fused.eqns.end(),
                              [&](const Eqn& e) {
                                return e.op == Op::add && fused.type(e.out[0]).rank() == 4;
                              }),
                1)
          << block << " " << stem;
      EXPECT_EQ(count(fused, Op::moments), count(p, Op::moments));
      // A shortcut with a convolution of its own: two norms in one equation.
      const std::ptrdiff_t shortcuts = block == "basic" ? 1 : 2;
      EXPECT_EQ(
          std::count_if(fused.eqns.begin(), fused.eqns.end(),
                        [](const Eqn& e) { return e.op == Op::batch_norm && e.in.size() == 12; }),
          shortcuts);
      EXPECT_EQ(count(fused, Op::batch_norm), count(p, Op::batch_norm) - shortcuts);
    }
}

// A norm that is also an output, or that another equation reads, is left as it is.
TEST(Residual, FusionLeavesWhatIsReadElsewhere) {
  const char* head = R"(program p mesh()
  input x : f64[2,3,4,3] batch "x"
  input c : f64[3] state "c" (c)
  s : f64[1,3], q : f64[1,3] = moments x c
  n : f64[2,3,4,3], m : f64[1,3], d : f64[1,3] = batch_norm samples=2 pixels=12 x s q c c c
  r : f64[2,3,4,3] = relu n
)";
  for (const char* rest :
       {"  output \"r\" = r\n  output \"n\" = n\n",
        "  a : f64[2,3,4,3] = add sig=\"bxyc,bxyc->bxyc\" r n\n  output \"a\" = a\n"}) {
    const Program p = parse(head + std::string(rest));
    EXPECT_EQ(fuse_batch_norm(p), p) << rest;
  }
  const Program p = parse(std::string(head) + "  output \"r\" = r\n");
  EXPECT_EQ(fuse_batch_norm(p).eqns.size(), 2u);
}

}  // namespace
}  // namespace tessera::transforms::residual_test
