// The test library's part on the host: ranks hand bytes to each other through shared memory.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "nccl/work.h"

namespace tessera::test::nccl_exchange_test {
namespace {

// A name that nobody else uses.
std::string place() {
  static std::atomic<int> next = 0;
  return "/tessera-test-" + std::to_string(::getpid()) + "-" + std::to_string(++next);
}

void on_ranks(int ranks, const std::function<void(Exchange&, int rank)>& body) {
  const std::string name = place();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      Exchange exchange(name, ranks, rank);
      ASSERT_TRUE(exchange.wait_for_all());
      body(exchange, rank);
    });
  for (std::thread& thread : threads) thread.join();
}

template <class T>
std::vector<T> carried(Exchange& exchange, NcclOp op, std::vector<T> in, int ranks, int rank) {
  std::vector<T> out(bytes_out(op, ranks, rank) / sizeof(T));
  EXPECT_EQ(bytes_in(op, ranks, rank) % sizeof(T), 0u);
  op.staged = reinterpret_cast<std::byte*>(in.data());
  op.made = reinterpret_cast<std::byte*>(out.data());
  std::vector<NcclOp> ops = {op};
  EXPECT_TRUE(carry_out(ops, exchange, ranks, rank));
  return out;
}

TEST(TestNccl, EveryOperationDoesWhatItsNameSays) {
  on_ranks(3, [](Exchange& exchange, int rank) {
    using Doubles = std::vector<double>;
    const double r = rank;
    const auto with = [](Kind kind, std::size_t n, int root = 0) {
      return NcclOp{.kind = kind, .bytes = 8 * n, .type = ncclFloat64, .peer = root};
    };
    EXPECT_EQ(carried(exchange, with(Kind::all_reduce, 2), Doubles{r, 10 * r}, 3, rank),
              (Doubles{3, 30}));
    EXPECT_EQ(carried(exchange, with(Kind::all_gather, 1), Doubles{r}, 3, rank),
              (Doubles{0, 1, 2}));
    EXPECT_EQ(carried(exchange, with(Kind::reduce_scatter, 1), Doubles{r, r + 10, r + 20}, 3, rank),
              (Doubles{3 + 30 * r}));
    EXPECT_EQ(carried(exchange, with(Kind::broadcast, 1, 2), Doubles{r}, 3, rank), (Doubles{2}));
    EXPECT_EQ(carried(exchange, with(Kind::reduce, 1, 1), Doubles{r}, 3, rank),
              rank == 1 ? Doubles{3} : Doubles{});
  });
}

// Longer than a mailbox; everybody sends to everybody at once.
TEST(TestNccl, LongMessagesCrossEachOther) {
  on_ranks(4, [](Exchange& exchange, int rank) {
    constexpr std::size_t n = 50'000;
    std::vector<std::vector<std::int32_t>> out(4), in(4);
    std::vector<NcclOp> ops;
    for (int r = 0; r < 4; ++r) {
      if (r == rank) continue;
      const auto at = static_cast<std::size_t>(r);
      out[at].assign(n, 10 * rank + r);
      in[at].resize(n);
      ops.push_back({.kind = Kind::send,
                     .bytes = 4 * n,
                     .type = ncclInt32,
                     .peer = r,
                     .staged = reinterpret_cast<std::byte*>(out[at].data())});
      ops.push_back({.kind = Kind::recv,
                     .bytes = 4 * n,
                     .type = ncclInt32,
                     .peer = r,
                     .made = reinterpret_cast<std::byte*>(in[at].data())});
    }
    ASSERT_TRUE(carry_out(ops, exchange, 4, rank));
    for (int r = 0; r < 4; ++r) {
      if (r == rank) continue;
      EXPECT_EQ(in[static_cast<std::size_t>(r)], std::vector<std::int32_t>(n, 10 * r + rank));
    }
  });
}

TEST(TestNccl, SumsOfBf16AreRoundedOnce) {
  on_ranks(2, [](Exchange& exchange, int rank) {
    const NcclOp op{.kind = Kind::all_reduce, .bytes = 2, .type = ncclBfloat16};
    const std::vector<std::uint16_t> one = {
        static_cast<std::uint16_t>(rank == 0 ? 0x3f80 : 0x4000)};
    EXPECT_EQ(carried(exchange, op, one, 2, rank), std::vector<std::uint16_t>{0x4040});  // 1 + 2
  });
}

TEST(TestNccl, WhatIsClosedEnds) {
  Exchange alone(place(), 2, 0);
  std::thread closes([&] { alone.close(); });
  EXPECT_FALSE(alone.wait_for_all());
  closes.join();
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(alone.run({}, {{1, bytes.data(), bytes.size()}}));
}

TEST(TestNccl, ARankWhoseProcessIsGoneIsLost) {
  const std::string name = place();
  Exchange mine(name, 2, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    new Exchange(name, 2, 1);  // it does not leave
    ::_exit(0);
  }
  ASSERT_TRUE(mine.wait_for_all());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  std::vector<std::byte> bytes(8);
  EXPECT_FALSE(mine.run({}, {{1, bytes.data(), bytes.size()}}));
  EXPECT_EQ(mine.lost(), 1);
}

}  // namespace
}  // namespace tessera::test::nccl_exchange_test
