// Runs that are killed, stopped and starved of disk: they go on from a checkpoint and end with the
// same bits as one that was left alone.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "app/binary.h"
#include "wait_until.h"

namespace tessera::test::kill_test {
namespace {

using std::chrono::microseconds;

// A checkpoint every second step, so that most of the time one is being written; dropout,
// drop-path, flips and a ragged last batch, so that random numbers, counters and positions inside
// an epoch matter.
const std::string restless =
    " --model vit_micro --set model.depth=1 --set model.dropout=0.1 --set model.drop_path=0.1 "
    "--set data.flip=true --set "
    "data.train_size=88 "
    "--set data.test_size=16 --global-batch 32 --threads 2 --set run.eval_every=3 --set "
    "checkpoint.every=2 --set optim.clip=1 ";

struct Killed {
  int kills = 0, wrote = 0;  // wrote: kills that found a checkpoint half written
};

// Kills the run at random moments until it has been killed `wanted` times (starting over when it
// ended before that), then lets it end. `with`: what the killed run is told beside what the other
// is.
void kill_and_compare(int wanted, std::uint64_t seed, std::size_t epochs = 40,
                      const std::string& with = "") {
  const std::string arguments =
      "train" + restless + on_device() + "--epochs " + std::to_string(epochs) + " --quiet --out ";
  const fs::path whole = scratch() / "kill_whole", parts = scratch() / "kill_parts";
  fs::remove_all(parts);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(run(arguments + whole.string() + " --fresh").code, 0);
  const double alone =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::mt19937_64 random(seed);
  Killed so_far;
  for (bool ended = false; so_far.kills < wanted || !ended;) {
    Process process(arguments + parts.string() + with);
    // Between the very start and a good part of a whole run; now and then long enough that some
    // runs end.
    // A card takes a good part of a short run to start.
    const double longest = so_far.kills < wanted ? alone * (on_device().empty() ? 0.4 : 0.7) : 600;
    const auto deadline = microseconds(
        static_cast<std::int64_t>(1e6 * longest * std::uniform_real_distribution<>(0, 1)(random)));
    if (so_far.kills < wanted) {
      std::this_thread::sleep_for(deadline);
      process.signal(SIGKILL);
    }
    const int code = process.wait();
    ASSERT_TRUE(code == 0 || code == 128 + SIGKILL)
        << code << " after " << so_far.kills << " kills";
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(parts / "ckpt", error))
      so_far.wrote += entry.path().filename().string().starts_with(".part-");
    ended = code == 0;
    if (!ended) {
      ++so_far.kills;
      continue;
    }
    ASSERT_EQ(losses(parts), losses(whole)) << "after " << so_far.kills << " kills";
    ASSERT_TRUE(read(parts / "weights.safetensors") == read(whole / "weights.safetensors"))
        << "after " << so_far.kills << " kills";
    ASSERT_EQ(lines_of(parts, "epoch").size(), epochs);
    ASSERT_EQ(run("ckpt verify " + parts.string()).code, 0);
    if (so_far.kills < wanted) fs::remove_all(parts);
  }
  for (const auto& entry : fs::directory_iterator(parts / "ckpt"))
    EXPECT_EQ(entry.path().filename().string().front(), 's') << entry.path() << " was left behind";
  std::printf("%d kills, %d of them in the middle of writing a checkpoint\n", so_far.kills,
              so_far.wrote);
  testing::Test::RecordProperty("cases", so_far.kills);
}

int wanted_kills(int otherwise) {
  const char* wanted = std::getenv("TESSERA_KILLS");
  return wanted ? std::atoi(wanted) : otherwise;
}

TEST(Kill, AKilledRunEndsWithTheSameBits) { kill_and_compare(wanted_kills(5), 1); }

// The file of a killed run is gone: state comes from the checkpoint.
constexpr const char* in_a_file =
    " --set parallel.offload_optimizer=file --set parallel.offload_mb=0.02";
TEST(Kill, AKilledRunWithItsStateInAFileEndsWithTheSameBits) {
  kill_and_compare(wanted_kills(2), 3, 16, in_a_file);
  for (const auto& entry : fs::directory_iterator(scratch() / "kill_parts"))
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tessera")) << entry.path();
}

TEST(Long, AKilledRunEndsWithTheSameBits) { kill_and_compare(wanted_kills(200), 2); }

TEST(Kill, EverySignalSavesAndEndsAndASecondOneEndsAtOnce) {
  const std::string arguments =
      "train" + tiny +
      "--epochs 100000 --set run.eval_every=0 --set checkpoint.every=100000 --quiet --fresh --out ";
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    const fs::path folder = scratch() / ("signal_" + std::to_string(number));
    Process process(arguments + folder.string());
    wait_until([&] { return lines_of(folder, "epoch").size() >= 3; });
    process.signal(number);
    EXPECT_EQ(process.wait(), 75);
    const json listed = json::parse(run("ckpt ls --json " + folder.string()).out);
    ASSERT_EQ(listed.size(), 1u);
    EXPECT_TRUE(listed[0]["valid"].get<bool>());
    EXPECT_EQ(listed[0]["step"], lines_of(folder, "step").size());
  }
  // While the first one waits for the end of a step that takes seconds, the second one does not
  // wait. On a crowded machine the first one may come before that step begins, and then ends the
  // run alone: that is tried again.
  int code = 75;
  for (int tries = 0; code == 75 && tries < 5; ++tries) {
    const fs::path folder = scratch() / ("signal_twice_" + std::to_string(tries));
    Process process(
        "train --model vit_tiny_cifar --global-batch 256 --steps 50 --set data.train_size=512 "
        "--threads 1 --quiet --out " +
        folder.string());
    wait_until([&] { return fs::exists(folder / "metrics.jsonl"); });
    std::this_thread::sleep_for(
        std::chrono::milliseconds(300 * (tries + 1)));  // into the first step
    process.signal(SIGTERM);
    // A launcher that signals the process and then its group asks once.
    process.signal(SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    process.signal(SIGINT);
    code = process.wait();
  }
  EXPECT_EQ(code, 128 + SIGINT);
}

// Two processes in one folder would tear each other's checkpoints.
TEST(Kill, OneProcessTrainsInAFolder) {
  const fs::path folder = scratch() / "twice";
  const std::string arguments =
      "train" + tiny + "--epochs 100000 --set run.eval_every=0 --quiet --out " + folder.string();
  Process process(arguments);
  wait_until([&] { return !lines_of(folder, "step").empty(); });
  const Result second = run(arguments);
  EXPECT_EQ(second.code, 2);
  EXPECT_NE(second.err.find("another process"), std::string::npos) << second.err;
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75);
}

void expect_full(const fs::path& folder, int code, const std::string& err) {
  EXPECT_EQ(code, 9) << err;
  EXPECT_NE(err.find("bytes are needed"), std::string::npos) << err;
  EXPECT_NE(err.find("are free"), std::string::npos) << err;
  const Result verified = run("ckpt verify --json " + folder.string());
  EXPECT_EQ(verified.code, 0) << verified.out;  // the old one is whole
}

TEST(Kill, ALimitOnFilesIsAFullDisk) {
  const fs::path folder = scratch() / "limit", log = scratch() / "limit.log";
  const std::string arguments = "train" + tiny + "--set checkpoint.keep=1 --out " + folder.string();
  Process first(arguments + " --epochs 100000 --set run.eval_every=0 --quiet --fresh");
  wait_until([&] { return lines_of(folder, "step").size() >= 4; });
  first.signal(SIGTERM);
  ASSERT_EQ(first.wait(), 75);
  Process process(arguments + " --epochs 100000 --set run.eval_every=0 --quiet", log,
                  500'000);         // a checkpoint has 570,000 bytes
  const int code = process.wait();  // before the log is read
  expect_full(folder, code, read(log));
}

TEST(Kill, AFullDiskEndsTheRunAndTheOldCheckpointGoesOn) {
  const fs::path disk = scratch() / "disk";
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=2m") != 0)
    GTEST_SKIP() << "a small disk needs the right to mount one";
  struct Unmount {
    const fs::path& path;
    ~Unmount() { ::umount2(path.c_str(), MNT_DETACH); }
  } const unmount{disk};
  const std::string arguments = "train" + tiny +
                                "--epochs 8 --set checkpoint.keep=9 --set checkpoint.every=1 --set "
                                "checkpoint.keep_best=false --quiet --out " +
                                (disk / "r").string();
  const Result full = run(arguments);
  expect_full(disk / "r", full.code, full.err);
  // With room again the same command ends where an undisturbed run does.
  ASSERT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);
  const Result rest = run(arguments);
  ASSERT_EQ(rest.code, 0) << rest.err;
  const fs::path whole = scratch() / "disk_whole";
  ASSERT_EQ(run("train" + tiny + "--epochs 8 --quiet --fresh --out " + whole.string()).code, 0);
  EXPECT_TRUE(read(disk / "r/weights.safetensors") == read(whole / "weights.safetensors"));
  EXPECT_EQ(losses(disk / "r"), losses(whole));
}

}  // namespace
}  // namespace tessera::test::kill_test
