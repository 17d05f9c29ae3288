// A run goes on where something beside the training itself fails, and says once what that costs its
// user.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "app/binary.h"
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

// One that goes at the end is told too, and what the next process finds of it.
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

// They would fill the memory up.
TEST(Said, AnOldCheckpointInMemoryThatCannotBeRemoved) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path folder = folder_for("memory"), run = folder / "run";
  const Ended ended = run_with(
      {.call = Call::rename, .n = 1, .for_ever = true, .value = EACCES, .only = "/.gone-step-"},
      one_rank().command(run) + " --np 2 --restarts 1 --set checkpoint.memory_every=1", "/dev/shm",
      folder);
  EXPECT_EQ(ended.code, 0) << ended.said;
  EXPECT_EQ(ended.fired, 1);
  EXPECT_EQ(count(ended.said, "note: no checkpoints in memory any more: /dev/shm/tessera-memory-"),
            1u)
      << ended.said;
  EXPECT_EQ(count(ended.said, "the old checkpoint cannot be removed: Permission denied"), 1u)
      << ended.said;
}

TEST(Said, EarlierSegmentsThatCannotBeRead) {
  const fs::path folder = folder_for("segments", true), run = folder / "run";
  const Ended ended = run_with({.call = Call::open, .n = 1, .value = EACCES, .only = "/env.json$"},
                               one_rank().command(run), run, folder);
  EXPECT_EQ(ended.code, 0) << ended.said;
  EXPECT_EQ(count(ended.said, "note: " + (run / "env.json").string() +
                                  " cannot be used (cannot open the file: Permission denied)"),
            1u)
      << ended.said;
  EXPECT_EQ(one_rank().difference(run), "");
}

// A thing that cannot be done is an error where it would leave something false behind.
TEST(Said, WhatWouldLeaveSomethingFalseIsAnError) {
  const std::vector<Fault> faults = {
      {.call = Call::open, .n = 2, .value = EACCES, .only = "/env.json$"},  // without the machine
      {.call = Call::unlink, .n = 1, .value = EACCES, .only = "/schedule.txt$"}};
  for (const Fault& fault : faults) {
    const fs::path folder = folder_for("false", true), run = folder / "run";
    const Ended ended = run_with(fault, one_rank().command(run), run, folder);
    EXPECT_EQ(ended.code, 9) << ended.said;
    EXPECT_EQ(count(ended.said, "error: " + ended.first + ": "), 1u) << ended.said;
  }
}

// Not being able to look is not the answer that nothing is there.
TEST(Said, WhatCannotBeLookedAt) {
  const fs::path folder = folder_for("look"), run = folder / "run";
  fs::copy(one_rank().whole, run, fs::copy_options::recursive);
  const auto failing = [&](const std::string& arguments, const char* name) {
    return run_with({.call = Call::stat, .n = 1, .for_ever = true, .value = EIO, .only = name},
                    arguments, run, folder);
  };
  const Ended verified = failing("ckpt verify " + run.string(), "/weights.safetensors$"),
              reported = failing("report " + run.string() + " --out " + (folder / "page").string(),
                                 "/study.db$"),
              trained = failing(one_rank().command(run), "/weights.safetensors$");
  EXPECT_EQ(verified.code, 9) << verified.said;
  EXPECT_EQ(count(verified.said, "weights.safetensors: cannot look here"), 1u) << verified.said;
  EXPECT_EQ(reported.code, 2) << reported.said;
  EXPECT_EQ(count(reported.said, "study.db: cannot look here"), 1u) << reported.said;
  EXPECT_EQ(trained.code, 0) << trained.said;
  EXPECT_EQ(count(trained.said, "is already finished"), 1u) << trained.said;
}

// Files that are written line by line are flushed before the run counts as finished, also where
// nobody knows what they are.
TEST(Said, AFileThatCannotBeLookedAtIsFlushed) {
  const fs::path folder = folder_for("flushed"), run = folder / "run";
  const Ended ended =
      run_with({.call = Call::stat, .n = 1, .for_ever = true, .value = EIO, .only = "/log.txt$"},
               one_rank().command(run), run, folder);
  EXPECT_EQ(ended.code, 0) << ended.said;
  EXPECT_GT(ended.fired, 0);
  EXPECT_EQ(ended.seen[0][static_cast<std::size_t>(Call::fsync)], 1);
}

TEST(Said, ADownloadWhoseFolderCannotBeMadeAnew) {
  const fs::path folder = folder_for("get"), to = folder / "data",
                 part = to / "cifar-10-batches-bin.part";
  fs::create_directories(part);
  std::ofstream(to / "cifar-10-binary.tar.gz") << "x";
  const Ended ended =
      run_with({.call = Call::unlink, .n = 1, .for_ever = true, .value = EACCES, .only = ".part"},
               "data get cifar10 --out " + to.string() +
                   " --sha256 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881",
               to, folder);
  EXPECT_EQ(ended.code, 9) << ended.said;
  EXPECT_EQ(count(ended.said, part.string() + ": cannot make the folder anew: Permission denied"),
            1u)
      << ended.said;
}

}  // namespace
}  // namespace tessera::test::faults::said_test
