// The tables of gelu at bf16 numbers have, at every number, the bits of what they stand for.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "exec/cpu/simd/convert.h"
#include "exec/cpu/simd/gelu_table.h"
#include "exec/cpu/simd/vector.h"

namespace tessera::test {
namespace {

using exec::cpu::look_up;

// An odd number of them, so that the last are looked up one by one.
std::vector<std::uint16_t> all_but_one() {
  std::vector<std::uint16_t> x;
  for (int i = 0; i < 65535; ++i) x.push_back(static_cast<std::uint16_t>(i));
  return x;
}

TEST(GeluTable, HasTheBitsOfTheFunction) {
  const std::vector<std::uint16_t> x = all_but_one();
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> wide(x.size());
  for (const bool tanh : {false, true}) {
    exec::cpu::widen_bf16(x.data(), wide.data(), n);
    exec::cpu::vector_gelu_low(wide.data(), wide.data(), n, tanh);
    std::vector<std::uint16_t> want(x.size()), got = x;
    exec::cpu::round_to_bf16(wide.data(), want.data(), n);
    look_up(exec::cpu::gelu_table(tanh), got.data(), got.data(), n);
    EXPECT_EQ(got, want);
  }
}

TEST(GeluTable, HasTheBitsOfTheSlope) {
  const std::vector<std::uint16_t> x = all_but_one();
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<float> wide(x.size()), slope(x.size());
  for (const bool tanh : {false, true}) {
    exec::cpu::widen_bf16(x.data(), wide.data(), n);
    exec::cpu::vector_fill(slope.data(), n, 1.0f);
    exec::cpu::vector_gelu_grad(wide.data(), slope.data(), slope.data(), n, tanh);
    std::vector<float> got(x.size());
    look_up(exec::cpu::gelu_slope_table(tanh), x.data(), got.data(), n);
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), std::bit_cast<std::uint32_t>(slope[i])) << i;
  }
}

}  // namespace
}  // namespace tessera::test
