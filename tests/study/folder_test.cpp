// The folder of a study: --fresh removes what a study made, nothing else, and ends what a killed one left running.
#include "study/folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "base/process.h"
#include "files/scratch.h"
#include "study/child.h"
#include "study/state.h"
#include "study/view.h"

namespace tessera::study::folder_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Scratch;

TEST(Folder, WhatNoStudyMadeStays) {
  const Scratch scratch;
  check_forgettable(scratch.folder());  // empty
  check_forgettable(scratch / "nowhere");
  fs::create_directories(scratch / "data");
  std::ofstream(scratch / "data/precious") << "x";
  const Error error = error_of([&] { check_forgettable(scratch.folder()); });
  EXPECT_EQ(error.kind, ErrorKind::usage);
  EXPECT_NE(error.message.find("data"), std::string::npos) << error.message;
  EXPECT_FALSE(error.hint.empty());
  forget(scratch.folder(), 1);
  EXPECT_TRUE(fs::exists(scratch / "data/precious"));
}

TEST(Folder, FreshEndsWhatAKilledStudyLeft) {
  const Scratch scratch;
  const pid_t leader = ::fork();
  if (leader == 0) {
    ::setsid();
    ::execlp("sleep", "sleep", "600", nullptr);
    ::_exit(127);
  }
  while (stat_of(leader).session != leader) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  {
    State state(scratch.folder());
    RunRow row;
    row.status = Status::running, row.pid = leader, row.pid_started = stat_of(leader).started, row.machine = machine_name();
    state.put("x", row);
  }
  fs::create_directories(scratch / "runs/a/np2-r0-0123456789abcdef/ckpt");
  fs::create_directories(scratch / "runs/b/r12-0123456789abcdef");
  fs::create_directories(scratch / "data");
  std::ofstream(scratch / "data/runs.csv") << "x";
  std::ofstream(scratch / "data/cifar.bin") << "x";
  check_forgettable(scratch.folder());
  forget(scratch.folder(), 5);
  int status = 0;
  EXPECT_EQ(::waitpid(leader, &status, WNOHANG), leader);
  EXPECT_TRUE(WIFSIGNALED(status));
  ::kill(leader, SIGKILL);  // where it was forgotten
  EXPECT_FALSE(fs::exists(scratch / "runs"));
  EXPECT_FALSE(fs::exists(scratch / "study.db"));
  EXPECT_FALSE(fs::exists(scratch / "data/runs.csv"));
  EXPECT_TRUE(fs::exists(scratch / "data/cifar.bin"));  // no study's
}

constexpr uid_t nobody = 65534;

TEST(Folder, WhatCannotBeRemovedIsSaid) {
  const Scratch scratch;
  { State state(scratch.folder()); }
  fs::permissions(scratch.folder(), fs::perms::owner_read | fs::perms::owner_exec);
  const bool root = ::geteuid() == 0;  // who may remove everything: be nobody meanwhile
  if (root) {
    ASSERT_EQ(::chown(scratch.folder().c_str(), nobody, nobody), 0);
    ASSERT_EQ(::chown((scratch / "study.db").c_str(), nobody, nobody), 0);
    ASSERT_EQ(::seteuid(nobody), 0);
  }
  const Error error = error_of([&] { forget(scratch.folder(), 1); });
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  fs::permissions(scratch.folder(), fs::perms::owner_all);
  EXPECT_EQ(error.kind, ErrorKind::disk) << error.what();
  EXPECT_TRUE(fs::exists(scratch / "study.db"));
}

// What the file said then, and this version does not understand.
TEST(Folder, AStudyWhoseClaimsCannotBeReadHasAPage) {
  const Scratch scratch;
  const config::StudyFile file = config::study_from_text(
      "[study]\nname = \"q\"\n[base]\nmodel.name = \"vit_micro\"\nrun.epochs = 1\n[[part]]\nname = \"a\"\nkind = \"accuracy\"\n", "s.toml");
  {
    State state(scratch.folder());
    state.set("plan", plan_json(file, plan_study(file), "tessera study s.toml").dump());
    state.set("text", "[study]\nname = \"q\"\nnot_of_today = 1\n");
  }
  const report::Study study = load_study(scratch.folder());
  EXPECT_EQ(study.name, "q");
  EXPECT_TRUE(study.claims.empty());
}

}  // namespace
}  // namespace tessera::study::folder_test
