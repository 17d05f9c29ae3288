// Slow and broken disks, racing starts and readers beside a run, from outside: nothing is lost, and
// nobody is called what he is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>

#include "app/binary.h"
#include "wait_until.h"

namespace tessera::test::durability_test {
namespace {

using std::chrono::milliseconds;

// A checkpoint every second step, and one of them is kept.
const std::string every_second =
    " --model vit_micro --set model.depth=1 --data synthetic --global-batch 8 --threads 1 --set "
    "checkpoint.every=2 --set "
    "checkpoint.keep=1 --set checkpoint.keep_best=false --set data.train_size=64 --set "
    "data.test_size=16 ";

// Given to processes that are started while it lives (tests/preload/fault.h).
struct Fault {
  explicit Fault(const std::string& text) {
    ::setenv("TESSERA_FAULT", text.c_str(), 1);
    ::setenv("LD_PRELOAD", TESSERA_PRELOAD, 1);
    ::setenv("ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0", 1);
  }
  ~Fault() {
    ::unsetenv("TESSERA_FAULT");
    ::unsetenv("LD_PRELOAD");
  }
};

Result run_with(const std::string& fault, const std::string& arguments) {
  const Fault given(fault);
  return run(arguments);
}

bool says(const std::string& log, const std::string& text) { return log.find(text) != log.npos; }

TEST(Durability, ASlowDiskIsNoHang) {
  const fs::path out = scratch() / "slow";
  const Result slow =
      run_with("fsync .part-step-2/ slow=5 times=1",
               "train" + every_second + "--steps 5 --set parallel.hang_s=2 --quiet --fresh --out " +
                   out.string());
  EXPECT_EQ(slow.code, 0) << slow.err;
  EXPECT_EQ(lines_of(out, "step").size(), 5u);
}

// The first rank waits for the part of the one whose disk is slow.
TEST(Durability, ASlowDiskOfOneRankIsNoHang) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path out = scratch() / "slow_ranks";
  const Result slow = run_with(
      "fsync .part-step-2/ slow=7 times=1 rank=1",
      "train" + every_second + "--steps 3 --np 2 --set parallel.hang_s=3 --quiet --fresh --out " +
          out.string());
  EXPECT_EQ(slow.code, 0) << slow.err;
  EXPECT_EQ(lines_of(out, "step").size(), 3u);
}

TEST(Durability, ADiskThatNeverReturnsIsNamed) {
  const fs::path out = scratch() / "never";
  const Result never = run_with(
      "fsync .part-step-2/ slow=1000 times=1",
      "train" + every_second +
          "--steps 5 --set parallel.hang_s=1 --set parallel.disk_s=1 --quiet --fresh --out " +
          out.string());
  EXPECT_EQ(never.code, 6) << never.err;
  EXPECT_TRUE(
      says(never.err,
           "it is writing the checkpoint of step 2, flushing .part-step-2/rank-0.safetensors"))
      << never.err;
  EXPECT_TRUE(says(never.err, "parallel.disk_s = 1")) << never.err;
}

// Slurm's second SIGTERM of one preemption comes while the ranks save.
TEST(Durability, ARequestToStopThatComesTwiceIsOne) {
  for (const char* ranks : {"", "--np 2 "}) {
    if (*ranks && !has_mpirun()) continue;
    const fs::path out = scratch() / (*ranks ? "request_ranks" : "request");
    const Fault slow("fsync .part-step- slow=1.2");
    Process process("train" + every_second + "--set checkpoint.every=1000000 --steps 1000000 " +
                    "--set run.eval_every=0 --set data.train_size=6400 --quiet --fresh " + ranks +
                    "--out " + out.string());
    wait_until([&] { return lines_of(out, "step").size() >= 2; });
    process.signal(SIGTERM);
    std::this_thread::sleep_for(milliseconds(700));
    process.signal(SIGTERM);
    EXPECT_EQ(process.wait(), 75) << ranks;
    EXPECT_FALSE(fs::is_empty(out / "ckpt"));
  }
}

// The third checkpoint cannot be flushed; then the folder cannot be listed; then all is well again.
TEST(Durability, ARunThatCannotLookDoesNotStartOver) {
  const fs::path out = scratch() / "unlisted", whole = scratch() / "unlisted_whole";
  const std::string arguments = "train" + every_second + "--steps 8 --quiet --out ";
  ASSERT_EQ(run(arguments + whole.string() + " --fresh").code, 0);
  const Result torn = run_with("fsync .part-step-6 errno=" + std::to_string(EIO),
                               arguments + out.string() + " --fresh");
  EXPECT_EQ(torn.code, 9) << torn.err;
  EXPECT_TRUE(says(torn.err, "cannot flush the file: Input/output error")) << torn.err;
  ASSERT_TRUE(fs::exists(out / "ckpt/step-4"));
  const std::string metrics = read(out / "metrics.jsonl");
  for (const int problem : {ESTALE, EACCES}) {
    const Result blind = run_with("opendir /ckpt$ times=3 errno=" + std::to_string(problem),
                                  arguments + out.string());
    EXPECT_EQ(blind.code, 9) << blind.err;
    EXPECT_TRUE(says(blind.err, (out / "ckpt").string() + ": cannot look here")) << blind.err;
    EXPECT_TRUE(fs::exists(out / "ckpt/step-4/manifest.json"));
    EXPECT_EQ(read(out / "metrics.jsonl"), metrics);
  }
  EXPECT_EQ(run(arguments + out.string()).code, 0);
  EXPECT_EQ(losses(out), losses(whole));
  EXPECT_TRUE(read(out / "weights.safetensors") == read(whole / "weights.safetensors"));
}

// A damaged newer checkpoint stays under another name, and is in nobody's way.
TEST(Durability, ANewerOneThatIsPassedOverStays) {
  const fs::path out = scratch() / "aside";
  const std::string arguments =
      "train" + every_second + "--set checkpoint.keep=2 --steps 8 --quiet --out " + out.string();
  ASSERT_EQ(
      run_with("fsync .part-step-6 errno=" + std::to_string(EIO), arguments + " --fresh").code, 9);
  fs::resize_file(out / "ckpt/step-4/rank-0.safetensors", 5000);
  const Result rest = run(arguments);
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_TRUE(says(read(out / "log.txt"), "ckpt/aside-step-4")) << read(out / "log.txt");
  EXPECT_EQ(fs::file_size(out / "ckpt/aside-step-4/rank-0.safetensors"), 5000u);
  EXPECT_EQ(run("ckpt verify " + out.string()).code, 0);
}

// Several starts on one folder, there before or not, with --fresh: one trains, the others are
// refused and change nothing.
TEST(Durability, OneOfManyStartsWins) {
  constexpr int starts = 5;
  const fs::path out = scratch() / "race";
  const std::string arguments =
      "train" + every_second +
      "--steps 100000 --set run.eval_every=0 --set checkpoint.keep=9 --quiet --fresh --out " +
      out.string();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<Process>> all;
    std::vector<std::thread> waiting;
    std::vector<std::atomic<int>> codes(starts);
    for (auto& code : codes) code = -1;
    for (int i = 0; i < starts; ++i) all.push_back(std::make_unique<Process>(arguments));
    for (std::size_t i = 0; i < starts; ++i)
      waiting.emplace_back([&, i] { codes[i] = all[i]->wait(); });
    const auto with = [&](int code) { return std::count(codes.begin(), codes.end(), code); };
    wait_until([&] { return with(-1) <= 1 && lines_of(out, "step").size() >= 4; });
    EXPECT_EQ(with(2), starts - 1) << "round " << round;
    for (std::size_t i = 0; i < starts; ++i)
      if (codes[i] == -1) all[i]->signal(SIGTERM);
    for (std::thread& thread : waiting) thread.join();
    EXPECT_EQ(with(75), 1) << "round " << round;
    const std::vector<json> steps = lines_of(out, "step");
    ASSERT_FALSE(steps.empty());
    for (std::size_t i = 0; i < steps.size(); ++i)
      ASSERT_EQ(steps[i]["step"], i + 1) << "round " << round;
    EXPECT_TRUE(fs::exists(out / "resolved.toml") && fs::exists(out / "env.json") &&
                fs::exists(out / "log.txt"));
    EXPECT_EQ(run("ckpt verify " + out.string()).code, 0);
  }
}

// Readers beside a run that keeps one checkpoint and replaces it all the time.
void read_beside_a_run(int times) {
  const fs::path out = scratch() / "beside";
  fs::remove_all(out);  // the steps that are waited for are those of this run
  Process process("train" + every_second +
                  "--set checkpoint.every=1 --set model.dim=32 --steps 1000000 --set "
                  "run.eval_every=0 --quiet " +
                  "--fresh --out " + out.string());
  wait_until([&] { return lines_of(out, "step").size() >= 4; });  // one is saved
  for (int i = 0; i < times; ++i)
    for (const std::string& reader :
         {"ckpt verify " + out.string(), "ckpt ls " + out.string(),
          "predict --weights " + out.string() + " " TESSERA_SOURCE_DIR "/tests/golden/disc.png"}) {
      const Result r = run(reader);
      ASSERT_EQ(r.code, 0) << reader << "\n" << r.out << r.err;
      ASSERT_FALSE(says(r.err, "--fresh") || says(r.err, "passed over") || says(r.out, "BAD"))
          << reader << "\n"
          << r.out << r.err;
    }
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75);
}

TEST(Durability, ReadersBesideARunFindACheckpoint) { read_beside_a_run(6); }
TEST(Long, ReadersBesideARunFindACheckpoint) { read_beside_a_run(100); }

}  // namespace
}  // namespace tessera::test::durability_test
