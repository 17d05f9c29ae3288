// One session: the same bits for any number of threads and from run to run, a skipped step that
// changes nothing, memory as planned.
#include "session/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "comm/heartbeat.h"
#include "session/init.h"
#include "train/learning_rate.h"

namespace tessera::run::session_test {
namespace {

config::Config tiny(const std::string& dtype, std::int64_t threads) {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 2;
  c.model.dropout = 0.1;
  c.model.drop_path = 0.2;
  c.model.head_init = "normal";
  c.precision.dtype = dtype;
  c.run.threads = threads;
  c.run.seed = 5;
  c.batch = {9, 9, 1};
  c.optim.clip = 1.0;
  return c;
}

struct Data {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
};
Data data(const config::Config& c, std::int64_t n, std::uint64_t seed) {
  Data d;
  d.images.resize(
      static_cast<std::size_t>(n * c.model.image_h * c.model.image_w * c.model.channels));
  for (std::size_t i = 0; i < d.images.size(); ++i)
    d.images[i] = static_cast<float>(normal(Key{seed}, i));
  for (std::int64_t i = 0; i < n; ++i)
    d.labels.push_back(static_cast<std::int32_t>((i * 7 + 3) % c.model.classes));
  return d;
}

std::vector<double> train(const config::Config& c, int steps) {
  Session session(c);
  session.load(initial_weights(1));
  std::vector<double> out;
  for (int i = 1; i <= steps; ++i) {
    const Data d = data(c, c.batch.global, static_cast<std::uint64_t>(i));
    const StepResult r = session.train_step(d.images, d.labels, 1e-3, i, (i - 1) * c.batch.global);
    out.insert(out.end(), {r.loss, r.grad_norm});
  }
  const std::vector<double> weights =
      session.parameter("encoder.layers.encoder_layer_1.mlp.0.weight");
  out.insert(out.end(), weights.begin(), weights.end());
  return out;
}

TEST(Session, SameBitsForAnyNumberOfThreads) {
  for (const char* dtype : {"f32", "bf16", "f64"}) {
    const std::vector<double> one = train(tiny(dtype, 1), 3);
    for (const double v : one) ASSERT_TRUE(std::isfinite(v));
    for (const std::int64_t threads : {2, 3, 5})
      EXPECT_EQ(train(tiny(dtype, threads), 3), one) << dtype << " with " << threads << " threads";
  }
}

TEST(Session, AccumulationDrawsTheSameDropout) {
  config::Config whole = tiny("f64", 2), parts = whole;
  parts.batch.accumulate = 4;  // 3 + 2 + 2 + 2
  const std::vector<double> a = train(whole, 3), b = train(parts, 3);
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], 1e-9 * std::max(1.0, std::abs(a[i])));
}

// Slow (./check --all): a model of real size, more steps, every way to cut and recompute a step, in
// f64 to 1e-9; f32 bits over threads.
TEST(Long, EveryWayToRunAStepIsTheSame) {
  config::Config c = tiny("f64", 2);
  c.model = models::preset("vit_tiny_cifar");
  c.model.depth = 4;
  c.model.dropout = 0.1;
  c.model.drop_path = 0.1;
  const std::vector<double> plain = train(c, 6);
  for (const char* recompute : {"none", "full", "every=2", "every=3"})
    for (const std::int64_t accumulate : {1, 2, 4, 9}) {
      config::Config other = c;
      other.parallel.recompute = recompute;
      other.batch.accumulate = accumulate;
      const std::vector<double> got = train(other, 6);
      ASSERT_EQ(got.size(), plain.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], plain[i], 1e-9 * std::max(1.0, std::abs(plain[i])))
            << recompute << " " << accumulate;
    }
  c.precision.dtype = "f32";
  c.run.threads = 1;
  const std::vector<double> one = train(c, 6);
  for (const std::int64_t threads : {2, 3, 7}) {
    c.run.threads = threads;
    EXPECT_EQ(train(c, 6), one) << threads;
  }
}

TEST(Session, AStepThatIsNotFiniteChangesNothing) {
  for (const char* name : {"adamw", "sgd"}) {
    config::Config c = tiny("f32", 2);
    c.optim.name = name;
    Session session(c);
    session.load(initial_weights(1));
    const Data good = data(c, 9, 1);
    Data bad = good;
    bad.images[100] = std::numeric_limits<float>::infinity();
    session.train_step(good.images, good.labels, 1e-3, 1, 0);
    const auto& buffers = session.compiled(Goal::train, 9).plan.persistent;
    auto state = [&] {
      std::vector<std::vector<std::byte>> all;
      for (const plan::Buffer& b : buffers)
        session.executor().read_persistent(b.name, 0,
                                           all.emplace_back(static_cast<std::size_t>(b.bytes)));
      return all;
    };
    const auto before = state();
    EXPECT_FALSE(session.train_step(bad.images, bad.labels, 1e-3, 2, 9).ok);
    EXPECT_EQ(state(), before);
    EXPECT_TRUE(session.train_step(good.images, good.labels, 1e-3, 2, 9).ok);
    EXPECT_NE(state(), before);
  }
}

TEST(Session, PeakIsWhatTheExecutorAllocates) {
  for (const char* dtype : {"f32", "bf16", "f64"})
    for (const std::int64_t threads : {1, 3}) {
      Session session(tiny(dtype, threads));
      const plan::Plan& plan = session.compiled(Goal::train, 9).plan;
      EXPECT_EQ(session.executor().allocated_bytes(), plan.peak_bytes()) << dtype;
      EXPECT_EQ(plan.memory.total(), plan.peak_bytes()) << dtype;
    }
}

TEST(Session, RecomputationSavesMemory) {
  config::Config c = tiny("f32", 2);
  c.model.depth = 6;
  auto activations = [&](const char* recompute) {
    c.parallel.recompute = recompute;
    Session session(c);
    return session.compiled(Goal::train, 9).plan.memory.activations;
  };
  const auto none = activations("none"), every2 = activations("every=2"),
             full = activations("full");
  EXPECT_LT(full, none / 2);
  EXPECT_LT(every2, none);
}

TEST(Session, RaggedBatchesAreJustAnotherPlan) {
  const config::Config c = tiny("f32", 2);
  Session session(c);
  session.load(initial_weights(1));
  const Data all = data(c, 9, 3);
  const std::vector<double> whole = session.predict(all.images, 9);
  const std::size_t pixels = all.images.size() / 9;
  const std::vector<double> last = session.predict(std::span(all.images).subspan(7 * pixels), 2);
  for (std::size_t i = 0; i < last.size(); ++i) EXPECT_NEAR(last[i], whole[7 * 10 + i], 1e-5);
}

TEST(Schedule, WarmsUpThenFalls) {
  config::Config c;
  c.optim.lr = 1.0;
  c.lr.warmup = {10, 0, false};
  auto at = [&](const char* schedule, std::int64_t step) {
    c.lr.schedule = schedule;
    return learning_rate(c, step, 100);
  };
  for (const char* s : {"constant", "cosine", "onecycle", "step"}) {
    EXPECT_DOUBLE_EQ(at(s, 1), 0.1) << s;
    EXPECT_DOUBLE_EQ(at(s, 10), 1.0) << s;
    EXPECT_DOUBLE_EQ(at(s, 11), 1.0) << s;
  }
  EXPECT_DOUBLE_EQ(at("constant", 100), 1.0);
  EXPECT_DOUBLE_EQ(at("cosine", 56), 0.5);
  EXPECT_LT(at("cosine", 100), 0.001);
  EXPECT_NEAR(at("onecycle", 56), 0.5, 1e-12);
  c.lr.step_every = {30, 0, false};
  EXPECT_DOUBLE_EQ(at("step", 30), 1.0);
  EXPECT_DOUBLE_EQ(at("step", 31), 0.1);
  EXPECT_NEAR(at("step", 91), 0.001, 1e-15);
}

// The work of a rank after a step must not be called by the step's last equation.
TEST(Session, AStepLeavesItsLastEquation) {
  const config::Config c = tiny("f32", 1);
  comm::Heartbeat heartbeat;
  const comm::Heartbeat::Here here(&heartbeat);
  Session session(c);
  session.load(initial_weights(1));
  const Data d = data(c, c.batch.global, 1);
  comm::Heartbeat::inside("something");
  session.train_step(d.images, d.labels, 1e-3, 1, 0);
  EXPECT_EQ(heartbeat.look().inside, "");
}

}  // namespace
}  // namespace tessera::run::session_test
