// DeepSpeed's schedules, step for step: against an object that is stepped after each update, as
// theirs are.
#include "train/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace tessera::run::learning_rate_test {
namespace {

// Does what DeepSpeed's WarmupLR, WarmupDecayLR and WarmupCosineLR do, with a peak of 1.
struct Stepped {
  std::string kind, rise;
  double least = 0, floor = 0;
  int warmup = 10, total = 100, position = -1;

  double rate() const {
    const int n = std::max(2, warmup);
    if (position < 0) return kind == "ds_cosine" ? 0.0 : least;
    if (position < n) {
      const double gamma =
          rise == "log" ? std::log(position + 1) / std::log(n) : static_cast<double>(position) / n;
      return least + (1 - least) * gamma;
    }
    if (kind == "ds_warmup") return 1.0;
    const double rest = std::max(1, total - n);
    if (kind == "ds_decay") return least + (1 - least) * std::max(0.0, (total - position) / rest);
    const double turn = static_cast<double>(position - n + 1) / (total - n);
    return std::max(0.0, floor + (1 - floor) * (1 + std::cos(M_PI * turn)) / 2);
  }
};

TEST(DeepSpeedSchedule, StepForStep) {
  for (const char* kind : {"ds_warmup", "ds_decay", "ds_cosine"})
    for (const char* rise : {"log", "linear"})
      for (const int warmup : {1, 2, 10, 60, 200})
        for (const int planned : {0, 40, 100}) {  // 0: the length of the run
          config::Config c;
          c.optim.lr = 0.5;
          c.lr.schedule = kind;
          c.lr.rise = rise;
          c.lr.warmup = {warmup, 0, false};
          c.lr.start = 0.25;
          c.lr.final = 0.125;
          c.lr.steps = planned;
          Stepped theirs{kind, rise, 0.25, 0.125, warmup, planned > 0 ? planned : 70};
          for (int step = 1; step <= 70; ++step, ++theirs.position)
            ASSERT_NEAR(learning_rate(c, step, 70), 0.5 * theirs.rate(), 1e-12)
                << kind << " " << rise << " " << warmup << " " << step;
        }
}

config::Config cosine_of(int steps, int warmup, double start, double final) {
  config::Config c;
  c.optim.lr = 0.5;
  c.lr.schedule = "ds_cosine";
  c.lr.rise = "linear";
  c.lr.warmup = {warmup, 0, false};
  c.lr.start = start;
  c.lr.final = final;
  c.lr.steps = steps;
  return c;
}

void expect_rates(const config::Config& c, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(learning_rate(c, static_cast<std::int64_t>(i) + 1, 20), expected[i], 1e-12)
        << "step " << i + 1;
}

// The rates that WarmupCosineLR of DeepSpeed 0.15.3 printed, stepped after each update, far past
// total_num_steps.
TEST(DeepSpeedSchedule, CosineRisesAgainPastItsLength) {
  // total_num_steps 10, warmup_num_steps 4, linear, warmup_min_ratio 0.25, cos_min_ratio 0.125
  expect_rates(cosine_of(10, 4, 0.25, 0.125), {0.0,      0.125,
                                               0.21875,  0.3125,
                                               0.40625,  0.470693057077846,
                                               0.390625, 0.28125,
                                               0.171875, 0.09180694292215404,
                                               0.0625,   0.09180694292215401,
                                               0.171875, 0.28125,
                                               0.390625, 0.4706930570778459,
                                               0.5,      0.4706930570778459,
                                               0.390625, 0.28125});
  // total_num_steps 3 below warmup_num_steps 6, linear, from 0 to 0.0001
  expect_rates(
      cosine_of(3, 6, 0, 0.0001),
      {0.0, 0.0, 0.08333333333333333, 0.16666666666666666, 0.25, 0.3333333333333333,
       0.4166666666666667, 0.3750125, 0.1250375, 5e-05, 0.1250375, 0.3750125, 0.5, 0.3750125});
}

// DeepSpeed divides by zero here.
TEST(DeepSpeedSchedule, CosineOfNoLengthStaysAtItsFloor) {
  expect_rates(cosine_of(4, 4, 0, 0.125), {0.0, 0.0, 0.125, 0.25, 0.375, 0.0625, 0.0625, 0.0625});
}

// Every rate of a run, whatever its schedule, is that of optim.lr times what lr.scale makes of the
// batch.
TEST(ScaledRate, FollowsTheBatchAtEveryStep) {
  for (const char* kind :
       {"constant", "step", "cosine", "onecycle", "ds_warmup", "ds_decay", "ds_cosine"}) {
    config::Config plain;
    plain.optim.lr = 0.3;
    plain.lr.schedule = kind;
    plain.batch.global = 1024;
    for (const auto& [scale, factor] : {std::pair("linear", 16.0), std::pair("sqrt", 4.0)}) {
      config::Config scaled = plain;
      scaled.lr.scale = scale;
      scaled.lr.scale_from = 64;
      for (int step = 1; step <= 100; ++step)
        EXPECT_NEAR(learning_rate(scaled, step, 100), factor * learning_rate(plain, step, 100),
                    1e-12)
            << kind << " " << scale;
    }
  }
}

}  // namespace
}  // namespace tessera::run::learning_rate_test
