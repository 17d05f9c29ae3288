// A disk that lies, breaks or comes and goes does no harm to checkpoints: nothing is lost, nothing
// starts over by itself.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "files/disk.h"
#include "files/look.h"
#include "files/scratch.h"
#include "files/text.h"
#include "preload/fault.h"
#include "ranks/disk_calls.h"
#include "ranks/hang_analysis.h"
#include "session/init.h"
#include "train/run_folder.h"

namespace tessera::run::durability_test {
namespace {

namespace fs = std::filesystem;
using test::error_of;
using test::Scratch;

// An order of tests/preload/fault.h, for as long as it lives.
struct Fault {
  explicit Fault(const std::string& text) {
    ::setenv("TESSERA_FAULT", text.c_str(), 1);
    test::faults::read_order();
  }
  ~Fault() {
    ::unsetenv("TESSERA_FAULT");
    test::faults::read_order();
  }
};

config::Config small() {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 1;
  c.model.dim = 16;
  c.model.mlp = 24;
  c.model.heads = 2;
  c.batch = {4, 4, 1};
  return c;
}

struct RunFolder {
  const Scratch scratch;
  const fs::path folder = scratch / "run";
  Session session{small()};
  std::vector<std::string> notes;
  RunFolder() {
    session.load(initial_weights(3));
    fs::create_directories(folder);
    files::write_atomically(folder / "metrics.jsonl", "{}\n");
  }
  void save(std::int64_t step, std::int64_t keep = 9) {
    Saver saver(folder, {keep, false});
    Progress progress;
    progress.step = step;
    saver.save(session, progress, {}, folder / "metrics.jsonl");
    saver.wait();
  }
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> out;
    for (const CheckpointPath& c : checkpoints_in(folder)) out.push_back(c.step);
    return out;
  }
  std::optional<Progress> load() { return load_newest_checkpoint(folder, session, 100, notes); }
};

using Steps = std::vector<std::int64_t>;

TEST(Durability, AFolderThatCannotBeListedIsAnErrorAndNotANewRun) {
  RunFolder run;
  run.save(1);
  run.save(2);
  for (const int problem : {ESTALE, EACCES, EIO, EMFILE}) {
    const Fault fault("opendir /ckpt$ errno=" + std::to_string(problem));
    EXPECT_EQ(error_of([&] { run.load(); }).kind, ErrorKind::disk);
    EXPECT_EQ(error_of([&] { run.save(3, 1); }).kind, ErrorKind::disk);  // cannot say what is old
    fs::remove_all(run.folder / "ckpt/step-3");
  }
  EXPECT_EQ(run.steps(), (Steps{2, 1}));
  ASSERT_TRUE(run.load());
  // A link to a disk that is not mounted.
  fs::rename(run.folder / "ckpt", run.scratch / "elsewhere");
  fs::create_directory_symlink(run.scratch / "unmounted/ckpt", run.folder / "ckpt");
  const Error error = error_of([&] { run.load(); });
  EXPECT_EQ(error.kind, ErrorKind::disk);
  EXPECT_NE(error.message.find("unmounted/ckpt, which is not there"), std::string::npos)
      << error.what();
  EXPECT_EQ(error_of([&] { checkpoints_in(run.folder); }).kind, ErrorKind::disk);
}

// An empty mount point looks like a folder without checkpoints; the run remembers that it had some.
TEST(Durability, CheckpointsThatAreGoneAreAnError) {
  RunFolder run;
  EXPECT_FALSE(run.load());
  run.save(1);
  fs::rename(run.folder / "ckpt", run.scratch / "elsewhere");
  fs::create_directory(run.folder / "ckpt");
  const Error error = error_of([&] { run.load(); });
  EXPECT_EQ(error.kind, ErrorKind::weights);
  EXPECT_NE(error.message.find("has written checkpoints"), std::string::npos) << error.what();
  fs::remove(run.folder / "ckpt");
  EXPECT_EQ(error_of([&] { run.load(); }).kind, ErrorKind::weights);
  fs::rename(run.scratch / "elsewhere", run.folder / "ckpt");
  EXPECT_TRUE(run.load());
}

TEST(Durability, WhatIsNewerThanTheOneLoadedStays) {
  RunFolder run;
  for (const int step : {2, 4, 6}) run.save(step);
  fs::resize_file(run.folder / "ckpt/step-6/rank-0.safetensors", 1000);
  ASSERT_EQ(run.load()->step, 4);
  run.save(5, 1);  // nobody said what is to become of the newer one
  EXPECT_EQ(run.steps(), (Steps{6, 5}));
  run.notes.clear();
  set_newer_aside(run.folder, 5, run.notes);
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_NE(run.notes[0].find("ckpt/aside-step-6"), std::string::npos) << run.notes[0];
  run.save(6, 1);
  EXPECT_EQ(run.steps(), (Steps{6}));
  EXPECT_EQ(fs::file_size(run.folder / "ckpt/aside-step-6/rank-0.safetensors"), 1000u);
  set_newer_aside(run.folder, 5, run.notes);
  EXPECT_TRUE(fs::exists(run.folder / "ckpt/aside-step-6-2/manifest.json"));
}

// Whatever cannot be flushed: Error(disk), and the older checkpoint stays although only one is
// kept.
TEST(Durability, WithoutAFlushNothingOldGoes) {
  RunFolder run;
  run.save(1, 1);
  for (const char* path : {"metrics.jsonl$", "/run$", "/ckpt$", ".part-step-2$", ".tmp$"}) {
    const Fault fault(std::string("fsync ") + path + " errno=" + std::to_string(EIO));
    const Error error = error_of([&] { run.save(2, 1); });
    EXPECT_EQ(error.kind, ErrorKind::disk) << path;
    EXPECT_NE(error.message.find("Input/output error"), std::string::npos) << error.what();
    EXPECT_TRUE(fs::exists(run.folder / "ckpt/step-1/manifest.json")) << path;
    fs::remove_all(run.folder / "ckpt/step-2");
  }
  {
    const Fault fault("fsync /ckpt$ errno=" +
                      std::to_string(EINVAL));  // a file system that cannot flush folders
    run.save(2, 1);
  }
  EXPECT_EQ(run.steps(), (Steps{2}));
  fs::remove(run.folder / "metrics.jsonl");
  EXPECT_EQ(error_of([&] { run.save(3, 1); }).kind, ErrorKind::disk);
  EXPECT_EQ(run.steps(), (Steps{2}));
}

// Readers beside a run that keeps one checkpoint: there always is one.
TEST(Durability, ReadersTakeTheNextOne) {
  RunFolder run;
  run.save(1, 1);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    for (std::int64_t step = 2; !stop; ++step) run.save(step, 1);
  });
  for (int i = 0; i < 150; ++i) {
    try {
      std::vector<std::string> notes;
      EXPECT_TRUE(newest_checkpoint(run.folder, notes));
      EXPECT_TRUE(notes.empty()) << notes[0];
    } catch (const Error& error) {
      ADD_FAILURE() << "look " << i << ": " << error.what();
    }
  }
  stop = true;
  writer.join();
}

TEST(Durability, OneAtATimeHoldsTheLock) {
  const Scratch scratch;
  FolderLock second;
  {
    FolderLock lock;
    lock.take(scratch.folder());
    EXPECT_TRUE(lock.held());
    EXPECT_EQ(error_of([&] { second.take(scratch.folder()); }).kind, ErrorKind::usage);
    EXPECT_FALSE(second.held());
    second.take(scratch / "nothing");
    EXPECT_FALSE(second.held());
  }
  second.take(scratch.folder());
  EXPECT_TRUE(second.held());
}

// The outer one of two calls inside each other counts; a heartbeat says where it is.
TEST(Durability, ACallToADiskIsInTheHeartbeat) {
  comm::Heartbeat heartbeat;
  HeartbeatDisk disk(heartbeat);
  const files::DiskObserver::Here told(&disk);
  EXPECT_EQ(heartbeat.look().disk, "");
  {
    const files::DiskCall outer("flushing", "/a/b/.part-step-4/rank-0.safetensors");
    EXPECT_EQ(heartbeat.look().disk, "flushing .part-step-4/rank-0.safetensors");
    { const files::DiskCall inner("writing", "x"); }
    EXPECT_EQ(heartbeat.look().disk, "flushing .part-step-4/rank-0.safetensors");
    EXPECT_EQ(what_it_does(heartbeat.look()), "starting, flushing .part-step-4/rank-0.safetensors");
  }
  EXPECT_EQ(heartbeat.look().disk, "");
  DiskCalls calls;
  const std::uint64_t before = calls.now().number;
  const files::DiskObserver::Here other(&calls);
  { const files::DiskCall call("writing", "x"); }
  EXPECT_EQ(calls.now().number, before + 2);
  EXPECT_EQ(heartbeat.look().disk, "");
}

}  // namespace
}  // namespace tessera::run::durability_test
