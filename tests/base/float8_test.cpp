// Floats of eight bits: every one of their values, and the exact rounding of what lies between.
#include "base/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::float8_test {
namespace {

// By the definition, in doubles.
double value_of(std::uint32_t bits, Float8 form) {
  const std::uint32_t x = bits & 0x7fu, exponent = x >> form.mantissa,
                      mantissa = x - (exponent << form.mantissa);
  const double sign = bits & 0x80u ? -1 : 1;
  if (x > form.most)
    return form.mantissa == 2 && mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                                               : std::numeric_limits<double>::quiet_NaN();
  const double one = 1 << form.mantissa;
  return sign * (exponent == 0
                     ? std::ldexp(mantissa / one, 1 - form.bias)
                     : std::ldexp(1 + mantissa / one, static_cast<int>(exponent) - form.bias));
}

float next(float x, float to) { return std::nextafter(x, to); }

class Formats : public ::testing::TestWithParam<Float8> {};
INSTANTIATE_TEST_SUITE_P(Float8, Formats, ::testing::Values(e4m3, e5m2));

TEST_P(Formats, EveryValueIsWidenedExactlyAndComesBack) {
  for (std::uint32_t bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<std::uint8_t>(bits);
    const double want = value_of(bits, GetParam());
    const float got = from_float8(byte, GetParam());
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got));
      EXPECT_EQ(to_float8(got, GetParam()), 0x7f);
      continue;
    }
    ASSERT_EQ(static_cast<double>(got), want) << bits;
    ASSERT_EQ(std::signbit(got), (bits & 0x80u) != 0);
    const std::uint32_t most = GetParam().most | (bits & 0x80u);
    ASSERT_EQ(to_float8(got, GetParam()), std::isinf(want) ? most : bits) << "inf saturates";
  }
}

// Between two neighbours: below the middle down, above it up, in the middle to the even one.
TEST_P(Formats, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < GetParam().most; ++bits) {
    const auto low = static_cast<float>(value_of(bits, GetParam())),
               high = static_cast<float>(value_of(bits + 1, GetParam())), middle = (low + high) / 2;
    ASSERT_EQ(to_float8(next(middle, low), GetParam()), bits);
    ASSERT_EQ(to_float8(next(middle, high), GetParam()), bits + 1);
    ASSERT_EQ(to_float8(middle, GetParam()), bits + bits % 2);
    ASSERT_EQ(to_float8(-middle, GetParam()), 0x80u | (bits + bits % 2));
  }
}

TEST_P(Formats, SaturatesAtTheLargest) {
  const auto most = static_cast<float>(value_of(GetParam().most, GetParam()));
  EXPECT_EQ(most, GetParam().mantissa == 3 ? 448.0f : 57344.0f);
  for (const float x : {next(most, 1e9f), 2 * most, std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(to_float8(x, GetParam()), GetParam().most);
    EXPECT_EQ(to_float8(-x, GetParam()), GetParam().most | 0x80u);
  }
  EXPECT_EQ(to_float8(-std::numeric_limits<float>::quiet_NaN(), GetParam()), 0x7f);
  EXPECT_EQ(to_float8(std::numeric_limits<float>::denorm_min(), GetParam()), 0);
}

TEST(Int8, RoundsToNearestEvenAndSaturates) {
  EXPECT_EQ(to_int8(0.5f), 0);
  EXPECT_EQ(to_int8(1.5f), 2);
  EXPECT_EQ(to_int8(-2.5f), -2);
  EXPECT_EQ(to_int8(-2.51f), -3);
  EXPECT_EQ(to_int8(126.6f), 127);
  EXPECT_EQ(to_int8(-1e30f), -127);
  EXPECT_EQ(to_int8(std::numeric_limits<float>::infinity()), 127);
  EXPECT_EQ(to_int8(std::numeric_limits<float>::quiet_NaN()), 0);
}

}  // namespace
}  // namespace tessera::float8_test
