// IEEE binary16: every one of its values, and the exact rounding of what lies between them.
#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::half_test {
namespace {

// By the definition, in doubles: sign, 5 bits of exponent, 10 of mantissa.
double value_of(std::uint32_t bits) {
  const std::uint32_t exponent = bits >> 10 & 31u, mantissa = bits & 1023u;
  const double sign = bits & 0x8000u ? -1 : 1;
  if (exponent == 31)
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24)
                               : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25));
}

TEST(Half, EveryValueIsWidenedExactlyAndComesBack) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double want = value_of(bits);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(from_half(half)));
      const std::uint16_t back = to_half(from_half(half));
      EXPECT_EQ(back, half | 0x200u) << "quiet, sign and payload kept";
      continue;
    }
    ASSERT_EQ(static_cast<double>(from_half(half)), want) << bits;
    ASSERT_EQ(std::signbit(from_half(half)), (bits & 0x8000u) != 0);
    ASSERT_EQ(to_half(from_half(half)), half);
  }
}

// Between two neighbours: below the middle down, above it up, in the middle to the even one.
TEST(Half, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    const double low = value_of(bits), high = bits == 0x7bffu ? 65536.0 : value_of(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2) << "the middle is an f32";
    const auto even = static_cast<std::uint16_t>(bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(to_half(middle), even) << middle;
    ASSERT_EQ(to_half(std::nextafter(middle, 0.0f)), bits) << middle;
    ASSERT_EQ(to_half(std::nextafter(middle, 1e9f)), bits + 1) << middle;
    ASSERT_EQ(to_half(-middle), even | 0x8000u);
  }
}

TEST(Half, WhatIsLargeIsInfiniteAndWhatIsTinyIsZero) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(to_half(65519.996f), 0x7bffu);
  for (const float huge : {65520.0f, 1e6f, std::numeric_limits<float>::max(), infinity})
    EXPECT_EQ(to_half(huge), 0x7c00u) << huge;
  EXPECT_EQ(to_half(-infinity), 0xfc00u);
  for (const float tiny : {0.0f, 1e-40f, 0x1p-25f}) EXPECT_EQ(to_half(tiny), 0u) << tiny;
  EXPECT_EQ(to_half(-1e-40f), 0x8000u);
  EXPECT_EQ(to_half(std::nextafter(0x1p-25f, 1.0f)), 1u);
}

}  // namespace
}  // namespace tessera::half_test
