// Mixup and CutMix: targets sum to 1, pairs are symmetric, every rank computes the same mix, and
// lambda is a Beta variate.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "data/mix.h"

namespace tessera::data::mix_test {
namespace {

constexpr MixShape shape_of{6, 5, 2, 7};
constexpr std::size_t pixels = 60, classes = 7;

struct Sample {
  std::vector<float> images, targets;
  std::vector<std::int32_t> labels;
};

// Sample i of a global batch; its pixels name it.
Sample samples(std::int64_t begin, std::int64_t end) {
  Sample s;
  for (std::int64_t i = begin; i < end; ++i) {
    s.labels.push_back(static_cast<std::int32_t>(i % 7));
    for (std::size_t k = 0; k < pixels; ++k)
      s.images.push_back(static_cast<float>(100 * i) + static_cast<float>(k));
  }
  s.targets.resize(s.labels.size() * classes);
  return s;
}

Sample mixed(const MixOptions& options, BatchPart part, std::int64_t end) {
  Sample s = samples(part.begin, end);
  mix(options, part, shape_of, s.images, s.labels, s.targets);
  return s;
}

TEST(Mix, TargetsSumToOneAndPairsAreSymmetric) {
  int kinds[3] = {};
  for (std::int64_t batch = 0; batch < 200; ++batch) {
    MixOptions options{0.8, 1.0, 0.8, 0.5, 0.1};
    const BatchPart part{3, batch, 9 * batch, 9, 0};
    const Mix how = draw_mix(options, part, 6, 5);
    ++kinds[how.is_cutmix() ? 2 : how.lambda < 1 ? 1 : 0];
    const Sample s = mixed(options, part, 9), before = samples(0, 9);
    for (std::size_t i = 0; i < 9; ++i) {
      const auto row = s.targets.begin() + static_cast<std::ptrdiff_t>(i * classes);
      EXPECT_NEAR(std::accumulate(row, row + classes, 0.0), 1.0, 1e-6);
      EXPECT_GT(*std::min_element(row, row + classes), 0.0f);
      const std::size_t partner = i ^ 1;
      for (std::size_t k = 0; k < pixels; ++k) {
        const float own = before.images[i * pixels + k], got = s.images[i * pixels + k];
        if (partner >= 9) {
          EXPECT_EQ(own, got) << "the last of nine has no partner";
          continue;
        }
        const float other = before.images[partner * pixels + k];
        EXPECT_NEAR(got + s.images[partner * pixels + k], own + other,
                    1e-3);  // what one gives the other gets
        EXPECT_TRUE(!how.is_cutmix() || got == own || got == other);
      }
    }
    // lambda is the share of the target that stays.
    EXPECT_NEAR(s.targets[0], 0.9 * how.lambda + 0.1 / 7, 1e-6);
  }
  EXPECT_NEAR(kinds[0], 45, 25);  // 40 by chance, a few boxes of no pixel
  EXPECT_GT(kinds[1], 50);
  EXPECT_GT(kinds[2], 50);
}

TEST(Mix, CutMixKeepsWhatLambdaSays) {
  const MixOptions options{0, 1.0};
  for (std::int64_t batch = 0; batch < 100; ++batch) {
    const BatchPart part{3, 0, 2 * batch, 2, 0};
    const Sample s = mixed(options, part, 2);
    int kept = 0;
    for (std::size_t k = 0; k < pixels; ++k) kept += s.images[k] == static_cast<float>(k);
    EXPECT_NEAR(kept / 60.0, draw_mix(options, part, 6, 5).lambda, 1e-6);
    EXPECT_NEAR(s.targets[0], kept / 60.0, 1e-6);
  }
}

TEST(Mix, EveryRankComputesTheSame) {
  for (const MixOptions& options : {MixOptions{0.2, 0}, MixOptions{0, 1.0}, MixOptions{0.4, 1.0}})
    for (std::int64_t count : {10, 11})
      for (std::int64_t batch = 0; batch < 10; ++batch) {
        const Sample all = mixed(options, {5, batch, 100, count, 0}, count);
        for (std::int64_t begin = 0; begin <= count; ++begin)
          for (std::int64_t end = begin; end <= count; ++end) {
            const PairRange range = whole_pairs(begin, end, count);
            EXPECT_TRUE(range.begin <= begin && range.end >= end && range.end <= count);
            const Sample part = mixed(options, {5, batch, 100, count, range.begin}, range.end);
            const auto offset = static_cast<std::ptrdiff_t>(begin - range.begin),
                       n = static_cast<std::ptrdiff_t>(end - begin);
            const auto p = static_cast<std::ptrdiff_t>(pixels),
                       c = static_cast<std::ptrdiff_t>(classes);
            EXPECT_TRUE(std::equal(part.images.begin() + offset * p,
                                   part.images.begin() + (offset + n) * p,
                                   all.images.begin() + begin * p));
            EXPECT_TRUE(std::equal(part.targets.begin() + offset * c,
                                   part.targets.begin() + (offset + n) * c,
                                   all.targets.begin() + begin * c));
          }
      }
  EXPECT_THROW(mixed({0.2, 0}, {5, 0, 0, 10, 1}, 3), Error) << "half a pair";
  EXPECT_THROW(mixed({0.2, 0}, {5, 0, 0, 10, 0}, 3), Error);
}

TEST(Mix, OffLeavesEverything) {
  for (const MixOptions& options : {MixOptions{}, MixOptions{0.2, 1.0, 0.0}}) {
    const Sample s = mixed(options, {1, 0, 0, 5, 1}, 4), before = samples(1, 4);
    EXPECT_FALSE(options.enabled());
    EXPECT_EQ(s.images, before.images);
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t k = 0; k < classes; ++k)
        EXPECT_EQ(s.targets[i * classes + k], k == i + 1 ? 1.0f : 0.0f);
  }
  Sample s = samples(0, 2);
  s.labels[1] = 7;
  EXPECT_THROW(mix({}, {1, 0, 0, 2, 0}, shape_of, s.images, s.labels, s.targets), Error);
  s.labels[1] = -1;
  EXPECT_THROW(mix({}, {1, 0, 0, 2, 0}, shape_of, s.images, s.labels, s.targets), Error);
}

TEST(Mix, BetaHasItsMoments) {
  for (const double alpha : {0.01, 0.2, 0.5, 0.8, 1.0, 1.5, 4.0, 100.0}) {
    double sum = 0, squares = 0;
    constexpr int n = 20000;
    for (int i = 0; i < n; ++i) {
      Draw draw(Key{8}.with(static_cast<std::uint64_t>(i)));
      const double value = draw_beta(draw, alpha);
      ASSERT_TRUE(value >= 0 && value <= 1) << value;
      ASSERT_EQ(value * 0x1.0p20, std::floor(value * 0x1.0p20));
      sum += value;
      squares += (value - 0.5) * (value - 0.5);
    }
    const double variance = 1 / (4 * (2 * alpha + 1));
    EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(variance / n)) << alpha;
    EXPECT_NEAR(squares / n / variance, 1.0, 0.05) << alpha;
  }
}

}  // namespace
}  // namespace tessera::data::mix_test
