// Encodings of gradients: how far a number may be from what comes back, what is exact, and what
// happens to zeros, denormals, numbers that are not finite, and sizes that fill no block.
#include "comm/compress.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace tessera::comm::compress_test {
namespace {

using ir::Wire;

constexpr std::int64_t sizes[] = {0, 1, 2, 7, 8, 9, 255, 1023, 1024, 1025, 2048, 5000};
constexpr Wire dense[] = {Wire::fp16, Wire::bf16, Wire::int8, Wire::onebit};
constexpr float inf = std::numeric_limits<float>::infinity(),
                nan = std::numeric_limits<float>::quiet_NaN();

template <class T>
std::vector<T> normals(std::int64_t n, const char* name) {
  std::vector<T> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(normal(Key{}.with(name), i));
  return x;
}

// There and back; bytes around the encoding must stay as they are.
template <class T>
std::vector<T> back(Wire wire, const std::vector<T>& x) {
  const auto n = static_cast<std::int64_t>(x.size()), bytes = ir::wire_bytes(wire, n);
  std::vector<std::byte> coded(static_cast<std::size_t>(bytes) + 2, std::byte{0xa5});
  encode(wire, x.data(), n, coded.data() + 1);
  EXPECT_EQ(coded.front(), std::byte{0xa5});
  EXPECT_EQ(coded.back(), std::byte{0xa5});
  std::vector<T> y(x.size(), T{-77});
  decode(wire, coded.data() + 1, n, y.data());
  return y;
}

template <class T>
class Encodings : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Encodings, Types);

TYPED_TEST(Encodings, ComeBackNear) {
  using T = TypeParam;
  for (const std::int64_t n : sizes) {
    const std::vector<T> x = normals<T>(n, "near");
    const std::vector<T> half = back(Wire::fp16, x), bf16 = back(Wire::bf16, x),
                         int8 = back(Wire::int8, x), one = back(Wire::onebit, x);
    for (std::int64_t begin = 0; begin < n; begin += ir::wire_block) {
      T most = 0, sum = 0;
      const std::int64_t end = std::min(n, begin + ir::wire_block);
      for (std::int64_t i = begin; i < end; ++i)
        most = std::max(most, std::abs(x[static_cast<std::size_t>(i)]));
      for (std::int64_t i = begin; i < end; ++i) sum += std::abs(x[static_cast<std::size_t>(i)]);
      const T mean = sum / static_cast<T>(end - begin);
      for (std::int64_t i = begin; i < end; ++i) {
        const auto k = static_cast<std::size_t>(i);
        EXPECT_LE(std::abs(half[k] - x[k]), std::abs(x[k]) * T(0x1p-11) + T(0x1p-25));
        EXPECT_LE(std::abs(bf16[k] - x[k]), std::abs(x[k]) * T(0x1p-8));
        EXPECT_LE(std::abs(int8[k] - x[k]), most / 127 * T(0.5001));
        EXPECT_NEAR(std::abs(one[k]), mean, mean * 1e-5);
        EXPECT_EQ(one[k] < 0, x[k] < 0);
      }
    }
  }
}

// Adding and subtracting are decoding and then adding and subtracting, up to the rounding of one
// operation.
TYPED_TEST(Encodings, AddAndSubtract) {
  using T = TypeParam;
  for (const Wire wire : dense)
    for (const std::int64_t n : sizes) {
      const std::vector<T> x = normals<T>(n, "x"), y = normals<T>(n, "y"), decoded = back(wire, x);
      std::vector<std::byte> coded(static_cast<std::size_t>(ir::wire_bytes(wire, n)));
      encode(wire, x.data(), n, coded.data());
      std::vector<T> plus = y, minus = y;
      decode(wire, coded.data(), n, plus.data(), Into::add);
      decode(wire, coded.data(), n, minus.data(), Into::subtract);
      for (std::size_t i = 0; i < x.size(); ++i) {
        EXPECT_NEAR(plus[i], y[i] + decoded[i], 1e-6);
        EXPECT_NEAR(minus[i], y[i] - decoded[i], 1e-6);
      }
    }
}

// A run of whole blocks is an encoding by itself: threads share the work.
TYPED_TEST(Encodings, AreMadeOfBlocks) {
  using T = TypeParam;
  const std::int64_t n = 3 * ir::wire_block + 5;
  const std::vector<T> x = normals<T>(n, "blocks");
  for (const Wire wire : dense) {
    std::vector<std::byte> whole(static_cast<std::size_t>(ir::wire_bytes(wire, n))),
        pieces(whole.size());
    encode(wire, x.data(), n, whole.data());
    for (const std::int64_t begin : {std::int64_t{0}, ir::wire_block, 2 * ir::wire_block}) {
      const std::int64_t size = begin == 2 * ir::wire_block ? n - begin : ir::wire_block;
      encode(wire, x.data() + begin, size, pieces.data() + ir::wire_bytes(wire, begin));
    }
    EXPECT_EQ(whole, pieces);
  }
}

TYPED_TEST(Encodings, ZerosStayZerosAndTinyNumbersDoNoHarm) {
  using T = TypeParam;
  for (const Wire wire : dense) {
    EXPECT_EQ(back(wire, std::vector<T>(1500, T{0})), std::vector<T>(1500, T{0}));
    std::vector<T> tiny(1500, std::numeric_limits<T>::denorm_min());
    for (std::size_t i = 0; i < tiny.size(); i += 3) tiny[i] = -tiny[i] * T{200};
    for (const T y : back(wire, tiny)) EXPECT_LE(std::abs(y), T(1e-37));
  }
}

TYPED_TEST(Encodings, WhatIsNotFiniteShows) {
  using T = TypeParam;
  for (const Wire wire : dense)
    for (const float bad : {inf, -inf, nan})
      for (const std::size_t where :
           {std::size_t{0}, std::size_t{1023}, std::size_t{1024}, std::size_t{1499}}) {
        std::vector<T> x = normals<T>(1500, "bad");
        x[where] = static_cast<T>(bad);
        const std::vector<T> y = back(wire, x);
        EXPECT_FALSE(std::isfinite(y[where]))
            << static_cast<int>(wire) << " " << bad << " at " << where;
      }
  for (const Wire wire : dense)  // what half a float, or a scale, cannot hold
    if (sizeof(T) == 8 || wire == Wire::fp16) {
      EXPECT_FALSE(std::isfinite(back(wire, std::vector<T>{std::numeric_limits<T>::max()})[0]));
    }
}

// Every binary16 number comes back as it is; between two of them the nearer one is taken, the even
// one of equals.
TEST(Half, RoundsToNearestEven) {
  const auto half = [](float x) { return back(Wire::fp16, std::vector<float>{x})[0]; };
  for (const float x : {0.0f, 1.0f, -2.5f, 65504.0f, 0x1p-14f, 0x1p-24f, 0x1.ff8p-15f, -0x1.004p0f})
    EXPECT_EQ(half(x), x);
  EXPECT_TRUE(std::signbit(half(-0.0f)));
  EXPECT_EQ(half(1 + 0x1p-11f), 1.0f);
  EXPECT_EQ(half(1 + 0x1.8p-10f), 1 + 0x1p-9f);
  EXPECT_EQ(half(65519.0f), 65504.0f);
  EXPECT_EQ(half(65520.0f), inf);
  EXPECT_EQ(half(-1e6f), -inf);
  EXPECT_EQ(half(0x1p-25f), 0.0f);
  EXPECT_EQ(half(0x1.8p-25f), 0x1p-24f);
  EXPECT_EQ(half(0x1.8p-24f), 0x1p-23f);
  for (std::uint32_t code = 0; code < 0x10000u; ++code) {
    const auto want = static_cast<std::uint16_t>(code);
    std::uint16_t again;
    float x;
    decode(Wire::fp16, reinterpret_cast<const std::byte*>(&want), 1, &x);
    encode(Wire::fp16, &x, 1, reinterpret_cast<std::byte*>(&again));
    if ((code & 0x7fffu) > 0x7c00u)
      EXPECT_TRUE(std::isnan(x)) << code;
    else
      ASSERT_EQ(again, want) << x;
  }
  float last = -1;
  for (std::uint32_t bits = 0; bits < 0x48000000u; bits += 4099) {  // rises, and twice is once
    float x;
    std::memcpy(&x, &bits, 4);
    const float y = half(x);
    EXPECT_GE(y, last);
    EXPECT_EQ(half(y), y);
    last = y;
  }
}

template <class T>
struct Top {
  std::vector<std::uint32_t> at;
  std::vector<T> values, left;
};
template <class T>
Top<T> top(std::vector<T> x, std::int64_t count) {
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<std::byte> list(static_cast<std::size_t>(
      ir::top_bytes(count, sizeof(T) == 8 ? ir::DType::f64 : ir::DType::f32)));
  std::vector<T> scratch(x.size());
  take_top(x.data(), n, count, list.data(), scratch.data());
  Top<T> out{std::vector<std::uint32_t>(static_cast<std::size_t>(count)),
             std::vector<T>(static_cast<std::size_t>(count)), x};
  std::memcpy(out.at.data(), list.data(), 4 * out.at.size());
  std::memcpy(out.values.data(), list.data() + 4 * out.at.size(), sizeof(T) * out.at.size());
  std::vector<T> sum = x;  // what was taken and what was left are all there was
  add_top(list.data(), count, 0, n, sum.data());
  for (std::size_t i = 0; i < out.at.size(); ++i)
    EXPECT_TRUE(sum[out.at[i]] == out.values[i] || std::isnan(out.values[i]));
  return out;
}

TYPED_TEST(Encodings, TopTakesTheLargest) {
  using T = TypeParam;
  const std::vector<T> x = normals<T>(3000, "top");
  for (const std::int64_t count : {1, 10, 1500, 2999, 3000}) {
    const Top<T> got = top(x, count);
    T least = std::numeric_limits<T>::infinity(), most = 0;
    for (const T v : got.values) least = std::min(least, std::abs(v));
    for (const T v : got.left) most = std::max(most, std::abs(v));
    EXPECT_LE(most, least);
    EXPECT_TRUE(std::is_sorted(got.at.begin(), got.at.end()));
    EXPECT_EQ(std::count(got.left.begin(), got.left.end(), T{0}), count);
  }
}

TEST(Top, TiesNonFiniteAndParts) {
  using Places = std::vector<std::uint32_t>;
  EXPECT_EQ(top<float>({2, -3, 3, 2, -2, 1}, 4).at, (Places{0, 1, 2, 3}));  // the first of equals
  EXPECT_EQ(top<float>({0, 0, 0}, 2).at, (Places{0, 1}));
  EXPECT_EQ(top<double>({1, nan, 5, -inf}, 2).at, (Places{1, 3}));
  std::vector<std::byte> list(static_cast<std::size_t>(ir::top_bytes(3, ir::DType::f32)));
  std::vector<float> x = {5, 1, -7, 9}, scratch(4), part = {10, 10};
  take_top(x.data(), 4, 3, list.data(), scratch.data());
  add_top(list.data(), 3, 2, 2, part.data());  // elements 2 and 3 alone
  EXPECT_EQ(part, (std::vector<float>{3, 19}));
  EXPECT_EQ(ir::top_count(0.01, 0), 0);
  EXPECT_EQ(ir::top_count(0.01, 5), 1);
  EXPECT_EQ(ir::top_count(0.5, 5), 3);
  EXPECT_EQ(ir::top_count(1.0, 5), 5);
}

}  // namespace
}  // namespace tessera::comm::compress_test
