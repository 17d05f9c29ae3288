// The exit code of a job is that of the rank that ended first by itself, whatever mpirun makes of
// it: MPICH's may end with 9, the code of a rank that it killed itself.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "cluster/place.h"
#include "files/scratch.h"
#include "ranks/heartbeat_folder.h"

namespace tessera::test::exit_code_test {
namespace {

const std::string job =
    " --model vit_micro --set model.depth=1 --set data.train_size=64 --set data.test_size=16 "
    "--global-batch 16 --threads 1 --np 2 --quiet --out ";

// An mpirun that loses what its ranks ended with, first in PATH as long as this lives.
class Forgetful {
 public:
  Forgetful(const std::string& name, int code) : bin_(scratch() / name), before_(path()) {
    fs::create_directories(bin_);
    for (const std::string mpirun : {"mpirun", "mpirun.mpich", "mpirun.openmpi"}) {
      write(bin_ / mpirun, "#!/bin/sh\nPATH=" + before_ + "\n[ \"$1\" != --version ] || exec " +
                               mpirun + " --version\n" + mpirun + " \"$@\"\necho $? >>" +
                               real().string() + "\nexit " + std::to_string(code) + "\n");
      fs::permissions(bin_ / mpirun, fs::perms::owner_all);
      if (std::system(("command -v " + mpirun + " >/dev/null 2>&1").c_str()) != 0)
        fs::remove(bin_ / mpirun);
    }
    ::setenv("PATH", (bin_.string() + ":" + before_).c_str(), 1);
  }
  ~Forgetful() { ::setenv("PATH", before_.c_str(), 1); }
  Forgetful(const Forgetful&) = delete;
  Forgetful& operator=(const Forgetful&) = delete;

  fs::path real() const { return bin_ / "ended"; }  // one line for each job that went through it

 private:
  static std::string path() { return std::getenv("PATH"); }

  const fs::path bin_;
  const std::string before_;
};

// Each rank meets the first error by itself; the ranks agree on the second one.
TEST(ExitCode, OfARankIsNotThatOfMpirun) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  for (const int said : {0, 9}) {
    const Forgetful mpirun("forgets_" + std::to_string(said), said);
    const Result refused = run("bench comm --np 2 --comm mpi --min-bytes 1MB --max-bytes 64KB");
    EXPECT_EQ(refused.code, 2) << refused.err;
    const Result missing = run("train --epochs 1 --data cifar10:/nowhere" + job +
                               (scratch() / "exit_missing").string());
    EXPECT_EQ(missing.code, 3) << missing.err;
    EXPECT_EQ(missing.err.find("error:"), missing.err.rfind("error:")) << missing.err;
    std::istringstream ended(read(mpirun.real()));
    int jobs = 0;
    for (std::string line; std::getline(ended, line);) ++jobs;
    EXPECT_EQ(jobs, 2) << "both went through that mpirun";
  }
}

TEST(ExitCode, OfARequestToStop) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const Forgetful mpirun("forgets_75", 9);
  Place place("exit_stop");
  Process process("train --epochs 10000" + job + place.out().string(), place.log);
  ASSERT_TRUE(place.reached(3, process)) << place.said();
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 75) << place.said();
}

// Where no rank has failed, there is nobody else to go by.
TEST(ExitCode, OfMpirunCountsWhereNoRankFailed) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const Forgetful mpirun("forgets_success", 9);
  const Result r = run("train --epochs 1" + job + (scratch() / "exit_success").string());
  EXPECT_EQ(r.code, 9) << r.err;
  EXPECT_TRUE(fs::exists(scratch() / "exit_success/weights.safetensors")) << r.err;
}

// Whether a process has yet to take a signal that was sent to it.
bool is_pending(pid_t process, int signal) {
  const std::string status = read("/proc/" + std::to_string(process) + "/status");
  const std::size_t at = status.find("ShdPnd:");
  return at != status.npos &&
         (std::strtoull(status.c_str() + at + 7, nullptr, 16) >> (signal - 1) & 1) != 0;
}

// MPICH's mpirun, whose ranks ended by the request itself before they could listen to it, ends with
// the bits of all signals that ended a rank.
TEST(ExitCode, OfARequestThatEndedRanksOfMpich) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path bin = scratch() / "mpich", began = bin / "began", end = bin / "end";
  const std::string before = std::getenv("PATH");
  for (const int code : {SIGUSR1, SIGUSR1 | SIGKILL}) {
    fs::remove_all(bin);
    fs::create_directories(bin);
    for (const char* name : {"mpirun", "mpirun.mpich", "mpirun.openmpi"}) {
      write(bin / name, "#!/bin/sh\n[ \"$1\" != --version ] || { echo HYDRA; exit; }\ntouch " +
                            began.string() + "\nwhile [ ! -e " + end.string() +
                            " ]; do sleep 0.1; done\nexit " + std::to_string(code) + "\n");
      fs::permissions(bin / name, fs::perms::owner_all);
    }
    Place place("exit_mpich_" + std::to_string(code));
    ::setenv("PATH", (bin.string() + ":" + before).c_str(), 1);
    Process process("train --epochs 1" + job + place.out().string(), place.log);
    ::setenv("PATH", before.c_str(), 1);
    ASSERT_TRUE(wait_until([&] { return fs::exists(began); })) << place.said();
    process.signal(SIGTERM);
    ASSERT_TRUE(wait_until([&] { return !is_pending(process.id(), SIGTERM); }));
    write(end, "");
    EXPECT_EQ(process.wait(), 75) << place.said();
    EXPECT_TRUE(says(place.said(), "stopped on request before there was anything to save"));
  }
}

using tessera::run::HeartbeatFolder;

TEST(ExitCode, TheFirstThatIsLeftCounts) {
  const Scratch place;
  const HeartbeatFolder folder(place.folder());
  EXPECT_FALSE(folder.code());
  folder.leave_code(0);
  EXPECT_FALSE(folder.code()) << "a good end is no reason";
  folder.leave_code(3);
  folder.leave_code(75);
  EXPECT_EQ(folder.code(), 3);
  EXPECT_TRUE(folder.read_all().empty());
  HeartbeatFolder().leave_code(3);  // no launcher: nothing to leave it in
  EXPECT_FALSE(HeartbeatFolder().code());
}

TEST(ExitCode, OnlyANumberOfTheFoldersOwnerCounts) {
  const Scratch place;
  const HeartbeatFolder folder(place.folder());
  for (const char* text : {"", "3", "3 \n", "three\n", "-3\n", "0\n", "256\n", "3\n4\n",
                           "99999999999\n", "0000000000000000000003\n"}) {
    write(place / "code", text);
    EXPECT_FALSE(folder.code()) << text;
  }
  write(place / "elsewhere", "3\n");
  fs::remove(place / "code");
  fs::create_symlink(place / "elsewhere", place / "code");
  EXPECT_FALSE(folder.code()) << "a link";
  fs::remove(place / "code");
  ASSERT_EQ(::mkfifo((place / "code").c_str(), 0666), 0);
  ::alarm(20);  // what waits for a writer waits for ever
  EXPECT_FALSE(folder.code()) << "a pipe";
  ::alarm(0);
  fs::remove(place / "code");
  write(place / "code", "3\n");
  EXPECT_EQ(folder.code(), 3);
  if (::geteuid() != 0) return;  // only then can a test make a file of somebody else
  ASSERT_EQ(::chown((place / "code").c_str(), 65534, 65534), 0);
  EXPECT_FALSE(folder.code()) << "a file that the folder's owner did not write";
}

}  // namespace
}  // namespace tessera::test::exit_code_test
