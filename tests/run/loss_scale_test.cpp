// f16 and its loss scale: an overflow is answered by a smaller scale and costs nothing but the
// step, a run goes on from a checkpoint with the same bits, and at its minimum the scale gives up.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/state_tensors.h"
#include "files/scratch.h"
#include "session/init.h"
#include "session/session.h"
#include "verbs/verbs.h"

namespace tessera::run::loss_scale_test {
namespace {

config::Config tiny(const std::string& family = "vit") {
  config::Config c;
  c.model = models::preset(family == "vit"    ? "vit_micro"
                           : family == "swin" ? "swin_micro"
                                              : "resnet_micro_cifar");
  if (family == "vit") c.model.depth = 1;
  c.model.head_init = "normal";
  c.precision.dtype = "f16";
  c.precision.initial_scale_power = 24;
  c.precision.loss_scale_window = 3;
  c.optim.clip = 1.0;
  c.run.threads = 1;
  c.batch = {4, 4, 1};
  return c;
}

// Tries steps; a batch is that of the next update, so that one which was skipped is tried again.
struct Trained {
  Session session;
  std::int64_t applied = 0;
  explicit Trained(const config::Config& c) : session(c) { session.load(initial_weights(3)); }
  StepResult step() {
    const models::ModelConfig& m = session.config().model;
    std::vector<float> images(static_cast<std::size_t>(4 * m.image_h * m.image_w * m.channels));
    for (std::size_t k = 0; k < images.size(); ++k)
      images[k] = static_cast<float>(normal(Key{static_cast<std::uint64_t>(applied + 1)}, k));
    const std::vector<std::int32_t> labels = {1, 2, 3, 4};
    const StepResult r = session.train_step(images, labels, 1e-3, applied + 1, 4 * applied);
    applied += r.ok;
    return r;
  }
  std::map<std::string, std::vector<std::byte>> state() {
    std::map<std::string, std::vector<std::byte>> out;
    for (const StateTensor& t : state_tensors(session)) {
      std::vector<std::byte>& bytes = out[t.name];
      bytes.resize(static_cast<std::size_t>(t.bytes()));
      session.executor().read_persistent(t.buffer, t.offset, bytes);
    }
    return out;
  }
};

// 2^24 is too much for gradients that end at 65504. Halved step by step it fits, and after every
// third good step it is doubled again, until that is too much once more.
TEST(LossScale, AnOverflowRecovers) {
  for (const char* family : {"vit", "swin", "resnet"}) {
    Trained half(tiny(family));
    config::Config plain = tiny(family);
    plain.precision = {};
    Trained wide(plain);
    double scale = 0x1p24;
    int good = 0, overflows = 0, grown = 0;
    std::vector<double> losses, norms;
    for (int i = 0; i < 24; ++i) {
      const auto before = half.state();
      const StepResult r = half.step();
      ASSERT_EQ(r.loss_scale, scale) << family << ", try " << i;
      ASSERT_TRUE(std::isfinite(r.loss)) << family;
      ASSERT_EQ(r.ok, !r.overflow) << family;
      if (r.overflow) {
        auto after = half.state();
        for (const char* moved : {"buffer.loss_scale", "buffer.good_steps"})
          after[moved] = before.at(moved);
        EXPECT_EQ(after, before) << family << ": a skipped step changes nothing else";
        scale /= 2;
        good = 0;
        ++overflows;
      } else {
        losses.push_back(r.loss);
        norms.push_back(r.grad_norm);
        if (++good == 3) {
          scale *= 2;
          good = 0;
          ++grown;
        }
      }
    }
    EXPECT_GE(overflows, 3) << family;
    EXPECT_GE(grown, 2) << family;
    ASSERT_GE(losses.size(), 6u) << family;
    // As if nothing had happened: updates are those of f32, to the roundings of f16.
    for (std::size_t i = 0; i < 6; ++i) {
      const StepResult r = wide.step();
      EXPECT_NEAR(r.loss, losses[i], 1e-2 * losses[i]) << family << ", update " << i + 1;
      EXPECT_NEAR(r.grad_norm, norms[i], 2e-2 * norms[i]) << family << ", update " << i + 1;
    }
  }
}

TEST(LossScale, OfSeveralOverflowsTheLastHalves) {
  config::Config c = tiny();
  c.precision.hysteresis = 3;
  Trained t(c);
  const double want[] = {0x1p24, 0x1p24, 0x1p24, 0x1p23, 0x1p22};
  for (const double scale : want) {
    const StepResult r = t.step();
    EXPECT_EQ(r.loss_scale, scale);
    EXPECT_TRUE(r.overflow);
  }
}

TEST(LossScale, AFixedOneAnswersNothing) {
  config::Config c = tiny();
  c.precision.loss_scale = 0x1p24;
  Trained huge(c);
  for (int i = 0; i < 3; ++i) {
    const StepResult r = huge.step();
    EXPECT_EQ(r.loss_scale, 0x1p24);
    EXPECT_TRUE(!r.ok && !r.overflow);
  }
  c.precision.loss_scale = 128;
  Trained usual(c);
  for (int i = 0; i < 4; ++i) {
    const StepResult r = usual.step();
    EXPECT_EQ(r.loss_scale, 128);
    EXPECT_TRUE(r.ok);
  }
}

// No scale helps a loss that is not finite.
TEST(LossScale, ALossThatIsNotFiniteIsABadStep) {
  Trained t(tiny());
  const std::vector<float> images(static_cast<std::size_t>(4 * t.session.config().model.image_h *
                                                           t.session.config().model.image_w * 3),
                                  std::numeric_limits<float>::quiet_NaN());
  const std::vector<std::int32_t> labels = {1, 2, 3, 4};
  for (int i = 0; i < 2; ++i) {
    const StepResult r = t.session.train_step(images, labels, 1e-3, 1, 0);
    EXPECT_TRUE(!r.ok && !r.overflow);
    EXPECT_EQ(r.loss_scale, 0x1p24);
  }
}

// Whatever the number of tries before and after: scale, counters and weights go on bit for bit.
TEST(LossScale, GoesOnWithTheSameBits) {
  for (const int tries : {0, 2, 8}) {
    const test::Scratch scratch;
    Trained a(tiny()), b(tiny());
    for (int i = 0; i < tries; ++i) a.step();
    a.session.compiled(Goal::train, 4);
    Progress progress;
    progress.step = a.applied;
    Snapshot snapshot;
    take_snapshot(a.session, progress, {}, snapshot);
    write_checkpoint(scratch.folder(), snapshot, {});
    std::vector<std::string> notes;
    const auto found = load_newest_checkpoint(scratch.folder(), b.session, 100, notes);
    ASSERT_TRUE(found);
    b.applied = found->step;
    for (int i = 0; i < 8; ++i) {
      const StepResult of_a = a.step(), of_b = b.step();
      EXPECT_EQ(of_a.loss_scale, of_b.loss_scale);
      EXPECT_EQ(of_a.loss, of_b.loss);
    }
    EXPECT_EQ(a.state(), b.state()) << tries;
    EXPECT_TRUE(a.state().contains("buffer.loss_scale"));
  }
}

config::Config whole_run(const std::filesystem::path& out) {
  config::Config c = tiny();
  c.data.source = "synthetic:32x32x3,10";
  c.data.train_size = 64;
  c.data.test_size = 4;
  c.data.workers = 1;
  c.run.epochs = 1;
  c.run.out = out.string();
  c.run.name = "half";
  return c;
}

// The loop counts overflows as skipped, not as bad steps, and says the scale of every step.
TEST(LossScale, ATrainingWritesItsScales) {
  const test::Scratch scratch;
  config::Config c = whole_run(scratch / "run");
  TrainOptions options;
  options.quiet = true;
  ASSERT_EQ(run::train(c, options), 0);
  std::ifstream file(scratch / "run/metrics.jsonl");
  double before = 0x1p25;
  int skipped = 0, steps = 0;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json m = nlohmann::json::parse(line);
    if (m["kind"] != "step") continue;
    ++steps;
    const double scale = m["loss_scale"];
    if (steps == 1 + skipped) {
      EXPECT_EQ(scale, before / 2) << line;
    }
    EXPECT_EQ(m.contains("skipped"), m.contains("overflow")) << line;
    if (m.contains("skipped")) {
      ++skipped;
      before = scale;
    }
  }
  EXPECT_EQ(steps, 16);
  EXPECT_GE(skipped, 3);
  EXPECT_LT(skipped, 12);
}

// At the minimum an overflow is a bad step, and ten of them in a row end the run.
TEST(LossScale, GivesUpAtItsMinimum) {
  const test::Scratch scratch;
  config::Config c = whole_run(scratch / "run");
  c.precision.min_loss_scale = 0x1p23;
  TrainOptions options;
  options.quiet = true;
  try {
    run::train(c, options);
    FAIL() << "a run whose every gradient overflows came to its end";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::nonfinite);
    EXPECT_NE(e.message.find("10 steps in a row"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace tessera::run::loss_scale_test
