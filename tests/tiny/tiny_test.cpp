// This is what a newcomer runs first: two seconds, the whole story in one file. A program, its
// derivative, a plan, an executor, and a model that learns.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "ir/builder.h"
#include "session/init.h"
#include "session/session.h"
#include "transforms/transforms.h"

using namespace tessera;

TEST(Tiny, AProgramIsTextAndHasADerivative) {
  const ir::Program p = ir::parse(R"(program square mesh()
  input x : f64[2,3] batch "x"
  input w : f64[3] param "w"
  y : f64[2,3] = mul sig="bc,c->bc" x w
  loss : f64[] = sumsq y
  output "loss" = loss
)");
  ir::verify(p);
  EXPECT_EQ(ir::print(ir::parse(ir::print(p))), ir::print(p));
  const ir::Program g = transforms::simplify(transforms::autodiff(p));

  // w = 1: the loss is the sum of squares of x, and d loss / d w is twice the sum of squares of
  // each column.
  auto executor = exec::make_executor("cpu", 1);
  const plan::Plan plan = plan::lower(g, 0, executor->target());
  const auto loaded = executor->load(plan);
  EXPECT_EQ(executor->allocated_bytes(), plan.peak_bytes());
  const double x[] = {1, 2, 3, 4, 5, 6}, w[] = {1, 1, 1};
  loaded->write("x", std::as_bytes(std::span(x)));
  loaded->write("w", std::as_bytes(std::span(w)));
  loaded->run();
  double loss = 0, dw[3] = {};
  loaded->read("loss", std::as_writable_bytes(std::span(&loss, 1)));
  loaded->read("grad.w", std::as_writable_bytes(std::span(dw)));
  EXPECT_DOUBLE_EQ(loss, 91);
  EXPECT_DOUBLE_EQ(dw[0], 2 * (1 + 16));
  EXPECT_DOUBLE_EQ(dw[2], 2 * (9 + 36));
}

TEST(Tiny, AModelLearns) {
  config::Config config;
  config.model = models::preset("vit_micro");
  config.model.depth = 1;
  config.batch = {16, 16, 1};
  run::Session session(config);
  session.load(run::initial_weights(0));
  std::vector<float> images(16 * 32 * 32 * 3);
  std::vector<std::int32_t> labels;
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(normal(Key{7}, i));
  for (int i = 0; i < 16; ++i) labels.push_back(i % 10);
  double first = 0, last = 0;
  for (int step = 1; step <= 20; ++step)
    (step == 1 ? first : last) = session.train_step(images, labels, 3e-3, step, 0).loss;
  EXPECT_NEAR(first, 2.302585, 1e-4);  // a head of zeros: log 10
  EXPECT_LT(last, 0.5 * first);
}
