// Which tasks a thread takes: its own share in order, then halves of what others have left, each
// task once, in round after round.
#include "base/task_shares.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/check.h"

namespace tessera::task_shares_test {
namespace {

using Tasks = std::vector<std::int64_t>;

Tasks all_of(TaskShares& shares, int thread) {
  Tasks taken;
  while (const auto task = shares.take(thread)) taken.push_back(*task);
  return taken;
}
Tasks first(std::int64_t tasks) {
  Tasks all(static_cast<std::size_t>(tasks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST(TaskShares, AThreadTakesItsOwnShareFirst) {
  TaskShares shares(3);
  for (int round = 0; round < 3; ++round) {
    shares.begin(12);
    for (const std::int64_t task : {0, 1, 2, 3}) {
      EXPECT_EQ(shares.take(0), task);
      EXPECT_EQ(shares.take(1), task + 4);
      EXPECT_EQ(shares.take(2), task + 8);
    }
    for (const int thread : {0, 1, 2}) EXPECT_FALSE(shares.take(thread));
  }
}

TEST(TaskShares, AThreadThatIsDoneTakesHalfOfWhatAnotherHasLeft) {
  TaskShares shares(2);
  shares.begin(16);
  EXPECT_EQ(shares.take(0), 0);
  EXPECT_EQ(all_of(shares, 1), (Tasks{8, 9, 10, 11, 12, 13, 14, 15, 4, 5, 6, 7, 2, 3, 1}));
  EXPECT_FALSE(shares.take(0));
}

// Shares of a few tasks are empty for most threads, and a word of them must not outlive its round.
TEST(TaskShares, EveryTaskOnceInRoundsOfAnyLength) {
  TaskShares shares(5);
  for (const int finder : {0, 3, 4})
    for (const std::int64_t tasks : {2, 7, 3, 2, 5, 1000, 4, 0, 6}) {
      shares.begin(tasks);
      Tasks taken;
      for (int i = 0; i < 5; ++i)
        for (const std::int64_t task : all_of(shares, (finder + i) % 5)) taken.push_back(task);
      std::sort(taken.begin(), taken.end());
      EXPECT_EQ(taken, first(tasks));
    }
}

TEST(TaskShares, ARoundThatWasStoppedLeavesNothingToTheNext) {
  TaskShares shares(3);
  for (int round = 0; round < 4; ++round) {
    shares.begin(9);
    EXPECT_EQ(shares.take(round % 3), 3 * (round % 3));
    shares.stop();
    for (const int thread : {0, 1, 2}) EXPECT_FALSE(shares.take(thread));
    shares.begin(9);
    Tasks taken = all_of(shares, 1);
    for (const int thread : {0, 2}) EXPECT_FALSE(shares.take(thread));
    std::sort(taken.begin(), taken.end());
    EXPECT_EQ(taken, first(9));
  }
}

TEST(TaskShares, AsManyAsAWordCounts) {
  TaskShares shares(2);
  shares.begin(TaskShares::most);
  EXPECT_EQ(shares.take(0), 0);
  EXPECT_EQ(shares.take(1), TaskShares::most / 2);
  EXPECT_THROW(shares.begin(TaskShares::most + 1), Error);
}

}  // namespace
}  // namespace tessera::task_shares_test
