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

}  // namespace
}  // namespace tessera::test::faults::said_test
