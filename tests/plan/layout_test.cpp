// Offsets in the arena: small layouts by hand, random ones by their properties, and how close real
// programs come to what is live.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/rng.h"
#include "exec/executor.h"
#include "plan/plan.h"
#include "transforms/tiny_vit.h"

namespace tessera::plan::layout_test {
namespace {

TEST(Layout, Empty) {
  const Layout l = lay_out({});
  EXPECT_EQ(l.bytes, 0);
  EXPECT_EQ(l.live, 0);
}

TEST(Layout, ReusesWhatHasDied) {
  // a and b overlap; c comes after a and fits its place; d needs more than any gap.
  const Layout l = lay_out({{128, 0, 1}, {64, 1, 3}, {128, 2, 3}, {192, 4, 4}});
  EXPECT_EQ(l.offsets[0], l.offsets[2]) << "c takes a's bytes";
  EXPECT_EQ(l.bytes, 192);
  EXPECT_EQ(l.live, 192);
}

TEST(Layout, ALastUseAndAFirstUseInOneStepOverlap) {
  const Layout l =
      lay_out({{64, 0, 1}, {64, 1, 2}});  // step 1 reads the first while it writes the second
  EXPECT_NE(l.offsets[0], l.offsets[1]);
  EXPECT_EQ(l.bytes, 128);
}

TEST(Layout, NothingOfZeroBytesTakesRoom) {
  const Layout l = lay_out({{0, 0, 5}, {64, 0, 5}, {0, 2, 3}});
  EXPECT_EQ(l.bytes, 64);
}

TEST(Layout, PeakStepIsWhereTheMostIsLive) {
  const Layout l = lay_out({{64, -1, 0}, {64, 0, 2}, {256, 1, 2}, {64, 3, 3}});
  EXPECT_EQ(l.live, 320);
  EXPECT_EQ(l.peak_step, 1);
}

void expect_sound(const std::vector<Interval>& intervals, const Layout& l) {
  std::int64_t end = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const Interval& a = intervals[i];
    ASSERT_GE(l.offsets[i], 0);
    ASSERT_EQ(l.offsets[i] % Target{}.alignment, 0);
    end = std::max(end, l.offsets[i] + a.bytes);
    for (std::size_t j = 0; j < i; ++j) {
      const Interval& b = intervals[j];
      const bool in_time = a.first <= b.last && b.first <= a.last;
      const bool in_space =
          l.offsets[i] < l.offsets[j] + b.bytes && l.offsets[j] < l.offsets[i] + a.bytes;
      ASSERT_FALSE(in_time && in_space && a.bytes > 0 && b.bytes > 0)
          << i << " and " << j << " share bytes while both are needed";
    }
  }
  ASSERT_EQ(l.bytes, end);
  ASSERT_GE(l.bytes, l.live);
}

TEST(Layout, RandomIntervalsNeverCollide) {
  double worst = 1;
  for (std::uint64_t n = 0; n < 300; ++n) {
    const Key key = Key{}.with("layout").with(n);
    std::uint64_t draw = 0;
    auto below = [&](int limit) {
      return static_cast<int>(random_bits(key, draw++) % static_cast<std::uint64_t>(limit));
    };
    std::vector<Interval> intervals;
    const int steps = 2 + below(60), longest = 1 + below(steps);
    for (int i = below(80); i-- > 0;) {
      const int first = below(steps) - 1;
      intervals.push_back(
          {Target{}.alignment * below(1 << below(10)), first, first + below(longest)});
    }
    const Layout l = lay_out(intervals);
    expect_sound(intervals, l);
    if (l.live > 0)
      worst = std::max(worst, static_cast<double>(l.bytes) / static_cast<double>(l.live));
  }
  EXPECT_LT(worst, 1.35);
}

// Little stays unused in the arena of real training steps.
TEST(Layout, TrainingStepsWasteLittle) {
  const plan::Target target = exec::target_of("cpu", 2);
  struct Row {
    const char* model;
    std::vector<std::int64_t> micro;
    test::StepOptions options;
  };
  const Row rows[] = {
      {"vit_micro", {32}, {}},
      {"vit_tiny_cifar", {64}, {}},
      {"vit_tiny_cifar", {32, 32}, {}},
      {"vit_tiny_cifar", {64}, {.remat = 1}},
      {"vit_tiny_cifar", {64}, {.remat = 3}},
      {"vit_tiny_cifar", {64}, {.bf16 = true}},
      {"vit_tiny_cifar", {64}, {.bf16 = true, .remat = 1}},
      {"vit_b_16", {8}, {}},
      {"vit_b_16", {3, 3, 2}, {.remat = 1}},
  };
  for (const Row& row : rows) {
    const Plan plan =
        lower(test::vit_step(models::preset(row.model), ir::DType::f32, row.micro, row.options), 0,
              target);
    const double ratio =
        static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.live_bytes);
    std::printf("%-16s %zu micro-batches%s remat %d: arena %9.1f MiB, %.4f of what is live\n",
                row.model, row.micro.size(), row.options.bf16 ? " bf16" : "", row.options.remat,
                static_cast<double>(plan.arena_bytes) / 1048576.0, ratio);
    EXPECT_LT(ratio, 1.05) << row.model << " with remat " << row.options.remat;
  }
}

}  // namespace
}  // namespace tessera::plan::layout_test
