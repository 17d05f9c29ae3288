// Records and verdicts in a folder: what one process writes another reads, and one verdict counts.
#include "ranks/heartbeat_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "files/scratch.h"

namespace {

using namespace tessera;
using namespace tessera::run;
namespace fs = std::filesystem;

TEST(HeartbeatFolder, ARecordIsReadAsItWasWritten) {
  const test::Scratch scratch;
  fs::create_directories(scratch / "heartbeat");
  const HeartbeatFolder folder(scratch / "heartbeat");
  Seen me = this_process(3);
  EXPECT_EQ(me.pid, ::getpid());
  EXPECT_FALSE(me.host.empty());
  EXPECT_TRUE(is_alive(me));
  EXPECT_FALSE(folder.read(3));
  me.look.idle_s = 1.5;
  me.look.doing = "computing \"step\" 12";
  me.look.inside = "blocks.0.mlp";
  me.look.groups = {{"world", 0, 7, 6}, {"tp", 2, 41, 41}};
  me.look.waits = comm::Look::Call{0, comm::Verb::all_gather, 7, "weights"};
  folder.write(me);
  me.tick = 1;
  me.look.doing = "x";  // shorter: nothing of the old one is left
  folder.write(me);
  const auto seen = folder.read(3);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->pid, me.pid);
  EXPECT_EQ(seen->started, me.started);
  EXPECT_EQ(seen->tick, 1u);
  EXPECT_EQ(seen->look.idle_s, 1.5);
  EXPECT_EQ(seen->look.doing, "x");
  ASSERT_EQ(seen->look.groups.size(), 2u);
  EXPECT_EQ(seen->look.groups[1].color, 2);
  EXPECT_EQ(seen->look.groups[1].entered, 41u);
  ASSERT_TRUE(seen->look.waits);
  EXPECT_EQ(seen->look.waits->verb, comm::Verb::all_gather);
  EXPECT_EQ(seen->look.waits->scope, "weights");
  EXPECT_FALSE(seen->look.left);
  EXPECT_EQ(folder.read_all().size(), 1u);
  folder.remove();
  EXPECT_FALSE(fs::exists(folder.path()));
  folder.write(me);  // too late, and no harm
}

TEST(HeartbeatFolder, NonsenseIsNoRecord) {
  const test::Scratch scratch;
  fs::create_directories(scratch / "heartbeat");
  const HeartbeatFolder folder(scratch / "heartbeat");
  for (const char* text : {"", "{", "[]", "{\"pid\": 1}", "{\"rank\":0,\"host\":3}"}) {
    std::ofstream(folder.path() / "rank-0") << text;
    EXPECT_FALSE(folder.read(0)) << text;
  }
  folder.remove();
}

TEST(HeartbeatFolder, OneVerdictCounts) {
  const test::Scratch scratch;
  fs::create_directories(scratch / "heartbeat");
  const HeartbeatFolder folder(scratch / "heartbeat");
  EXPECT_FALSE(folder.verdict());
  int first = 0;
  // Processes, as ranks are: each has a draft of its own.
  for (int i = 0; i < 8; ++i)
    if (::fork() == 0) ::_exit(folder.decide({6, "rank 1 hangs"}) ? 1 : 0);
  for (int i = 0; i < 8; ++i) {
    int status = 0;
    ::wait(&status);
    first += WEXITSTATUS(status);
  }
  EXPECT_EQ(first, 1);
  EXPECT_FALSE(folder.decide({7, "too late"}));
  ASSERT_TRUE(folder.verdict());
  EXPECT_EQ(folder.verdict()->code, 6);
  EXPECT_EQ(folder.verdict()->text, "rank 1 hangs");
  folder.remove();
}

TEST(HeartbeatFolder, AProcessIsSeenRunningStoppedAndGone) {
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  Seen seen = this_process(0);
  seen.pid = child;
  EXPECT_EQ(state_of(seen), 'X');  // that process began at another time
  EXPECT_FALSE(is_alive(seen));
  std::string stat;
  std::getline(std::ifstream("/proc/" + std::to_string(child) + "/stat"), stat);
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  seen.started = std::stoull(field);
  EXPECT_TRUE(is_alive(seen));
  ::kill(child, SIGSTOP);
  int status = 0;
  ::waitpid(child, &status, WUNTRACED);
  EXPECT_EQ(state_of(seen), 'T');
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  EXPECT_EQ(state_of(seen), 'X');
  seen.host = "elsewhere";
  EXPECT_EQ(state_of(seen), 0);
}

// A rank that is known to be gone leaves nothing behind; one that may be alive, here or elsewhere,
// keeps its folder.
TEST(HeartbeatFolder, ThoseOfTheDeadAreSwept) {
  const test::Scratch scratch;
  const auto made = [&](const Seen& launcher, const std::optional<Seen>& rank) {
    const HeartbeatFolder folder = new_heartbeat_folder(scratch.folder());
    folder.write(launcher);
    if (rank) folder.write(*rank);
    return folder.path();
  };
  Seen alive = this_process(launcher_rank), dead = alive, elsewhere = alive;
  dead.started += 1;
  elsewhere.host = "elsewhere";
  const auto as_rank = [](Seen seen) {
    seen.rank = 0;
    return seen;
  };
  const fs::path of_alive = made(alive, std::nullopt),
                 of_elsewhere = made(elsewhere, as_rank(dead)),
                 rank_left = made(dead, as_rank(alive));
  fs::create_directories(scratch / ".ranks-empty");
  const fs::path of_dead = made(dead, as_rank(dead)), never_began = made(dead, std::nullopt);
  EXPECT_TRUE(HeartbeatFolder(of_alive).read_all().empty()) << "a launcher is no rank";
  sweep_heartbeat_folders(scratch.folder());
  for (const fs::path& kept : {of_alive, of_elsewhere, rank_left, scratch / ".ranks-empty"})
    EXPECT_TRUE(fs::exists(kept)) << kept;
  for (const fs::path& swept : {of_dead, never_began}) EXPECT_FALSE(fs::exists(swept)) << swept;
}

// Others can write to the folder that holds the run: what they put there stops nobody and is not
// touched.
TEST(HeartbeatFolder, WhatOthersPutThereIsPassedOver) {
  const test::Scratch scratch;
  Seen dead = this_process(launcher_rank);
  dead.started += 1;
  const auto folder = [&](const std::string& name) {
    fs::create_directories(scratch / name);
    return scratch / name;
  };
  const fs::path pipe = folder(".ranks-pipe"), endless = folder(".ranks-zero"),
                 large = folder(".ranks-large"), real = folder("real");
  ASSERT_EQ(::mkfifo((pipe / "rank--1").c_str(), 0666), 0);
  ASSERT_EQ(::mkfifo((pipe / "verdict").c_str(), 0666), 0);
  fs::create_symlink("/dev/zero", endless / "rank--1");
  HeartbeatFolder(large).write(dead);
  std::ofstream(large / "rank--1", std::ios::app) << std::string(1 << 20, ' ');
  HeartbeatFolder(real).write(dead);
  fs::create_directory_symlink("real", scratch / ".ranks-link");
  ::alarm(20);  // what waits for a writer waits for ever
  sweep_heartbeat_folders(scratch.folder());
  EXPECT_FALSE(HeartbeatFolder(pipe).verdict());
  EXPECT_FALSE(HeartbeatFolder(endless).read(launcher_rank));
  ::alarm(0);
  for (const fs::path& kept : {pipe, endless, large, real, scratch / ".ranks-link"})
    EXPECT_TRUE(fs::exists(kept)) << kept;
  if (::geteuid() != 0) return;  // only then can a test make folders and records of somebody else
  const fs::path theirs = folder(".ranks-theirs");
  HeartbeatFolder(theirs).write(dead);
  HeartbeatFolder(real).write(this_process(4));
  ASSERT_TRUE(HeartbeatFolder(real).read(4));
  for (const fs::path& path : {theirs, theirs / "rank--1", real / "rank-4"})
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  sweep_heartbeat_folders(scratch.folder());
  EXPECT_TRUE(fs::exists(theirs));
  EXPECT_FALSE(HeartbeatFolder(real).read(4)) << "a record that the folder's owner did not write";
}

}  // namespace
