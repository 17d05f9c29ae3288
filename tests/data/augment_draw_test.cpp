// This tests what chance draws: crops, erased rectangles, cutouts and policies stay in their bounds
// and have the distributions they claim. Convention: fixed seeds, so a bound that holds once holds
// always.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "data/augment.h"
#include "data/augment_policy.h"

namespace tessera::data::augment_draw_test {
namespace {

constexpr int draws = 4000;

Draw draw(int i, std::string_view stream = "test") { return Draw(SampleKey{11, 3, i, 0}, stream); }

bool inside(const Region& r, int h, int w) {
  return r.top >= 0 && r.left >= 0 && r.h > 0 && r.w > 0 && r.top + r.h <= h && r.left + r.w <= w;
}

TEST(AugmentDraw, UniformAndBelow) {
  double sum = 0, least = 1, most = 0;
  std::vector<int> counts(7);
  for (int i = 0; i < draws; ++i) {
    Draw d = draw(i);
    const double u = d.uniform();
    sum += u;
    least = std::min(least, u);
    most = std::max(most, u);
    ++counts[static_cast<std::size_t>(d.below(7))];
    EXPECT_EQ(d.below(1), 0);
  }
  EXPECT_NEAR(sum / draws, 0.5, 0.02);
  EXPECT_GT(least, 0);
  EXPECT_LT(most, 1);
  for (const int count : counts) EXPECT_NEAR(count, draws / 7, 90);
}

TEST(AugmentDraw, ResizedCrops) {
  double area = 0, log_ratio = 0, y = 0;
  for (int i = 0; i < draws; ++i) {
    const Region r = draw_resized_crop(draw(i), 300, 400, 0.08, 1.0, 3.0 / 4, 4.0 / 3);
    ASSERT_TRUE(inside(r, 300, 400));
    const double part = r.h * r.w / 120000.0, ratio = static_cast<double>(r.w) / r.h;
    ASSERT_TRUE(part > 0.079 && part <= 1 && ratio > 0.74 && ratio < 1.35) << part << " " << ratio;
    area += part;
    log_ratio += std::log(ratio);
    y += r.top + r.h / 2.0;
  }
  // torchvision draws 0.432 and 0.031 on average: the largest and the tallest often do not fit.
  EXPECT_NEAR(area / draws, 0.432, 0.01);
  EXPECT_NEAR(log_ratio / draws, 0.031, 0.01);
  EXPECT_NEAR(y / draws, 150, 2);
  // A rectangle that never fits ends in the middle, in the nearest ratio.
  EXPECT_EQ(draw_resized_crop(draw(0), 4, 400, 0.9, 1.0, 3.0 / 4, 4.0 / 3), (Region{0, 197, 4, 5}));
  EXPECT_EQ(draw_resized_crop(draw(0), 400, 3, 0.9, 1.0, 3.0 / 4, 4.0 / 3), (Region{198, 0, 4, 3}));
  EXPECT_EQ(draw_resized_crop(draw(0), 1, 1, 0.08, 1.0, 3.0 / 4, 4.0 / 3), (Region{0, 0, 1, 1}));
}

TEST(AugmentDraw, PaddedCropsReachEveryOffset) {
  std::vector<int> counts(81);
  for (int i = 0; i < draws; ++i) {
    const Region r = draw_padded_crop(draw(i), 32, 32, 4);
    ASSERT_TRUE(r.top >= -4 && r.top <= 4 && r.left >= -4 && r.left <= 4 && r.h == 32 && r.w == 32);
    ++counts[static_cast<std::size_t>((r.top + 4) * 9 + r.left + 4)];
  }
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 20);
  EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 90);
}

TEST(AugmentDraw, Reflection) {
  const std::vector<int> expected = {1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0, 1};
  for (int at = -5; at <= 7; ++at)
    EXPECT_EQ(reflected(at, 4), expected[static_cast<std::size_t>(at + 5)]) << at;
  for (int at = -5; at <= 7; ++at) EXPECT_EQ(reflected(at, 1), 0);
}

TEST(AugmentDraw, ErasedRectangles) {
  EraseOptions options;
  options.probability = 0.25;
  int erased = 0;
  double area = 0;
  for (int i = 0; i < draws; ++i) {
    const Region r = draw_erase(draw(i), options, 32, 48);
    if (r.h == 0) continue;
    ++erased;
    ASSERT_TRUE(inside(r, 32, 48) && r.h < 32 && r.w < 48);
    const double part = r.h * r.w / (32.0 * 48), ratio = static_cast<double>(r.h) / r.w;
    ASSERT_TRUE(part > 0.015 && part < 0.35 && ratio > 0.25 && ratio < 4) << part << " " << ratio;
    area += part;
  }
  EXPECT_NEAR(erased, draws / 4, 90);
  EXPECT_NEAR(area / erased, 0.17, 0.01);
  options.probability = 1;
  EXPECT_EQ(draw_erase(draw(0), options, 1, 1), Region{});
}

TEST(AugmentDraw, ErasesTheRectangleAlone) {
  const Region region{1, 2, 3, 4};
  std::vector<float> image(6 * 8 * 2, 5.0f), random = image;
  erase(region, 8, 2, image);
  erase_random(region, Key{9}, 8, 2, random);
  double sum = 0, squares = 0;
  for (int i = 0; i < 96; ++i) {
    const int y = i / 16, x = i / 2 % 8;
    const bool hit = y >= 1 && y < 4 && x >= 2 && x < 6;
    EXPECT_EQ(image[static_cast<std::size_t>(i)], hit ? 0.0f : 5.0f);
    EXPECT_TRUE(hit || random[static_cast<std::size_t>(i)] == 5.0f);
    if (hit) {
      sum += random[static_cast<std::size_t>(i)];
      squares += std::pow(random[static_cast<std::size_t>(i)], 2);
    }
  }
  EXPECT_LT(std::abs(sum / 24), 0.6);
  EXPECT_TRUE(squares / 24 > 0.4 && squares / 24 < 2);
}

TEST(AugmentDraw, Cutouts) {
  double area = 0;
  for (int i = 0; i < draws; ++i) {
    const Region r = draw_cutout(draw(i), 8, 32, 32);
    ASSERT_TRUE(inside(r, 32, 32) && r.h >= 4 && r.h <= 8 && r.w >= 4 && r.w <= 8);
    area += r.h * r.w;
  }
  EXPECT_NEAR(area / draws, 7.5 * 7.5, 1);  // the borders cut some off
  EXPECT_EQ(draw_cutout(draw(0), 1000, 5, 6), (Region{0, 0, 5, 6}));
  EXPECT_EQ(draw_cutout(draw(0), 1, 1, 1), (Region{0, 0, 1, 1}));
}

TEST(AugmentDraw, PoliciesUseAllTheyHave) {
  Image image(24, 24, 3);
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(40 + random_bits(Key{1}, i) % 150);
  int same = 0;
  for (int i = 0; i < 1400; ++i) {
    Image changed = image;
    randaugment(draw(i), 1, 9, changed);
    same += changed == image;
  }
  EXPECT_NEAR(same, 100, 30);  // identity, 1 of 14
  same = 0;
  for (int i = 0; i < 1400; ++i) {
    Image changed = image;
    autoaugment(draw(i), changed);
    same += changed == image;
  }
  EXPECT_TRUE(same > 100 && same < 500) << same;
}

TEST(AugmentDraw, JitterStaysInItsRange) {
  for (int i = 0; i < 200; ++i) {
    Image grey(1, 1, 3);
    grey.pixels = {100, 100, 100};
    color_jitter(draw(i), {0.4, 0, 0, 0}, grey);
    ASSERT_TRUE(grey.pixels[0] >= 59 && grey.pixels[0] <= 140) << int{grey.pixels[0]};
    color_jitter(draw(i), {0, 0.9, 0.9, 0.5}, grey);  // nothing to see on one grey pixel
    ASSERT_EQ(grey.pixels[0], grey.pixels[2]);
  }
}

}  // namespace
}  // namespace tessera::data::augment_draw_test
