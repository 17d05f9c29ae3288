// The rank that hangs is found from tables of heartbeats: each row of a table is a rank as the
// others see it.
#include "ranks/hang_analysis.h"

#include <gtest/gtest.h>

#include "ranks/guard.h"

namespace tessera::test::hang_analysis_test {
namespace {

using namespace tessera::run;

constexpr double patience = 10;

// Ranks 0 and 1 are one tp group, 2 and 3 the other; dp joins 0 with 2 and 1 with 3. Everybody
// moves, nobody waits.
std::vector<Seen> four() {
  std::vector<Seen> table;
  for (int rank = 0; rank < 4; ++rank) {
    Seen seen;
    seen.rank = rank;
    seen.host = "node" + std::to_string(rank);
    seen.pid = 100 + rank;
    seen.tick = 7;
    seen.look.idle_s = 0.1;
    seen.look.doing = "computing step 12";
    seen.look.groups = {
        {"world", 0, 40, 40}, {"dp", rank % 2, 20, 20}, {"tp", rank / 2 * 2, 30, 30}};
    table.push_back(seen);
  }
  return table;
}

void wait_in(Seen& seen, int group, double seconds, const std::string& scope = "") {
  auto& g = seen.look.groups[static_cast<std::size_t>(group)];
  ++g.entered;
  seen.look.waits = comm::Look::Call{group, comm::Verb::all_reduce, g.entered, scope};
  seen.look.idle_s = seconds;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(WhoHangs, NobodyWhileSomethingMoves) {
  auto table = four();
  EXPECT_FALSE(who_hangs(table, patience));
  // All wait for rank 3, which works and works.
  for (int rank = 0; rank < 3; ++rank) wait_in(table[static_cast<std::size_t>(rank)], 0, 50);
  EXPECT_FALSE(who_hangs(table, patience));
  // It has stood still, but not long enough.
  table[3].look.idle_s = 9.9;
  EXPECT_FALSE(who_hangs(table, patience));
}

TEST(WhoHangs, TheOneThatHasNotComeAndDoesNotMove) {
  auto table = four();
  for (int rank = 0; rank < 3; ++rank) wait_in(table[static_cast<std::size_t>(rank)], 0, 50);
  table[3].look.idle_s = 51;
  table[3].look.doing = "loading the data of step 12";
  table[3].look.left = comm::Look::Call{1, comm::Verb::all_gather, 20, "optimizer.weights"};
  const auto finding = who_hangs(table, patience);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, std::vector<int>{3});
  EXPECT_FALSE(finding->gone);
  EXPECT_EQ(finding->message,
            "rank 3 (node3, pid 103) has not moved for 51.0 s: it is loading the data of step 12, "
            "after all_gather 20 of dp "
            "(optimizer.weights); ranks 0, 1, 2 wait for it in all_reduce 41 of world");
}

// 0 waits for 1 in tp, 1 waits for 3 in dp, 3 computes for ever, 2 waits for 3 in tp.
TEST(WhoHangs, TheRootOfAChain) {
  auto table = four();
  wait_in(table[0], 2, 40);
  wait_in(table[1], 1, 40);
  wait_in(table[2], 2, 40);
  table[3].look.idle_s = 41;
  const auto finding = who_hangs(table, patience);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, std::vector<int>{3});
}

// Two stand still without waiting; others wait for one of them only.
TEST(WhoHangs, TheOneThatOthersWaitForComesFirst) {
  auto table = four();
  wait_in(table[0], 2, 40);
  for (const int rank : {1, 2}) table[static_cast<std::size_t>(rank)].look.idle_s = 40;
  auto finding = who_hangs(table, patience);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, std::vector<int>{1});
  table[0] = four()[0];  // nobody waits: both
  finding = who_hangs(table, patience);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, (std::vector<int>{1, 2}));
}

// It entered the operation and was stopped inside: only its silence tells.
TEST(WhoHangs, AStoppedProcess) {
  auto table = four();
  for (Seen& seen : table) wait_in(seen, 0, 30, "loss");
  table[1].silent_s = 8;
  table[1].look.idle_s = 0.1;
  table[1].state = 'T';
  const auto finding = who_hangs(table, patience);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, std::vector<int>{1});
  EXPECT_TRUE(has(finding->message,
                  "rank 1 (node1, pid 101) is stopped (SIGSTOP or a debugger): no sign for 8.0 s"))
      << finding->message;
  EXPECT_TRUE(has(finding->message, "in all_reduce 41 of world (loss)")) << finding->message;
  // Elsewhere nobody knows why; a process that is gone is lost, not hanging.
  table[1].state = 0;
  EXPECT_TRUE(
      has(who_hangs(table, patience)->message, "its process is stopped, or its machine is"));
  table[1].state = 'X';
  EXPECT_TRUE(who_hangs(table, patience)->gone);
  // The word of the kernel needs no long silence: rank 0 began to watch late, and does not take
  // the blame itself.
  auto joining = four();
  joining[0].look.idle_s = 10;
  joining[0].look.doing = "joining the other ranks";
  joining[2].silent_s = 7;
  joining[2].state = 'T';
  EXPECT_EQ(who_hangs(joining, patience)->ranks, std::vector<int>{2});
  // Silence alone is nothing as long as nobody stands still.
  for (Seen& seen : table) seen.look.idle_s = 1;
  EXPECT_FALSE(who_hangs(table, patience));
}

TEST(WhoHangs, OneThatNeverCame) {
  auto table = four();
  for (Seen& seen : table) {
    seen.look.groups.clear();
    seen.look.idle_s = 20;
    seen.look.doing = "joining the other ranks";
  }
  table[2] = Seen();
  table[2].rank = 2;
  table[2].silent_s = 10;
  const auto finding = who_hangs(table, patience);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, std::vector<int>{2});
  EXPECT_EQ(finding->message, "rank 2 has not come to the start of the job");
}

TEST(WhoHangs, ACircleAndADeadNetwork) {
  auto table = four();
  wait_in(table[0], 1, 20);  // for 2
  wait_in(table[2], 2, 20);  // for 3
  wait_in(table[3], 1, 20);  // for 1
  wait_in(table[1], 2, 20);  // for 0
  auto finding = who_hangs(table, patience);
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(has(finding->message,
                  "ranks wait for each other; rank 0 (node0, pid 100) is in all_reduce 21 of dp"))
      << finding->message;
  table = four();
  for (Seen& seen : table) wait_in(seen, 0, 20);
  table[1].look.idle_s = 19;  // an operation that all are in may take twice as long
  EXPECT_FALSE(who_hangs(table, patience));
  table[1].look.idle_s = 20;
  finding = who_hangs(table, patience);
  ASSERT_TRUE(finding);
  EXPECT_TRUE(finding->ranks.empty());
  EXPECT_EQ(
      finding->message,
      "all ranks run and are in the same operation, which does not end: all_reduce 41 of world");
  table[3].ended = true;  // nobody misses a rank that has ended
  table[3].look.waits.reset();
  table[3].silent_s = 100;
  EXPECT_TRUE(has(who_hangs(table, patience)->message, "all ranks run"));
}

TEST(WhoHangs, OneRankAlone) {
  auto table = std::vector<Seen>{four()[0]};
  EXPECT_FALSE(who_hangs(table, patience));
  table[0].look.idle_s = 10;
  ASSERT_TRUE(who_hangs(table, patience));
  EXPECT_EQ(who_hangs(table, patience)->message,
            "rank 0 (node0, pid 100) has not moved for 10.0 s: it is computing step 12");
}

TEST(Lost, SignalsInWords) {
  EXPECT_TRUE(has(how_it_ended(9, false), "killed from outside"));
  EXPECT_TRUE(has(how_it_ended(9, true), "lack of memory"));
  EXPECT_TRUE(has(how_it_ended(11, false), "segmentation fault"));
  EXPECT_TRUE(has(how_it_ended(7, false), "bus error"));
  EXPECT_TRUE(has(how_it_ended(6, false), "SIGABRT"));
  EXPECT_TRUE(has(how_it_ended(31, false), "signal 31"));
}

}  // namespace
}  // namespace tessera::test::hang_analysis_test
