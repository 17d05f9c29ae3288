// The local back end: the checks of any Comm on 1 to 9 ranks and on 32, and what only it promises:
// sums in rank order to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "comm/checks.h"

namespace tessera::comm::local_test {
namespace {

class Local : public testing::TestWithParam<int> {};

TEST_P(Local, EveryCheck) { run_local(GetParam(), run_checks); }

INSTANTIATE_TEST_SUITE_P(Ranks, Local, testing::Values(1, 2, 3, 4, 5, 6, 7, 8, 9, 32));

TEST(Self, EveryCheck) { run_checks(*make_self()); }

TEST(Self, WaitsForNothingThatCannotCome) {
  const std::unique_ptr<Comm> self = make_self();
  std::vector<float> data(3);
  try {
    self->recv(bytes(data), 0, 0);
    FAIL() << "a message from nobody";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::hang) << error.what();
  }
}

std::uint16_t to_bf16(float x) {  // to nearest, ties to even
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

TEST(LocalSums, AreInRankOrderAndBf16RoundsOnce) {
  constexpr int ranks = 7;
  constexpr std::int64_t n = 20011;
  run_local(ranks, [](Comm& comm) {
    std::vector<float> f32;
    std::vector<double> f64;
    std::vector<Bf16> bf16;
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = fraction(comm.rank(), i);
      f64.push_back(x);
      f32.push_back(static_cast<float>(x));
      bf16.emplace_back(static_cast<float>(x));
    }
    comm.all_reduce(bytes(f64), ir::DType::f64);
    comm.all_reduce(bytes(f32), ir::DType::f32);
    comm.all_reduce(bytes(bf16), ir::DType::bf16);
    int wrong = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      double wide = fraction(0, i);
      auto sum = static_cast<float>(wide), narrow = static_cast<float>(double(Bf16(sum)));
      for (int r = 1; r < ranks; ++r) {
        const double x = fraction(r, i);
        wide += x;
        sum += static_cast<float>(x);
        narrow += static_cast<float>(double(Bf16(static_cast<float>(x))));
      }
      const auto at = static_cast<std::size_t>(i);
      wrong += f64[at] != wide || f32[at] != sum || bf16[at].bits != to_bf16(narrow);
    }
    EXPECT_EQ(wrong, 0);
  });
}

TEST(LocalSums, ManyLargeBuffers) {
  run_local(4, [](Comm& comm) {
    std::vector<float> data((1 << 20) + 3, static_cast<float>(comm.rank() + 1));
    comm.all_reduce(bytes(data), ir::DType::f32);
    EXPECT_EQ(std::count(data.begin(), data.end(), 10.0f), std::ptrdiff_t{(1 << 20) + 3});
  });
}

// Ranks that do not come at the same time: the late one finds the others asleep, not spinning.
TEST(LocalRanks, MayBeManyAndUneven) {
  std::atomic<int> ended = 0;
  run_local(32, [&](Comm& comm) {
    std::vector<std::int64_t> data(1);
    for (int round = 0; round < 200; ++round) {
      data[0] = comm.rank() == round % 32 ? 1 : 2;
      comm.all_reduce(bytes(data), ir::DType::i64);
      EXPECT_EQ(data[0], 63);
    }
    ++ended;
  });
  EXPECT_EQ(ended, 32);
}

TEST(Names, OfVerbs) {
  EXPECT_EQ(name(Verb::all_reduce), "all_reduce");
  EXPECT_EQ(name(Verb::recv), "recv");
  EXPECT_EQ(name(Verb::barrier), "barrier");
}

}  // namespace
}  // namespace tessera::comm::local_test
