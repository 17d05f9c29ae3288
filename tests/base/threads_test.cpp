// The pool: every task once, on a thread that exists, and the first error comes back to the caller.
#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"
#include "base/threads.h"

namespace tessera::threads_test {
namespace {

class Pool : public testing::TestWithParam<int> {};

TEST_P(Pool, RunsEveryTaskOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  for (const std::int64_t tasks : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
    std::atomic<bool> known{true};
    pool.parallel_for(tasks, [&](std::int64_t task, int thread) {
      ++runs[static_cast<std::size_t>(task)];
      if (thread < 0 || thread >= pool.size()) known = false;
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
    EXPECT_TRUE(known) << "a thread number names scratch, so it lies below size()";
  }
}

TEST_P(Pool, ScratchOfAThreadIsItsOwn) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> sums(static_cast<std::size_t>(pool.size()));
  for (int round = 0; round < 50; ++round)
    pool.parallel_for(100, [&](std::int64_t task, int thread) {
      sums[static_cast<std::size_t>(thread)] += task;
    });
  EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), std::int64_t{0}), 50 * 4950);
}

TEST_P(Pool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(GetParam());
  auto fails = [&] {
    pool.parallel_for(100, [](std::int64_t task, int) {
      if (task == 37) throw Error(ErrorKind::data, "task 37");
    });
  };
  EXPECT_THROW(fails(), Error);
  std::atomic<int> runs{0};
  pool.parallel_for(10, [&](std::int64_t, int) { ++runs; });
  EXPECT_EQ(runs, 10);
}

INSTANTIATE_TEST_SUITE_P(Threads, Pool, testing::Values(1, 2, 5));

TEST(Cores, AtLeastOne) { EXPECT_GE(available_cores(), 1); }

}  // namespace
}  // namespace tessera::threads_test
