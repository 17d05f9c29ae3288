// The synthetic data set: determinism, balance, disjoint splits, every size, and that a class is
// visible in its images.
#include "data/synthetic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <set>

#include "base/rng.h"
#include "files/scratch.h"

namespace tessera::data::synthetic_test {
namespace {

using test::error_of;

std::pair<std::vector<std::uint8_t>, int> sample(const Dataset& dataset, std::int64_t index) {
  Image image;
  dataset.get(index, {}, image);
  EXPECT_EQ(std::tuple(image.h, image.w, image.c),
            std::tuple(dataset.height(), dataset.width(), dataset.channels()));
  return {image.pixels, dataset.label(index)};
}

std::uint64_t digest(const Dataset& dataset, std::int64_t count) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [pixels, label] = sample(dataset, i);
    for (const std::uint8_t value : pixels) sum = tessera::mix(sum ^ value);
    sum = tessera::mix(sum ^ static_cast<std::uint64_t>(label));
  }
  return sum;
}

TEST(Synthetic, DependsOnSeedSplitAndIndexOnly) {
  const SyntheticSpec spec;
  const auto a = synthetic(spec, Split::train, 1), b = synthetic(spec, Split::train, 1),
             c = synthetic(spec, Split::train, 2);
  EXPECT_EQ(digest(*a, 50), digest(*b, 50));
  EXPECT_NE(digest(*a, 50), digest(*c, 50));
  EXPECT_EQ(sample(*a, 17), sample(*b, 17));  // whatever was drawn before
}

// These numbers must be the same on every machine and compiler; change them only together with the
// pictures.
TEST(Synthetic, SameBytesOnEveryMachine) {
  EXPECT_EQ(digest(*synthetic({}, Split::train, 42), 100), 14748723497245887023u);
  EXPECT_EQ(digest(*synthetic({24, 40, 1, 6400, 1000, 1000}, Split::test, 42), 100),
            3144241539332978982u);
}

TEST(Synthetic, ClassesAreBalancedAndSplitsDisjoint) {
  const SyntheticSpec spec{16, 16, 3, 7, 1000, 300};
  std::set<std::string> seen;
  for (const Split split : {Split::train, Split::test}) {
    const auto dataset = synthetic(spec, split, 5);
    std::map<int, int> count;
    for (std::int64_t i = 0; i < dataset->size(); ++i) {
      const auto [pixels, label] = sample(*dataset, i);
      ++count[label];
      EXPECT_TRUE(seen.emplace(pixels.begin(), pixels.end()).second) << i;
    }
    ASSERT_EQ(count.size(), 7u);
    for (const auto& [label, n] : count) EXPECT_NEAR(n, dataset->size() / 7.0, 1) << label;
  }
  EXPECT_EQ(seen.size(), 1300u);
}

TEST(Synthetic, AnySizeAnyChannelsAnyClasses) {
  for (const SyntheticSpec& spec : {SyntheticSpec{4, 4, 1, 2, 10, 10},
                                    {4, 100, 4, 11, 20, 10},
                                    {65, 33, 2, 81, 90, 10},
                                    {224, 224, 3, 1000, 12, 10},
                                    {8, 8, 16, 6400, 6500, 10},
                                    {16, 16, 3, 801, 900, 10}}) {
    const auto dataset = synthetic(spec, Split::train, 9);
    EXPECT_EQ(dataset->classes(), spec.classes);
    const std::set<std::string> names(dataset->class_names().begin(), dataset->class_names().end());
    EXPECT_EQ(names.size(), static_cast<std::size_t>(spec.classes));
    for (std::int64_t i = std::max<std::int64_t>(0, spec.train - 12); i < spec.train; ++i) {
      const auto [pixels, label] = sample(*dataset, i);
      EXPECT_TRUE(label >= 0 && label < spec.classes);
      EXPECT_NE(*std::min_element(pixels.begin(), pixels.end()),
                *std::max_element(pixels.begin(), pixels.end()));
    }
  }
  EXPECT_EQ(synthetic({16, 16, 3, 6400, 10, 10}, Split::train, 0)->class_names()[6399],
            "gridded bowtie with gridded bowtie");
  EXPECT_EQ(error_of([] {
              synthetic({0, 5000, 0, 1, 0, 0}, Split::train, 0);
            }).kind,
            ErrorKind::usage);
}

// Neither trivial nor hopeless: the mean colour, the easiest shortcut, must not tell the class.
TEST(Synthetic, MeanColourDoesNotTellTheClass) {
  const auto dataset = synthetic({}, Split::train, 3);
  constexpr int n = 2000;
  std::vector<std::array<double, 3>> mean(n);
  for (int i = 0; i < n; ++i) {
    const auto pixels = sample(*dataset, i).first;
    for (std::size_t p = 0; p < pixels.size(); ++p) mean[i][p % 3] += pixels[p] / 1024.0;
  }
  int right = 0;  // by the nearest neighbour in mean colour
  for (int i = 0; i < n; ++i) {
    int best = -1;
    double best_distance = 1e30;
    for (int j = 0; j < n; ++j) {
      double distance = 0;
      for (int k = 0; k < 3; ++k) distance += (mean[i][k] - mean[j][k]) * (mean[i][k] - mean[j][k]);
      if (j != i && distance < best_distance) {
        best_distance = distance;
        best = j;
      }
    }
    right += best % 10 == i % 10;
  }
  EXPECT_LT(right, n * 14 / 100);
}

}  // namespace
}  // namespace tessera::data::synthetic_test
