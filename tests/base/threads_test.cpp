// The pool: every task once, on a thread that exists, and the first error comes back to the caller.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>

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

// Workers are found where they watch, where they sleep, and on their way from one to the other.
TEST_P(Pool, RoundsComeAfterPausesOfAnyLength) {
  ThreadPool pool(GetParam());
  std::atomic<std::int64_t> sum{0};
  std::int64_t rounds = 0;
  for (int pause = 0; pause < 2600; pause += pause < 80 ? 1 : pause < 400 ? 5 : 50, ++rounds) {
    if (pause > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause));
    pool.parallel_for(8, [&](std::int64_t task, int) { sum += task; });
  }
  EXPECT_EQ(sum, 28 * rounds);
}

// The last task of a round takes so long that those who wait for it have gone to sleep.
TEST_P(Pool, ALongTaskIsWaitedFor) {
  ThreadPool pool(GetParam());
  for (int round = 0; round < 10; ++round) {
    std::int64_t long_one = 0;  // of one thread, read when the round is over
    pool.parallel_for(20, [&](std::int64_t task, int) {
      if (task == 19) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (task == 19) ++long_one;
    });
    EXPECT_EQ(long_one, 1);
  }
}

TEST_P(Pool, PoolsOfSeveralCallersRunAtOnce) {
  std::vector<std::int64_t> sums(8);
  std::vector<std::thread> callers;
  for (std::int64_t& sum : sums)
    callers.emplace_back([&sum] {
      ThreadPool pool(GetParam());
      std::vector<std::int64_t> parts(static_cast<std::size_t>(pool.size()));
      for (int round = 0; round < 200; ++round)
        pool.parallel_for(10, [&](std::int64_t task, int thread) {
          parts[static_cast<std::size_t>(thread)] += task;
        });
      sum = std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    });
  for (std::thread& caller : callers) caller.join();
  for (const std::int64_t sum : sums) EXPECT_EQ(sum, 200 * 45);
}

INSTANTIATE_TEST_SUITE_P(Threads, Pool, testing::Values(1, 2, 5));

// Threads that wait watch only where every thread has a core.
TEST(Cores, ForAllThreads) {
  EXPECT_TRUE(cores_for_all(15, 15, 1, 16)) << "one rank that has all cores";
  EXPECT_TRUE(cores_for_all(7, 7, 2, 16)) << "two ranks that share them";
  EXPECT_TRUE(cores_for_all(1, 1, 1, 2));
  EXPECT_FALSE(cores_for_all(1, 1, 1, 1)) << "a worker and its caller on one core";
  EXPECT_FALSE(cores_for_all(15, 15, 2, 16)) << "two ranks of as many threads as cores";
  EXPECT_FALSE(cores_for_all(1, 1, 2, 2));
  EXPECT_TRUE(cores_for_all(8, 1, 1, 16)) << "pools of eight callers in one process";
  EXPECT_FALSE(cores_for_all(8, 1, 1, 2));
  EXPECT_TRUE(cores_for_all(0, 3, 1, 4)) << "the workers sleep, their caller waits";
}

TEST(Cores, LaunchersSayHowManyProcessesTheyStarted) {
  const char* const names[] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"};
  std::vector<std::pair<std::string, std::string>> before;
  for (const char* name : names) {
    if (const char* text = std::getenv(name)) before.emplace_back(name, text);
    ::unsetenv(name);
  }
  EXPECT_EQ(launched_here(), 0);
  for (const char* name : names) {
    ::setenv(name, "3", 1);
    EXPECT_EQ(launched_here(), 3) << name;
    ::setenv(name, "none", 1);
    EXPECT_EQ(launched_here(), 0) << name;
    ::unsetenv(name);
  }
  for (const auto& [name, value] : before) ::setenv(name.c_str(), value.c_str(), 1);
}

TEST(Cores, AtLeastOne) { EXPECT_GE(available_cores(), 1); }

}  // namespace
}  // namespace tessera::threads_test
