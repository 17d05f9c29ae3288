// What fails beside the training itself, and costs its user something: a run goes on, and says it
// once.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "faults/sweep.h"

namespace tessera::test::faults::said_test {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

// Each save tries again to remove it.
TEST(Said, AnOldCheckpointThatCannotBeRemoved) {
  const fs::path folder = folder_for("stuck"), run = folder / "run";
  const Ended ended = run_with(
      {.call = Call::rename, .n = 1, .for_ever = true, .value = EACCES, .only = "/.gone-step-2"},
      one_rank().command(run) + " --set checkpoint.keep=1 --set checkpoint.keep_best=false", run,
      folder);
  EXPECT_EQ(ended.code, 0) << ended.said;
  EXPECT_EQ(ended.fired, 2) << "at step 4 and at step 6";
  const std::string said = "note: the old checkpoint " + (run / "ckpt/step-2").string() +
                           " cannot be removed: Permission denied; it stays whole";
  EXPECT_EQ(count(ended.said, said), 1u) << ended.said;
  EXPECT_EQ(count(text_of(run / "log.txt"), said), 1u);
  EXPECT_EQ(steps_in(run), (std::vector<std::int64_t>{2, 6}));
}

// Also the one that goes at the end, and what the next process finds of it.
TEST(Said, WhatIsLeftOfAnOldCheckpoint) {
  const fs::path folder = folder_for("rest"), run = folder / "run";
  const std::string command =
      one_rank().command(run) + " --set checkpoint.keep=1 --set checkpoint.keep_best=false";
  std::string longer = command;
  longer.replace(longer.find("--steps 6"), 9, "--steps 8");
  const Fault fault{
      .call = Call::unlink, .n = 1, .for_ever = true, .value = EACCES, .only = "/.gone-step-4"};
  const Ended ended = run_with(fault, command, run, folder);
  EXPECT_EQ(ended.code, 0) << ended.said;
  EXPECT_EQ(count(ended.said, "what is left of it is " + (run / "ckpt/.gone-step-4").string()), 1u)
      << ended.said;
  const Ended next = run_with(fault, longer, run, folder);
  EXPECT_EQ(next.code, 0) << next.said;
  EXPECT_EQ(count(next.said, "note: " + (run / "ckpt/.gone-step-4").string() +
                                 ", which an earlier process left, cannot be removed: Permission "
                                 "denied"),
            1u)
      << next.said;
}

TEST(Said, TheDumpOfAHangThatCannotBeWritten) {
  const fs::path folder = folder_for("hang"), run = folder / "run";
  ::setenv("TESSERA_HANG", "1:3", 1);
  const Ended ended = run_with(
      {.call = Call::open, .n = 1, .value = EACCES, .only = "/hang-1.txt"},
      one_rank().command(run) + " --np 2 --comm local --set parallel.hang_s=1", run, folder);
  ::unsetenv("TESSERA_HANG");
  EXPECT_EQ(ended.code, 6) << ended.said;
  EXPECT_EQ(ended.fired, 1);
  const std::string said = (run / "hang-1.txt").string() +
                           " would show what every rank was doing, but could not be written: "
                           "cannot open the file: Permission denied";
  EXPECT_EQ(count(ended.said, said), 1u) << ended.said;
  EXPECT_EQ(count(text_of(run / "log.txt"), said), 1u);
  EXPECT_EQ(count(ended.said, "shows what every rank"), 0u) << ended.said;
}

TEST(Said, RanksThatNobodyWatches) {
  const fs::path folder = folder_for("unwatched"), run = folder / "run";
  const Ended ended = run_with({.call = Call::mkdir, .n = 1, .value = EACCES, .only = "/.pulse"},
                               one_rank().command(run) + " --np 2 --comm local", run, folder);
  EXPECT_EQ(ended.code, 0) << ended.said;
  EXPECT_EQ(ended.fired, 1);
  EXPECT_EQ(count(ended.said,
                  "note: nobody would see a hang of rank 0, 1, whose heartbeat cannot "
                  "be written in " +
                      (run / ".pulse").string() + ": Permission denied"),
            1u)
      << ended.said;
}

// A verdict of an earlier job would end this one.
TEST(Said, HeartbeatsOfAnEarlierJobThatCannotBeRemoved) {
  const fs::path folder = folder_for("stale"), run = folder / "run";
  fs::create_directories(run / ".pulse");
  std::ofstream(run / ".pulse/verdict") << "6\nrank 1 hangs";
  const Ended ended =
      run_with({.call = Call::unlink, .n = 1, .for_ever = true, .value = EACCES, .only = "/.pulse"},
               one_rank().command(run) + " --np 2 --comm local", run, folder);
  EXPECT_EQ(ended.code, 9) << ended.said;
  EXPECT_EQ(count(ended.said, (run / ".pulse").string()), 1u) << ended.said;
}

}  // namespace
}  // namespace tessera::test::faults::said_test
