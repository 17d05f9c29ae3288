// DeepSpeed's schedules, step for step: against an object that is stepped after each update, as theirs are.
#include "run/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::run::schedule_test {
namespace {

// What DeepSpeed's WarmupLR, WarmupDecayLR and WarmupCosineLR do, with a peak of 1.
struct Stepped {
  std::string kind, rise;
  double least = 0, floor = 0;
  int warmup = 10, total = 100, position = -1;

  double rate() const {
    const int n = std::max(2, warmup);
    if (position < 0) return kind == "ds_cosine" ? 0.0 : least;
    if (position < n) {
      const double gamma = rise == "log" ? std::log(position + 1) / std::log(n) : static_cast<double>(position) / n;
      return least + (1 - least) * gamma;
    }
    if (kind == "ds_warmup") return 1.0;
    const double rest = std::max(1, total - n);
    if (kind == "ds_decay") return least + (1 - least) * std::max(0.0, (total - position) / rest);
    const double progress = std::min(1.0, (position - n + 1) / rest);
    return floor + (1 - floor) * (1 + std::cos(M_PI * progress)) / 2;
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
            ASSERT_NEAR(learning_rate(c, step, 70), 0.5 * theirs.rate(), 1e-12) << kind << " " << rise << " " << warmup << " " << step;
        }
}

// Every rate of a run, whatever its schedule, is that of optim.lr times what lr.scale makes of the batch.
TEST(ScaledRate, FollowsTheBatchAtEveryStep) {
  for (const char* kind : {"constant", "step", "cosine", "onecycle", "ds_warmup", "ds_decay", "ds_cosine"}) {
    config::Config plain;
    plain.optim.lr = 0.3;
    plain.lr.schedule = kind;
    plain.batch.global = 1024;
    for (const auto& [scale, factor] : {std::pair("linear", 16.0), std::pair("sqrt", 4.0)}) {
      config::Config scaled = plain;
      scaled.lr.scale = scale;
      scaled.lr.scale_from = 64;
      for (int step = 1; step <= 100; ++step)
        EXPECT_NEAR(learning_rate(scaled, step, 100), factor * learning_rate(plain, step, 100), 1e-12) << kind << " " << scale;
    }
  }
}

}  // namespace
}  // namespace tessera::run::schedule_test
