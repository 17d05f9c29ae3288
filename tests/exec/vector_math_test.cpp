// Functions of whole vectors at numbers that are no numbers.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "exec/cpu/simd/vector.h"

namespace tessera::exec::cpu::vector_math_test {
namespace {

// Whatever bits a NaN has: those of bytes that are all ones would make a number of the exponent.
TEST(VectorMath, TheExponentialOfNoNumberIsNone) {
  for (const std::uint32_t bits : {0xffffffffu, 0x7fffffffu, 0x7fc00000u, 0x7fc00001u, 0xffc12345u})
    for (const std::int64_t n : {1, 3, 4, 16, 37}) {
      std::vector<float> x(static_cast<std::size_t>(n), std::bit_cast<float>(bits)), y(x.size());
      vector_exp_sub(x.data(), y.data(), n, 0.5f);
      for (const float v : y) EXPECT_TRUE(std::isnan(v)) << std::hex << bits << " " << v;
    }
}

TEST(VectorMath, TheExponentialAtItsEnds) {
  const std::vector<float> x = {0, -100, 100, -HUGE_VALF, HUGE_VALF, 88.3f, -87.3f};
  std::vector<float> y(x.size());
  vector_exp_sub(x.data(), y.data(), static_cast<std::int64_t>(x.size()), 0);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], HUGE_VALF);
  EXPECT_EQ(y[3], 0);
  EXPECT_EQ(y[4], HUGE_VALF);
  EXPECT_NEAR(y[5] / std::exp(88.3f), 1, 1e-6);
  EXPECT_NEAR(y[6] / std::exp(-87.3f), 1, 1e-6);
}

}  // namespace
}  // namespace tessera::exec::cpu::vector_math_test
