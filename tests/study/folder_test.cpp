// The folder of a study: --fresh removes what a study made, nothing else, and ends what a killed
// one left running.
#include "study/folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "base/process.h"
#include "files/scratch.h"
#include "page/page.h"
#include "study/child.h"
#include "study/claims.h"
#include "study/collect.h"
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
    ::setenv(study_variable, mark_of(scratch.folder()).c_str(), 1);
    ::execlp("sleep", "sleep", "600", nullptr);
    ::_exit(127);
  }
  while (variable_of(leader, study_variable).empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  {
    State state(scratch.folder());
    RunRow row;
    row.status = Status::running;
    row.pid = leader;
    row.pid_started = stat_of(leader).started;
    row.machine = machine_name();
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

TEST(Folder, FreshWithOnlyForgetsThosePartsAlone) {
  const Scratch scratch;
  State state(scratch.folder());
  for (const std::string part : {"a", "ab", "b"}) {
    RunRow row;
    row.status = Status::done;
    row.folder = "runs/" + part + "/r0-0123456789abcdef";
    row.record = "{}";
    state.put(part, row);
    fs::create_directories(scratch / row.folder / "ckpt");
  }
  fs::create_directories(scratch / "runs/a/mine");
  forget_parts(scratch.folder(), state, {"a"}, 1);
  EXPECT_FALSE(state.find("a"));
  EXPECT_TRUE(state.find("ab") && state.find("b"));
  EXPECT_FALSE(fs::exists(scratch / "runs/a/r0-0123456789abcdef"));
  EXPECT_TRUE(fs::exists(scratch / "runs/a/mine"));  // no study's
  EXPECT_TRUE(fs::exists(scratch / "runs/ab/r0-0123456789abcdef/ckpt"));
  EXPECT_TRUE(fs::exists(scratch / "runs/b/r0-0123456789abcdef/ckpt"));
}

// A file that one page wrote and the next one has no more goes; what others put there stays.
TEST(Folder, APageTakesItsOldFilesAlong) {
  const Scratch scratch;
  const std::string folder = scratch.folder().string();
  report::Study study;
  study.name = study.title =
      "q \" href=\"figures/mine.svg\" download=\"mine.csv\"";  // names nothing
  for (const char* name : {"one", "two"}) {
    report::Part part;
    part.name = name;
    part.kind = report::PartKind::layers;
    report::Repeat repeat;
    repeat.outcome = report::Outcome::done;
    repeat.record.emplace();
    repeat.record->verb = "layers";
    repeat.record->parts = {{"msa", 1, 0.5, 1}, {"mlp", 1, 0.5, 1}};
    part.points.push_back({"", {}, {}, {repeat}});
    study.parts.push_back(part);
  }
  study.claims.push_back({"mine", "x", "c", "1", "holds", ""});
  const auto files = [&] {
    std::set<std::string> out;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) out.insert(fs::relative(entry.path(), folder).generic_string());
    return out;
  };
  const auto write = [&] {
    write_claims(study, folder);
    report::write_page(study, folder);
  };
  // A page of somebody else's lists nothing of ours.
  fs::create_directories(scratch / "figures");
  fs::create_directories(scratch / "data");
  for (const char* name : {"figures/mine.svg", "data/mine.csv"})
    std::ofstream(scratch / name) << "x";
  std::ofstream(scratch / "report.html") << "<a href=\"figures/mine.svg\">";
  write();
  std::set<std::string> before = files();
  EXPECT_TRUE(before.contains("claims.md") && before.contains("data/claims.csv") &&
              before.contains("data/parts.csv"));
  EXPECT_TRUE(std::any_of(before.begin(), before.end(),
                          [](const auto& f) { return f.starts_with("figures/two-"); }));
  study.parts.pop_back();
  study.claims.clear();
  write();
  std::set<std::string> expected;
  for (const std::string& f : before)
    if (!f.starts_with("figures/two-") && f != "claims.md" && f != "data/claims.csv")
      expected.insert(f);
  EXPECT_EQ(files(), expected);
  EXPECT_TRUE(expected.contains("figures/mine.svg") && expected.contains("data/mine.csv"));
  std::ofstream(scratch / "claims.md") << "one's own";
  write();
  EXPECT_TRUE(fs::exists(scratch / "claims.md"));
}

TEST(Folder, ARunIsFollowedUntilItsSummaryIsThere) {
  const Scratch scratch;
  std::ofstream(scratch / "metrics.jsonl") << R"({"kind":"step","step":1,"loss":2.0,"step_ms":5.0})"
                                           << "\n";
  EXPECT_FALSE(study_of_run(scratch.folder()).running);
  const report::Study study = study_of_run(scratch.folder(), true);
  EXPECT_TRUE(study.running);
  std::ifstream in(report::write_page(study, (scratch / "page").string()));
  const std::string page((std::istreambuf_iterator<char>(in)), {});
  EXPECT_NE(page.find(">Running. The page looks for news"), std::string::npos);
  std::ofstream(scratch / "summary.json") << "{}";
  EXPECT_FALSE(study_of_run(scratch.folder(), true).running);
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

// Runs that nobody could look for are not left behind without the study that made them.
TEST(Folder, AFolderThatCannotBeListedKeepsTheStudy) {
  for (const char* name : {"runs", "runs/a", "figures"}) {
    const Scratch scratch;
    { State state(scratch.folder()); }
    fs::create_directories(scratch / "runs/a/r0-0123456789abcdef");
    fs::create_directories(scratch / "figures");
    const test::AsNobody user(scratch.folder());
    fs::permissions(scratch / name, fs::perms::none);
    const Error error = error_of([&] { forget(scratch.folder(), 1); });
    fs::permissions(scratch / name, fs::perms::owner_all);
    EXPECT_EQ(error.kind, ErrorKind::disk) << error.what();
    EXPECT_EQ(error.where, (scratch / name).string());
    EXPECT_FALSE(error.hint.empty());
    EXPECT_TRUE(fs::exists(scratch / "study.db")) << name;
    forget(scratch.folder(), 1);
    EXPECT_FALSE(fs::exists(scratch / "runs"));
  }
}

// A run that is finished need not keep what takes room.
TEST(Folder, WhatAFinishedRunKeepsIsSaid) {
  const Scratch scratch;
  fs::create_directories(scratch / "ckpt/step-1");
  for (const char* name : {"ckpt/step-1/file", "weights.safetensors", "events.out.tfevents.1"})
    std::ofstream(scratch / name) << "x";
  const test::AsNobody user(scratch.folder());
  fs::permissions(scratch / "ckpt/step-1", fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(tidy(scratch.folder()),
            (scratch / "ckpt").string() + " cannot be removed: Permission denied");
  EXPECT_FALSE(fs::exists(scratch / "events.out.tfevents.1"));
  fs::permissions(scratch / "ckpt/step-1", fs::perms::owner_all);
  EXPECT_EQ(tidy(scratch.folder()), "");
  EXPECT_TRUE(fs::is_empty(scratch.folder()));
}

// Nobody takes the claims of an earlier file for those of this one.
TEST(Folder, ClaimsThatCannotBeRemovedAreAnError) {
  const Scratch scratch;
  report::Study study;
  study.name = "q";
  study.claims.push_back({"mine", "x", "c", "1", "holds", ""});
  write_claims(study, scratch.folder());
  report::write_page(study, scratch.folder().string());
  study.claims.clear();
  const test::AsNobody user(scratch.folder());
  fs::permissions(scratch.folder(), fs::perms::owner_read | fs::perms::owner_exec);
  const Error error = error_of([&] { write_claims(study, scratch.folder()); });
  fs::permissions(scratch.folder(), fs::perms::owner_all);
  EXPECT_EQ(error.kind, ErrorKind::disk) << error.what();
  EXPECT_EQ(error.where, (scratch / "claims.md").string());
}

// A run that starts in what another one left would pass for finished.
TEST(Folder, ARunStartsInAnEmptyFolderOrNotAtAll) {
  const Scratch scratch;
  const fs::path run = scratch / "runs/a/r0-0123456789abcdef";
  make_run_folder(run);
  std::ofstream(run / "summary.json") << "{}";
  make_run_folder(run);
  EXPECT_TRUE(fs::is_empty(run));
  std::ofstream(run / "summary.json") << "{}";
  fs::permissions(run, fs::perms::owner_read | fs::perms::owner_exec);
  const bool root = ::geteuid() == 0;
  if (root) {
    ASSERT_EQ(::chown(run.c_str(), nobody, nobody), 0);
    ASSERT_EQ(::seteuid(nobody), 0);
  }
  const Error error = error_of([&] { make_run_folder(run); });
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
  fs::permissions(run, fs::perms::owner_all);
  EXPECT_EQ(error.kind, ErrorKind::disk) << error.what();
  EXPECT_FALSE(error.hint.empty());
  EXPECT_TRUE(fs::exists(run / "summary.json"));
}

// The file said this then, and this version does not understand it.
TEST(Folder, AStudyWhoseClaimsCannotBeReadHasAPage) {
  const Scratch scratch;
  const config::StudyFile file = config::study_from_text(
      "[study]\nname = \"q\"\n[base]\nmodel.name = \"vit_micro\"\nrun.epochs = 1\n[[part]]\nname = "
      "\"a\"\nkind = \"accuracy\"\n",
      "s.toml");
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
