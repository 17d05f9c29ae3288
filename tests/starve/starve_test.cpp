// A machine that runs out of something in the middle: memory where checkpoints are written,
// threads, sectors of a disk that can be read. The binary says what was missing, with the
// documented exit code, and the same command goes on to the bits of a run that was left alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <thread>

#include "app/binary.h"

namespace tessera::test::starve_test {
namespace {

const std::string steps =
    " --model vit_micro --set model.depth=1 --set data.train_size=64 --set data.test_size=16 "
    "--global-batch 16 --threads 2 ";
const std::string saving = steps + "--set checkpoint.every=2 --epochs 2 ";
// The limit is for a job that would never end; a shared machine may stand still for minutes.
const std::string within = "timeout 900 ";

// The binary with a fault in it (tests/preload/fault.h).
Result starved(const std::string& fault, const std::string& arguments) {
  const fs::path err = scratch() / "stderr";
  const std::string command = "TESSERA_FAULT='" + fault +
                              "' LD_PRELOAD=" TESSERA_PRELOAD " " TESSERA_BINARY " " + arguments +
                              " >" + (scratch() / "stdout").string() + " 2>" + err.string();
  const int status = std::system(command.c_str());
  Result r;
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  r.out = read(scratch() / "stdout");
  r.err = read(err);
  return r;
}

std::string undisturbed() {
  static const std::string weights = [] {
    const fs::path out = scratch() / "whole";
    EXPECT_EQ(run("train" + saving + "--quiet --out " + out.string()).code, 0);
    return read(out / "weights.safetensors");
  }();
  return weights;
}

void expect_goes_on(const fs::path& out, const std::string& how) {
  const Result after = run("train" + saving + "--quiet --out " + out.string());
  EXPECT_EQ(after.code, 0) << how << ": " << after.err;
  EXPECT_TRUE(read(out / "weights.safetensors") == undisturbed()) << how;
}

void expect_said(int allocation, bool goes_on) {
  const fs::path out = scratch() / "no_memory";
  const std::string how = "memory tessera-saver errno=12 from=" + std::to_string(allocation);
  const Result r = starved(how, "train" + saving + "--quiet --fresh --out " + out.string());
  EXPECT_EQ(r.code, 8) << how << ": " << r.err;
  EXPECT_NE(r.err.find("out of memory"), std::string::npos) << how << ": " << r.err;
  if (goes_on) expect_goes_on(out, how);
}

TEST(Starve, NoMemoryForACheckpointIsSaid) {
  for (const int allocation : {1, 12, 150}) expect_said(allocation, allocation == 150);
}
TEST(Long, NoMemoryAnywhereInACheckpointIsSaid) {
  for (int allocation = 1; allocation < 300; allocation += 3)
    expect_said(allocation, allocation % 10 == 0);
}

// Where no memory is left, what was allocated is still taken down: JSON needs some for that.
TEST(Starve, MemoryIsLeftForTheWayOut) {
  const fs::path out = scratch() / "no_memory";
  for (const int allocation : {2500, 3700}) {
    const std::string how = "memory tessera-saver errno=12 back from=" + std::to_string(allocation);
    const Result r = starved(how, "train" + saving + "--quiet --fresh --out " + out.string());
    EXPECT_EQ(r.code, 8) << how << ": " << r.err;
    EXPECT_NE(r.err.find("out of memory"), std::string::npos) << how << ": " << r.err;
  }
  expect_goes_on(out, "3700 allocations");
}

// Every thread in turn: the watchdog's, those of kernels and loaders, the one that saves.
TEST(Starve, NoThreadsAreSaid) {
  const fs::path out = scratch() / "no_threads";
  int n = 1, refused = 0;
  for (; n < 40; ++n) {
    const std::string how = "thread / errno=11 from=" + std::to_string(n);
    const Result r =
        starved(how, "train" + steps + "--set data.workers=1 --epochs 1 --quiet --fresh --out " +
                         out.string());
    if (r.code == 0) break;
    ++refused;
    EXPECT_EQ(r.code, 8) << how << ": " << r.err;
    EXPECT_NE(r.err.find("thread"), std::string::npos) << how << ": " << r.err;
  }
  EXPECT_GE(refused, 4);
  EXPECT_LT(n, 40);
}

// Two ranks under a limit on the memory of each process that is too low for MPI: mpirun waits for
// itself or ends without a word, or a rank runs out or crashes inside a library. The job ends with
// the code for memory and one sentence about it. With `may_fit` the limit may also be enough.
// The launcher waits up to 40 s for ranks to join and 20 s for an mpirun without ranks.
void expect_memory_is_named(int mib, bool may_fit) {
  const fs::path out = scratch() / "limited", err = scratch() / "stderr";
  const std::string command =
      "ulimit -v " + std::to_string(1024 * mib) + "; " + within + TESSERA_BINARY " train" + steps +
      "--np 2 --steps 2 --quiet --fresh --out " + out.string() + " >/dev/null 2>" + err.string();
  const int status = std::system(command.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const std::string said = read(err);
  std::printf("%d MiB: exit code %d\n", mib, code);
  if (may_fit && code == 0) return;
  EXPECT_EQ(code, 8) << mib << " MiB: " << said;
  EXPECT_NE(said.find("error: "), std::string::npos) << mib << " MiB: " << said;
  EXPECT_TRUE(said.find("memory") != said.npos || said.find(" MB") != said.npos ||
              said.find("threads") != said.npos)
      << mib << " MiB: " << said;
}
bool has_mpirun() { return std::system("mpirun --version >/dev/null 2>&1") == 0; }

TEST(Starve, TooLittleMemoryForRanksIsSaid) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  expect_memory_is_named(80, false);
}
// Ranks that wait for one that ended inside of MPI: an mpirun whose processes do nothing.
TEST(Long, RanksThatNeverJoinBelowALimitAreSaid) {
  const fs::path bin = scratch() / "bin", err = scratch() / "stderr";
  fs::create_directories(bin);
  std::ofstream(bin / "mpirun") << "#!/bin/sh\nwhile [ -e " << bin.string()
                                << " ]; do sleep 1; done &\nwait\n";
  fs::permissions(bin / "mpirun", fs::perms::owner_all);
  const std::string command = "ulimit -v 400000; PATH=" + bin.string() + ":$PATH " + within +
                              TESSERA_BINARY " train" + steps +
                              "--np 2 --steps 2 --quiet --fresh --out " +
                              (scratch() / "limited").string() + " >/dev/null 2>" + err.string();
  const int status = std::system(command.c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), 8) << read(err);
  const bool alone = std::thread::hardware_concurrency() == 1;  // they take turns
  EXPECT_NE(read(err).find(std::string("the ranks have not joined each other for ") +
                           (alone ? "80" : "40") + " s"),
            std::string::npos)
      << read(err);
}
// An mpirun that does not end after its ranks, of which one has said why it did: that one counts.
TEST(Long, ARanksOwnWordCountsWhereMpirunDoesNotEnd) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const fs::path bin = scratch() / "lasting", err = scratch() / "stderr";
  fs::create_directories(bin);
  std::ofstream(bin / "mpirun") << "#!/bin/sh\nPATH=${PATH#*:}\nmpirun \"$@\"\n"
                                << "[ \"$1\" = --version ] && exit\n"
                                << "rm -f $0.pipe; mkfifo $0.pipe; read nothing <>$0.pipe\n";
  fs::permissions(bin / "mpirun", fs::perms::owner_all);
  const std::string command =
      "ulimit -v 1000000; PATH=" + bin.string() + ":$PATH TESSERA_FAULT='" +
      "rename predictions.json rank=0 errno=5' LD_PRELOAD=" TESSERA_PRELOAD " " + within +
      TESSERA_BINARY " train" + steps + "--np 2 --oversubscribe --steps 2 --quiet --fresh --out " +
      (scratch() / "said").string() + " >/dev/null 2>" + err.string();
  const int status = std::system(command.c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), 9) << read(err);
  EXPECT_NE(read(err).find("predictions.json: cannot rename"), std::string::npos) << read(err);
  EXPECT_EQ(read(err).find("does not end"), std::string::npos) << read(err);
}
// A rank that has said why it ends, and that MPI neither ends nor lets go: the launcher does both.
TEST(Long, ARanksOwnWordCountsWhereMpiDoesNotEndTheJob) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  const fs::path err = scratch() / "stderr";
  const std::string command =
      "TESSERA_FAULT_ABORT=1 TESSERA_FAULT='rename weights.safetensors rank=0 errno=28' "
      "LD_PRELOAD=" TESSERA_PRELOAD " timeout 120 " TESSERA_BINARY " train" +
      steps + "--np 2 --oversubscribe --steps 2 --quiet --fresh --out " +
      (scratch() / "unended").string() + " >/dev/null 2>" + err.string();
  const int status = std::system(command.c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), 9) << read(err);
  EXPECT_NE(read(err).find("weights.safetensors"), std::string::npos) << read(err);
}
TEST(Long, TooLittleMemoryForRanksIsSaid) {
  if (!has_mpirun()) GTEST_SKIP() << "there is no mpirun";
  for (int mib = 64; mib < 256; mib += mib < 112 ? 2 : 16) expect_memory_is_named(mib, mib > 96);
}

// A sector that cannot be read, in the newest of two checkpoints: it is named and passed over.
TEST(Starve, ACheckpointThatCannotBeReadIsPassedOver) {
  const fs::path out = scratch() / "sector";
  undisturbed();
  fs::copy(scratch() / "whole", out, fs::copy_options::recursive);
  for (const char* name : {"summary.json", "weights.safetensors"}) fs::remove(out / name);
  const std::string newest = json::parse(run("ckpt ls --json " + out.string()).out)[0]["path"];
  const std::string how = "read " + fs::path(newest).filename().string() + "/rank-0 from=3 errno=5";

  const Result verified = starved(how, "ckpt verify " + out.string());
  EXPECT_EQ(verified.code, 4) << verified.err;
  EXPECT_NE(verified.out.find("BAD: cannot read rank-0.safetensors at byte"), std::string::npos)
      << verified.out;
  EXPECT_NE(verified.out.find("every hash fits"), std::string::npos) << verified.out;
  const Result predicted = starved(
      how, "predict --weights " + out.string() + " " TESSERA_SOURCE_DIR "/tests/golden/disc.png");
  EXPECT_EQ(predicted.code, 0) << predicted.err;
  EXPECT_NE(predicted.err.find("passed over: cannot read rank-0.safetensors"), std::string::npos)
      << predicted.err;
  const Result trained = starved(how, "train" + saving + "--out " + out.string());
  EXPECT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find("passed over: cannot read rank-0.safetensors"), std::string::npos)
      << trained.err;
  EXPECT_TRUE(read(out / "weights.safetensors") == undisturbed());

  const Result weights =
      starved("read weights.safetensors from=3 errno=5",
              "eval --data synthetic --weights " + (out / "weights.safetensors").string());
  EXPECT_EQ(weights.code, 4) << weights.err;
  EXPECT_NE(weights.err.find("Input/output error"), std::string::npos) << weights.err;
  EXPECT_NE(weights.err.find((out / "weights.safetensors").string()), std::string::npos)
      << weights.err;
}

}  // namespace
}  // namespace tessera::test::starve_test
