// Counter-based random numbers: pure functions, so that every test here is exact.
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"

namespace tessera::rng_test {
namespace {

constexpr Key key = Key{}.with(42).with("blocks.0.dropout");

TEST(Rng, SameBitsOnEveryMachine) {
  // Computed once and written down: a change here changes every run that was ever recorded.
  static_assert(hash_name("") == 0xcbf29ce484222325ULL);
  static_assert(hash_name("a") == 0xaf63dc4c8601ec8cULL);  // the published FNV-1a value
  static_assert(mix(0) == 0xe220a8397b1dcdafULL);  // the published SplitMix64 value for state 0
  static_assert(random_bits(key, 0) == random_bits(Key{}.with(42).with("blocks.0.dropout"), 0));
}

TEST(Rng, KeysAndCountersAreToldApart) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    for (const char* name : {"", "a", "b", "ab"})
      for (std::uint64_t i = 0; i < 64; ++i)
        seen.insert(random_bits(Key{}.with(seed).with(name), i));
  EXPECT_EQ(seen.size(), 8u * 4u * 64u);
  EXPECT_NE(Key{}.with(1).with(2).bits, Key{}.with(2).with(1).bits) << "order matters";
}

TEST(Rng, UniformFillsTheIntervalEvenly) {
  int buckets[10] = {};
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const float u = uniform(key, i);
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    ++buckets[static_cast<int>(u * 10)];
  }
  for (int count : buckets) EXPECT_NEAR(count, 10000, 500);  // five standard deviations
}

TEST(Rng, NormalHasItsMoments) {
  double sum = 0, squares = 0, fourth = 0;
  constexpr int n = 100000;
  for (std::uint64_t i = 0; i < n; ++i) {
    const double x = normal(key, i);
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.03);
  EXPECT_NEAR(fourth / n, 3, 0.2);
}

}  // namespace
}  // namespace tessera::rng_test
