// Swin in a session: it learns, its bits do not depend on threads, and every way to run a step is
// the same.
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "session/init.h"
#include "session/session.h"

namespace tessera::run::swin_test {
namespace {

// 7 x 6 tokens in windows of 4 x 3: padded and shifted in both stages.
config::Config tiny(const std::string& dtype, std::int64_t threads) {
  config::Config c;
  c.model = models::preset("swin_micro");
  c.model.name = "";
  c.model.image_h = 30;
  c.model.image_w = 24;
  c.model.dim = 12;
  c.model.stage_heads = {3, 2};
  c.model.window_w = 3;
  c.model.drop_path = 0.3;
  c.precision.dtype = dtype;
  c.run.threads = threads;
  c.run.seed = 5;
  c.batch = {6, 6, 1};
  return c;
}

std::vector<double> train(const config::Config& c, int steps) {
  Session session(c);
  session.load(initial_weights(1));
  const auto pixels = static_cast<std::size_t>(c.batch.global * c.model.image_h * c.model.image_w *
                                               c.model.channels);
  std::vector<float> images(pixels);
  for (std::size_t i = 0; i < pixels; ++i) images[i] = static_cast<float>(normal(Key{3}, i));
  const std::vector<std::int32_t> labels = {0, 1, 2, 3, 4, 5};
  std::vector<double> out;
  for (int i = 1; i <= steps; ++i) {
    const StepResult r = session.train_step(images, labels, 1e-3, i, (i - 1) * c.batch.global);
    out.insert(out.end(), {r.loss, r.grad_norm});
  }
  for (const char* name :
       {"features.1.1.attn.relative_position_bias_table", "features.2.norm.weight"})
    for (const double v : session.parameter(name)) out.push_back(v);
  return out;
}

TEST(Swin, LearnsABatchByHeart) {
  config::Config c = tiny("f32", 2);
  c.model.drop_path = 0;
  const std::vector<double> trace = train(c, 40);
  EXPECT_NEAR(trace[0], std::log(10.0), 0.2);
  EXPECT_LT(trace[78], 0.5 * trace[0]);
}

TEST(Swin, SameBitsForAnyNumberOfThreads) {
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    const std::vector<double> one = train(tiny(dtype, 1), 3);
    for (const double v : one) ASSERT_TRUE(std::isfinite(v));
    for (const std::int64_t threads : {2, 3})
      EXPECT_EQ(train(tiny(dtype, threads), 3), one) << dtype << " with " << threads << " threads";
  }
}

TEST(Swin, EveryWayToRunAStepIsTheSame) {
  const std::vector<double> plain = train(tiny("f64", 2), 3);
  for (const char* recompute : {"none", "full", "every=2"})
    for (const std::int64_t accumulate : {1, 4}) {
      config::Config c = tiny("f64", 2);
      c.parallel.recompute = recompute;
      c.batch.accumulate = accumulate;
      const std::vector<double> got = train(c, 3);
      ASSERT_EQ(got.size(), plain.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], plain[i], 1e-9 * std::max(1.0, std::abs(plain[i])))
            << recompute << " " << accumulate;
    }
}

}  // namespace
}  // namespace tessera::run::swin_test
