// Things happen around a training: descriptors that are closed, processes that race for its folder,
// and a disk that is slow.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "faults/sweep.h"

namespace tessera::test::faults::around_test {
namespace {

// Standard descriptors that are closed must not become files of the run: what is printed would land
// in them.
void expect_sound_without(const std::string& closed) {
  const fs::path folder = folder_for("closed"), run = folder / "run";
  const Ended ended = run_plainly(one_rank().command(run) + closed, folder);
  EXPECT_EQ(ended.code, 0) << closed;
  EXPECT_EQ(one_rank().difference(run), "") << closed;
}

TEST(Around, ClosedDescriptorsAreNotWrittenTo) {
  for (const char* closed : {" >&- 2>&-", " <&- >&- 2>&-"}) expect_sound_without(closed);
}
TEST(Long, EveryClosedDescriptor) {
  for (const char* closed :
       {" <&-", " >&-", " 2>&-", " <&- >&-", " <&- 2>&-", " >&- 2>&-", " <&- >&- 2>&-"})
    expect_sound_without(closed);
}

// One of them trains, the others are refused before they have touched anything; or they come late
// and find it finished.
void race(int processes, bool resumed, const std::string& flags) {
  const fs::path folder = folder_for("race", resumed), run = folder / "run";
  std::vector<std::unique_ptr<Started>> all;
  for (int p = 0; p < processes; ++p)
    all.push_back(std::make_unique<Started>(one_rank().command(run) + flags,
                                            folder / ("log-" + std::to_string(p))));
  int ended_well = 0;
  for (int p = 0; p < processes; ++p) {
    const int code = all[static_cast<std::size_t>(p)]->wait(240);
    const std::string said = text_of(folder / ("log-" + std::to_string(p)));
    EXPECT_TRUE(code == 0 || (code == 2 && said.find("another process") != said.npos))
        << code << "\n"
        << said;
    ended_well += code == 0;
  }
  EXPECT_GT(ended_well, 0);
  EXPECT_EQ(one_rank().difference(run), "") << (resumed ? "resumed" : "fresh") << flags;
}

// A process that starts with --fresh is held up at one of its calls; another one begins meanwhile
// and is in the middle of its training when the first one goes on. One of them trains, the other is
// refused and has removed nothing. False: the first one makes no such call.
bool overtake(Call call, std::int64_t n) {
  const fs::path folder = folder_for("overtake"), run = folder / "run";
  const std::string command = one_rank().command(run) + " --fresh";
  const Fault held{.call = call, .n = n, .action = "await", .awaited = folder / "go"};
  const Fault saving{.call = Call::fsync,
                     .n = 1,
                     .action = "await",
                     .only = ".part-step-2",
                     .awaited = folder / "end"};
  for (const char* name : {"first", "second"}) make_record(folder / name);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };

  Started first(command, folder / "first.log", held, run, folder / "first");
  while (first.running() && fired_in(folder / "first") == 0) pause();
  if (fired_in(folder / "first") == 0) return false;
  Started second(command, folder / "second.log", saving, run, folder / "second");
  while (second.running() && fired_in(folder / "second") == 0) pause();
  std::ofstream(folder / "go") << "go";
  const int one = first.wait(240);
  std::ofstream(folder / "end") << "end";
  const int other = second.wait(240);
  const std::string said =
      held.words() + "\n" + text_of(folder / "first.log") + text_of(folder / "second.log");
  EXPECT_TRUE((one == 2 && other == 0) || (one == 0 && other == 2))
      << one << ", " << other << " " << said;
  EXPECT_EQ(one_rank().difference(run), "") << said;
  return true;
}

TEST(Around, AProcessThatIsOvertakenRemovesNothing) {
  for (const int n : {1, 2, 3}) EXPECT_TRUE(overtake(Call::open, n));
}
TEST(Long, AProcessThatIsOvertakenRemovesNothing) {
  int held = 0, k = 0;
  for (const Call call : {Call::open, Call::opendir, Call::stat, Call::mkdir, Call::unlink})
    for (std::int64_t n = 1; n <= 6; ++n) held += in_shard(k++) && overtake(call, n);
  print_counts("overtaken at a call", {{"cases", held}});
  EXPECT_TRUE(is_sharded() || held > 10) << held;
}

TEST(Around, ProcessesThatRaceForAFolderDoNotHarmIt) {
  race(4, false, " --fresh");
  race(4, true, " --fresh");
}
TEST(Long, ManyRacesForAFolder) {
  int races = 0, k = 0;
  for (int round = 0; round < 16; ++round)
    for (const bool resumed : {false, true})
      for (const char* flags : {"", " --fresh"})
        if (in_shard(k++)) {
          race(6, resumed, flags);
          ++races;
        }
  print_counts("races of 6 processes", {{"cases", races}});
}

// Waiting for a disk is no hang, however short parallel.hang_s is.
void expect_patience(double hang_s, const Fault& fault) {
  const fs::path folder = folder_for("slow"), run = folder / "run";
  const Ended ended =
      run_with(fault, one_rank().command(run) + " --set parallel.hang_s=" + std::to_string(hang_s),
               run, folder);
  EXPECT_GT(ended.fired, 0);
  EXPECT_EQ(ended.code, 0) << fault.words() << "\n" << ended.said;
  EXPECT_EQ(one_rank().difference(run), "");
}

TEST(Around, ASlowDiskIsNoHang) {
  expect_patience(
      2, {.call = Call::fsync, .n = 1, .action = "slow", .value = 5000, .only = ".part-step-6"});
}
TEST(Long, ADiskThatIsAlwaysSlowIsNoHang) {
  expect_patience(3, {.call = Call::fsync,
                      .n = 1,
                      .for_ever = true,
                      .action = "slow",
                      .value = 5000,
                      .only = "/ckpt/"});
  for (const Call call : {Call::open, Call::rename, Call::write})
    expect_patience(
        1, {.call = call, .n = 2, .action = "slow", .value = 3000, .only = "/ckpt/.part-step-4"});
}

}  // namespace
}  // namespace tessera::test::faults::around_test
