// checkpoint.every = "auto": the interval from what a checkpoint costs and how often failures come.
#include <gtest/gtest.h>

#include "app/binary.h"
#include "checkpoint/save_interval.h"

namespace tessera::test::save_interval_test {
namespace {

using run::SaveInterval;
using run::steps_between;

TEST(SaveInterval, YoungsInterval) {
  // 2 s of a 1 s step's time and a failure every 10,000 s: sqrt(2 x 2 x 10000) = 200 s.
  EXPECT_EQ(steps_between(2, 1, 10000), 200);
  EXPECT_EQ(steps_between(2, 0.5, 10000), 400);
  EXPECT_EQ(steps_between(8, 1, 10000), 400) << "four times the cost, half as often";
  EXPECT_EQ(steps_between(2, 1, 40000), 400) << "and so with fewer failures";
  EXPECT_EQ(steps_between(1e-9, 100, 1), 1) << "never less than a step";
  // No interval near it loses less: cost / T of saving and T / 2 of work done again.
  const auto lost = [](double interval_s) { return 2 / interval_s + interval_s / (2 * 10000); };
  for (const double other : {100.0, 190.0, 210.0, 400.0}) EXPECT_LT(lost(200), lost(other));
}

TEST(SaveInterval, EverySoManySteps) {
  SaveInterval fixed(3, 1e6);
  EXPECT_FALSE(fixed.due(1));
  EXPECT_TRUE(fixed.due(3));
  EXPECT_FALSE(SaveInterval(0, 1e6).due(3));
  fixed.saved(3, 1, 1);
  EXPECT_EQ(fixed.remark(), "");
}

TEST(SaveInterval, FollowsWhatItSees) {
  SaveInterval interval(-1, 20000);
  EXPECT_FALSE(interval.due(101));  // a run that went on from step 100
  EXPECT_TRUE(interval.due(120));
  interval.again(120);
  EXPECT_FALSE(interval.due(136));
  EXPECT_FALSE(interval.due(140)) << "no multiple";
  EXPECT_TRUE(interval.due(144));
  interval.saved(144, 1, 1);
  EXPECT_EQ(interval.remark(),
            "a checkpoint every 200 steps (200 s): it holds the run up for 1000.0 ms, and a "
            "failure is expected every 5.56 h");
  EXPECT_EQ(interval.remark(), "");
  EXPECT_FALSE(interval.due(336));
  EXPECT_TRUE(interval.due(344));
  interval.saved(344, 1, 10);  // steps became slower
  EXPECT_FALSE(interval.due(360));
  EXPECT_TRUE(interval.due(368));
  EXPECT_NE(interval.remark(), "");
}

TEST(SaveInterval, ATrainingChoosesAndSaysSo) {
  const fs::path out = scratch() / "save_interval";
  const Result r =
      run("train --model vit_micro --set model.depth=1 --set data.train_size=64 --set "
          "data.test_size=16 --global-batch 16 --threads 1 --set run.eval_every=0 --steps 90 --set "
          "checkpoint.every=auto --set checkpoint.mtbf_h=0.001 --set checkpoint.keep=100 --out " +
          out.string());
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("note: a checkpoint every "), r.err.npos) << r.err;
  std::size_t saved = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(out / "ckpt")) ++saved;
  EXPECT_GE(saved, 3u) << "after 20 and 40 steps, and at the end";
  EXPECT_NE(run("config show " + (out / "resolved.toml").string()).out.find("= \"auto\"\n"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::test::save_interval_test
