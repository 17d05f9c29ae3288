// Deferred batch norm on one rank: micro-batches normalise as in the plain variant, running
// statistics move once per step, by the whole batch. What is expected is computed here, from the
// inputs of each norm as the executor sees them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "base/rng.h"
#include "session/init.h"
#include "session/session.h"

namespace tessera::run::deferred_norm_test {
namespace {

config::Config tiny(const std::string& batch_norm, std::int64_t accumulate) {
  config::Config c;
  models::ModelConfig m;
  m.family = "resnet";
  m.image_h = m.image_w = 8;
  m.block = "basic";
  m.layers = {1, 1};
  m.width = 6;
  m.stem = "cifar";
  m.classes = 5;
  m.batch_norm = batch_norm;
  c.model = m;
  c.precision.dtype = "f64";
  c.batch = {10, 10, accumulate};
  c.optim.name = "sgd";
  c.optim.clip = 0;
  c.optim.weight_decay = 0;
  c.optim.momentum = 0;
  c.run.threads = 1;
  return c;
}

struct Data {
  std::vector<float> images;
  std::vector<std::int32_t> labels;
};
Data data(const config::Config& c, int step) {
  Data d;
  d.images.resize(static_cast<std::size_t>(c.batch.global * c.model.image_h * c.model.image_w *
                                           c.model.channels));
  for (std::size_t i = 0; i < d.images.size(); ++i)
    d.images[i] = static_cast<float>(0.3 + normal(Key{static_cast<std::uint64_t>(step)}, i));
  for (std::int64_t i = 0; i < c.batch.global; ++i)
    d.labels.push_back(static_cast<std::int32_t>((i * 3 + step) % c.model.classes));
  return d;
}

StepResult train(Session& session, int step, double lr = 1e-2) {
  const Data d = data(session.config(), step);
  return session.train_step(d.images, d.labels, lr, step, 0);
}

// Per running mean: every value that its norm was given in a step, all micro-batches one after the
// other.
using Seen = std::map<std::string, std::vector<double>>;
exec::Observer watch(const plan::Plan& plan, Seen& seen) {
  return [&](std::size_t index, const auto& bytes) {
    const plan::Step& step = plan.steps[index];
    if (step.op != ir::Op::moments) return;
    const ir::Eqn& eqn = plan.program.eqns[static_cast<std::size_t>(step.eqn)];
    for (const ir::Input& in : plan.program.inputs) {
      if (in.var != eqn.in[1])
        continue;  // the sums of deferred norms are taken around the same mean in every micro-batch
      const std::span<const std::byte> now = bytes(step.in[0]);
      std::vector<double>& all = seen[in.name];
      const std::size_t before = all.size();
      all.resize(before + now.size() / 8);
      std::memcpy(all.data() + before, now.data(), now.size());
    }
  };
}

TEST(DeferredNorm, RunningStatisticsAreThoseOfTheWholeBatch) {
  for (const std::int64_t accumulate : {1, 2, 3, 4}) {  // 10 | 5, 5 | 4, 3, 3 | 3, 3, 2, 2
    Session session(tiny("deferred", accumulate));
    session.load(initial_weights(1));
    Seen seen;
    session.observe(
        watch(session.compiled({Goal::train, 10, Weights::live, ImageForm::numbers}).plan, seen));
    for (int step = 1; step <= 3; ++step) {
      const auto before = session.parameters(Weights::live);
      seen.clear();
      ASSERT_TRUE(train(session, step).ok);
      ASSERT_EQ(seen.size(), 6u);  // the stem, two blocks of two, a shortcut
      for (const auto& [mean_name, values] : seen) {
        const std::string var_name = mean_name.substr(0, mean_name.rfind("mean")) + "var";
        const std::vector<double> mean = session.parameter(mean_name),
                                  var = session.parameter(var_name);
        const std::size_t channels = mean.size(), n = values.size() / channels;
        ASSERT_EQ(n % 10, 0u) << "10 samples in all";
        for (std::size_t c = 0; c < channels; ++c) {
          double sum = 0, squares = 0;
          for (std::size_t i = 0; i < n; ++i) sum += values[i * channels + c];
          const double average = sum / static_cast<double>(n);
          for (std::size_t i = 0; i < n; ++i)
            squares += std::pow(values[i * channels + c] - average, 2);
          const double variance = squares / static_cast<double>(n - 1);
          const double want_mean = 0.9 * before.at(mean_name)[c] + 0.1 * average,
                       want_var = 0.9 * before.at(var_name)[c] + 0.1 * variance;
          // A mean near zero is as exact as what it is the mean of.
          EXPECT_NEAR(mean[c], want_mean,
                      1e-12 * std::max(std::abs(want_mean), std::sqrt(variance)))
              << mean_name << " " << accumulate;
          EXPECT_NEAR(var[c], want_var, 1e-12 * want_var) << var_name << " " << accumulate;
        }
      }
    }
  }
}

// With a rate of 1 and plain descent the weights are the gradients, which the running statistics of
// a first step have no part in.
TEST(DeferredNorm, MicroBatchesNormaliseByThemselves) {
  std::vector<double> losses;
  for (const std::int64_t accumulate : {2, 3, 4}) {
    Session plain(tiny("local", accumulate)), deferred(tiny("deferred", accumulate));
    plain.load(initial_weights(1));
    deferred.load(initial_weights(1));
    const StepResult want = train(plain, 1, 1.0), got = train(deferred, 1, 1.0);
    losses.push_back(want.loss);
    EXPECT_NEAR(got.loss, want.loss, 1e-12 * want.loss) << accumulate;
    EXPECT_NEAR(got.grad_norm, want.grad_norm, 1e-12 * want.grad_norm) << accumulate;
    bool moved_otherwise = false;
    for (const models::Param& p : models::parameters(plain.config().model)) {
      const std::vector<double> a = deferred.parameter(p.name), b = plain.parameter(p.name);
      double difference = 0, reference = 0;
      for (std::size_t i = 0; i < a.size(); ++i) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        reference += b[i] * b[i];
      }
      const double error = std::sqrt(difference / reference);
      if (p.buffer)
        moved_otherwise |= error > 1e-3;
      else
        EXPECT_LE(error, 1e-12) << p.name << " " << accumulate;
    }
    EXPECT_TRUE(moved_otherwise) << "the plain variant moves its running statistics " << accumulate
                                 << " times";
  }
  EXPECT_GT(std::abs(losses[0] - losses[1]), 1e-6)
      << "micro-batches of another size are another normalisation";
}

TEST(DeferredNorm, AStepThatIsNotFiniteChangesNothing) {
  Session session(tiny("deferred", 3));
  session.load(initial_weights(1));
  ASSERT_TRUE(train(session, 1).ok);
  const auto before = session.parameters(Weights::live);
  for (const std::size_t sample : {0u, 5u, 9u}) {  // of each micro-batch
    Data bad = data(session.config(), 2);
    bad.images[sample * 8 * 8 * 3 + 7] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(session.train_step(bad.images, bad.labels, 1e-2, 2, 0).ok);
    EXPECT_EQ(session.parameters(Weights::live), before);
  }
}

std::int64_t count(const ir::Program& program, ir::Op op) {
  return std::count_if(program.eqns.begin(), program.eqns.end(),
                       [&](const ir::Eqn& e) { return e.op == op; });
}

TEST(DeferredNorm, TheProgramHasOneUpdatePerNorm) {
  constexpr std::int64_t norms = 6;
  for (const char* dtype : {"f64", "f32", "bf16"}) {
    config::Config plain = tiny("local", 3), deferred = tiny("deferred", 3);
    plain.precision.dtype = deferred.precision.dtype = dtype;
    const ir::Program a = Session(plain).compiled(Goal::train, 10).program,
                      b = Session(deferred).compiled(Goal::train, 10).program;
    EXPECT_EQ(count(a, ir::Op::running_stats), 3 * norms);
    EXPECT_EQ(count(b, ir::Op::running_stats), norms);
    EXPECT_EQ(count(a, ir::Op::moments), 3 * norms);
    EXPECT_EQ(count(b, ir::Op::moments), 3 * norms);
    for (const ir::Eqn& e : b.eqns) {
      if (e.op != ir::Op::running_stats) continue;
      EXPECT_EQ(std::get<ir::BatchNorm>(e.attrs).samples, 10) << dtype;
    }
    // A sum stays in the element type of statistics.
    EXPECT_EQ(count(b, ir::Op::cast), count(a, ir::Op::cast)) << dtype;
  }
}

// Nothing is left to defer: to the letter the program of local norms, whatever it is for.
TEST(DeferredNorm, OneMicroBatchIsTheLocalVariant) {
  config::Config plain = tiny("local", 1), deferred = tiny("deferred", 1);
  plain.ema.decay = deferred.ema.decay = 0.9;
  Session a(plain), b(deferred);
  for (const Goal goal : {Goal::train, Goal::gradients, Goal::evaluate, Goal::predict})
    EXPECT_EQ(ir::print(a.compiled(goal, 10).program), ir::print(b.compiled(goal, 10).program));
  EXPECT_EQ(ir::print(a.compiled(Goal::recalibrate, 10, Weights::average).program),
            ir::print(b.compiled(Goal::recalibrate, 10, Weights::average).program));
}

}  // namespace
}  // namespace tessera::run::deferred_norm_test
