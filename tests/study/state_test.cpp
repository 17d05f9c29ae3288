// The database of a study: what was finished survives kill -9 at any moment; what is damaged, or
// somebody else's, is refused and not touched.
#include "study/state.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "files/scratch.h"

namespace tessera::study::state_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Scratch;

RunRow finished(int i) {
  RunRow row;
  row.status = Status::done;
  row.attempts = i;
  row.wall = i * 0.1;
  row.exit_code = 0;
  row.record = "{\"i\":" + std::to_string(i) + "}";
  row.command = std::string(3000, 'c');
  row.folder = "runs/a";
  row.reason = "";
  row.machine = "m";
  row.started = 1e9 + i;
  row.ended = 2e9;
  return row;
}

TEST(State, WhatIsPutIsFound) {
  const Scratch scratch;
  RunRow row = finished(3);
  row.reason = std::string("a\0b'\"\n", 6);
  row.pid = 12;
  row.pid_started = (1ull << 62) + 1;
  {
    State state(scratch.folder());
    EXPECT_FALSE(state.find("x"));
    state.put("x", row);
    state.set("plan", "one");
    state.set("plan", "two");
  }
  State state(scratch.folder(), true);
  const auto found = state.find("x");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->status, Status::done);
  EXPECT_EQ(found->attempts, 3);
  EXPECT_EQ(found->wall, 3 * 0.1);
  EXPECT_EQ(found->pid_started, row.pid_started);
  EXPECT_EQ(found->reason, row.reason);
  EXPECT_EQ(found->record, row.record);
  EXPECT_EQ(found->machine, "m");
  EXPECT_EQ(state.get("plan"), "two");
  EXPECT_EQ(state.get("nothing"), "");
  EXPECT_EQ(state.all().size(), 1u);
  State writer(scratch.folder());
  writer.put("y", row);
  writer.remove("x");
  writer.remove("z");
  EXPECT_FALSE(writer.find("x"));
  EXPECT_TRUE(writer.find("y"));
}

// A child writes rows and tells through a pipe which of them are written; it is killed in the
// middle.
TEST(State, KillLosesNothingThatWasFinished) {
  const Scratch scratch;
  std::mt19937_64 random(5);
  int told = 0;
  for (int round = 0; round < 20; ++round) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      State state(scratch.folder());
      for (int i = told + 1; i < 100000; ++i) {
        state.put("run" + std::to_string(i), finished(i));
        state.set("last", std::to_string(i));
        if (::write(ends[1], &i, sizeof(i)) != sizeof(i)) break;
      }
      ::_exit(1);
    }
    ::close(ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (int i = 0; ::read(ends[0], &i, sizeof(i)) == sizeof(i);) told = i;
    ::close(ends[0]);
    const State state(scratch.folder());
    const auto all = state.all();
    ASSERT_GE(static_cast<int>(all.size()), told);
    for (int i = 1; i <= told; ++i) {
      const auto row = all.find("run" + std::to_string(i));
      ASSERT_NE(row, all.end()) << i;
      ASSERT_EQ(row->second.record, finished(i).record);
    }
    told = static_cast<int>(all.size());
  }
  EXPECT_GT(told, 0);
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(State, DamagedAndForeignFilesAreRefusedAndKept) {
  const Scratch scratch;
  {
    State state(scratch.folder());
    for (int i = 0; i < 40; ++i) state.put("run" + std::to_string(i), finished(i));
  }
  const fs::path path = scratch / "study.db";
  const std::string sound = bytes_of(path);
  ASSERT_GT(sound.size(), 50'000u);
  const auto refused = [&](const std::string& bytes, const char* what) {
    std::ofstream(path, std::ios::binary) << bytes;
    const Error error = error_of([&] {
      State state(scratch.folder());
      state.all();
    });
    EXPECT_EQ(error.kind, ErrorKind::weights) << what << ": " << error.what();
    EXPECT_NE(std::string(error.what()).find("study.db"), std::string::npos) << error.what();
    EXPECT_TRUE(bytes_of(path) == bytes) << what << " was overwritten";
  };
  refused("this is no database, but it is long enough to look at" + std::string(5000, '.'), "text");
  refused(sound.substr(0, sound.size() / 2), "a half");
  std::string damaged = sound;
  for (std::size_t i = 8192; i < 20'000; ++i) damaged[i] = static_cast<char>(0xa5 ^ (i * 31));
  refused(damaged, "damage inside");
  std::string other = sound;
  other[63] = 9;  // user_version, big-endian, at byte 60
  refused(other, "another version");
  std::string foreign = sound;
  foreign[70] = 1;  // application_id at byte 68
  refused(foreign, "another program's");
  std::ofstream(path, std::ios::binary) << sound;
  EXPECT_EQ(State(scratch.folder()).all().size(), 40u);
  std::ofstream(path, std::ios::binary) << other;
  EXPECT_NE(error_of([&] {
              State state(scratch.folder(), true);
            }).hint.find("`tessera study FILE --fresh`"),
            std::string::npos);
  const Scratch empty;
  EXPECT_EQ(error_of([&] { State state(empty.folder(), true); }).kind, ErrorKind::usage);
  EXPECT_FALSE(fs::exists(empty / "study.db"));
}

// A journal that was not taken away: its writer was killed. Who only reads must be able to read.
TEST(State, AReaderUndoesWhatAKilledWriterBegan) {
  const Scratch scratch;
  State(scratch.folder()).put("x", finished(1));
  std::string journal(512, '\0');
  const unsigned char magic[] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
  std::copy(std::begin(magic), std::end(magic), journal.begin());
  std::ofstream(scratch / "study.db-journal", std::ios::binary) << journal;
  EXPECT_EQ(State(scratch.folder(), true).all().size(), 1u);
  EXPECT_FALSE(fs::exists(scratch / "study.db-journal"));
}

TEST(State, OneStudyInAFolder) {
  const Scratch scratch;
  EXPECT_FALSE(is_locked(scratch.folder()));
  int ends[2], back[2];
  ASSERT_EQ(::pipe(ends) | ::pipe(back), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const StudyLock lock(scratch.folder());
    char byte = 'x';
    if (::write(ends[1], &byte, 1) == 1 && ::read(back[0], &byte, 1) == 1) ::_exit(0);
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  EXPECT_TRUE(is_locked(scratch.folder()));
  const Error error = error_of([&] { StudyLock second(scratch.folder()); });
  EXPECT_EQ(error.kind, ErrorKind::usage);
  EXPECT_NE(error.message.find("pid " + std::to_string(child)), std::string::npos) << error.message;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int end : {ends[0], ends[1], back[0], back[1]}) ::close(end);
  const StudyLock mine(scratch.folder());  // a killed one holds nothing
  EXPECT_TRUE(is_locked(scratch.folder()));
}

// A user who can write to the folder must not make a study write elsewhere, or wait.
TEST(State, LinksAndPipesAreRefused) {
  const Scratch scratch;
  std::ofstream(scratch / "precious") << "mine";
  fs::create_symlink("precious", scratch / "study.lock");
  EXPECT_EQ(error_of([&] { StudyLock lock(scratch.folder()); }).kind, ErrorKind::disk);
  EXPECT_EQ(fs::file_size(scratch / "precious"), 4u);
  EXPECT_FALSE(is_locked(scratch.folder()));
  fs::remove(scratch / "study.lock");
  ASSERT_EQ(::mkfifo((scratch / "study.lock").c_str(), 0666) |
                ::mkfifo((scratch / "study.db").c_str(), 0666),
            0);
  ::alarm(20);  // what waits for a writer waits for ever
  EXPECT_FALSE(is_locked(scratch.folder()));
  for (const bool read_only : {true, false})
    EXPECT_EQ(error_of([&] { State state(scratch.folder(), read_only); }).kind, ErrorKind::weights);
  ::alarm(0);
  fs::remove(scratch / "study.db");
  fs::create_symlink("precious", scratch / "study.db");
  EXPECT_EQ(error_of([&] { State state(scratch.folder()); }).kind, ErrorKind::weights);
}

}  // namespace
}  // namespace tessera::study::state_test
