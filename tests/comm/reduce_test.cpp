// Sums by wide vectors have the bits of plain additions in the order of the buffers, whatever their
// number, length and place.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "comm/reduce.h"

namespace tessera::comm::reduce_test {
namespace {

std::vector<float> numbers(std::uint64_t key, std::size_t n) {
  std::vector<float> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<float>(normal(Key{key}, i)) * (i % 7 == 0 ? 1e6F : 1.0F);
  return out;
}

TEST(Reduce, SumsAreThoseOfAdditionsInOrder) {
  for (const std::size_t ranks : {2, 3, 4, 5})
    for (const std::size_t n : {1, 15, 16, 17, 1000, 70001})
      for (const std::size_t shift : {0, 4, 12})  // bytes from an even address
        for (const bool in_place : {true, false}) {
          std::vector<std::vector<std::byte>> buffers, apart;
          std::vector<float> want = numbers(1, n);
          for (std::size_t r = 0; r < ranks; ++r) {
            const std::vector<float> mine = numbers(r + 1, n);
            for (std::size_t i = 0; r > 0 && i < n; ++i) want[i] += mine[i];
            buffers.emplace_back(n * 4 + shift + 4, std::byte{0x5a});
            std::memcpy(buffers.back().data() + shift, mine.data(), n * 4);
            apart.emplace_back(n * 4 + shift + 4, std::byte{0x5a});
          }
          std::vector<const std::byte*> from;
          std::vector<std::byte*> to;
          for (std::size_t r = 0; r < ranks; ++r) {
            from.push_back(buffers[r].data() + shift);
            to.push_back((in_place ? buffers : apart)[r].data() + shift);
          }
          reduce(ir::DType::f32, Reduction::sum, from, to, static_cast<std::int64_t>(n));
          for (std::size_t r = 0; r < ranks; ++r) {
            EXPECT_EQ(std::memcmp(to[r], want.data(), n * 4), 0)
                << ranks << " ranks, " << n << " elements, shift " << shift;
            EXPECT_EQ(to[r][n * 4], std::byte{0x5a}) << "nothing is written behind the end";
          }
        }
}

// Added up in f32 and rounded once; a sum beyond 65504 is infinite.
TEST(Reduce, F16IsRoundedOnce) {
  const std::vector<std::vector<float>> values = {{1.0f, 2048.0f, 60000.0f, 0x1p-24f},
                                                  {0x1p-11f, 1.0f, 60000.0f, 0x1p-24f},
                                                  {0x1p-11f, 1.0f, 0.0f, 0x1p-24f}};
  std::vector<std::vector<std::uint16_t>> halves;
  std::vector<const std::byte*> from;
  for (const auto& row : values) {
    halves.emplace_back();
    for (const float value : row) halves.back().push_back(to_half(value));
  }
  for (const auto& row : halves) from.push_back(reinterpret_cast<const std::byte*>(row.data()));
  std::vector<std::uint16_t> sum(4);
  std::byte* to = reinterpret_cast<std::byte*>(sum.data());
  reduce(ir::DType::f16, Reduction::sum, from, {&to, 1}, 4);
  const float infinity = std::numeric_limits<float>::infinity();
  const float want[] = {1 + 0x1p-10f, 2050.0f, infinity, 0x3p-24f};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(from_half(sum[i]), want[i]) << i;
}

}  // namespace
}  // namespace tessera::comm::reduce_test
