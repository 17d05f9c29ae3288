// Checkpoints in memory: a lost rank and a lost host go on from them, to the bits of a run that
// nobody disturbed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "checkpoint/memory_level.h"
#include "cluster/place.h"
#include "comm/comm.h"
#include "files/text.h"
#include "ranks/memory_place.h"
#include "session/init.h"

namespace tessera::test::memory_test {
namespace {

using run::MemoryLevel;

// Checkpoints in memory that a test leaves; those of other jobs on this machine were there before.
class Memory : public testing::Test {
 protected:
  std::string left_in_memory() const {
    std::string out;
    for (const std::string& path : all())
      if (!before_.contains(path)) out += path + "\n";
    return out;
  }

 private:
  static std::set<std::string> all() {
    std::set<std::string> out;
    const std::string mine = "tessera-memory-" + std::to_string(::getuid()) + "-";
    for (const auto& entry : fs::directory_iterator("/dev/shm"))
      if (entry.path().filename().string().starts_with(mine)) out.insert(entry.path());
    return out;
  }
  const std::set<std::string> before_ = all();
};

TEST_F(Memory, APeerIsOnAnotherHost) {
  const std::vector<std::string> even = {"a", "a", "b", "b"}, odd = {"a", "b", "b"};
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(run::peer_of(rank, even), (rank + 2) % 4);
  EXPECT_EQ(run::peer_of(0, odd), 1);
  EXPECT_EQ(run::peer_of(1, odd), 0);
  EXPECT_EQ(run::peer_of(2, odd), 0);
  EXPECT_EQ(run::peer_of(0, {"a", "a"}), -1);
}

// Nothing is on disk when the rank is killed, and the job goes on from the step before.
TEST_F(Memory, ALostRankCostsTheStepsSinceTheCopy) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const std::string steps =
      " --model vit_micro --set model.depth=1 --set model.dropout=0.1 --set data.train_size=8800 "
      "--set data.test_size=16 --global-batch 32 --threads 1 --set run.eval_every=0 --set "
      "checkpoint.every=100000 --set checkpoint.keep_best=false --quiet --np 2 --steps 60 ";
  const fs::path whole = scratch() / "memory_whole";
  ASSERT_EQ(run("train" + steps + "--out " + whole.string()).code, 0);
  Place place("memory");
  Process job("train" + steps + "--restarts 2 --set checkpoint.memory_every=2 --out " +
                  place.out().string(),
              place.log);
  const int pid = place.pid_of(1);
  ASSERT_TRUE(place.reached(20, job)) << place.said();
  ::kill(pid, SIGKILL);
  EXPECT_EQ(job.wait(), 0) << place.said();
  const std::string log = read(place.out() / "log.txt");
  EXPECT_TRUE(says(log, "in memory; the newest on disk is none")) << log;
  const json env = json::parse(read(place.out() / "env.json"));
  ASSERT_EQ(env["segments"].size(), 2u) << env;
  EXPECT_GE(env["segments"][1].value("after_step", 0), 18) << env;
  EXPECT_EQ(losses(place.out()), losses(whole));
  EXPECT_TRUE(read(place.out() / "weights.safetensors") == read(whole / "weights.safetensors"));
  EXPECT_EQ(left_in_memory(), "");
}

config::Config sharded() {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 1;
  c.model.dim = 16;
  c.model.mlp = 24;
  c.model.heads = 2;
  c.batch = {8, 2, 1};
  c.parallel.dp = 4;
  c.parallel.zero = 1;
  c.run.np = 4;
  return c;
}

// Two ranks on each of two hosts, whose state is shared out; afterwards one host is empty.
TEST_F(Memory, AHostThatIsLostIsFoundOnTheOther) {
  const fs::path folder = scratch() / "memory_hosts";
  fs::create_directories(folder);
  files::write_atomically(folder / "metrics.jsonl", "{}\n");
  const run::MemoryName name(true);
  name.last(false);
  comm::run_local(4, [&](comm::Comm& world) {
    const run::Ranks ranks(&world);
    const std::string host = world.rank() < 2 ? "first" : "second";
    run::Session session(sharded(), {}, &world);
    session.load(run::initial_weights(3));
    run::Progress progress;
    std::vector<std::string> notes;
    {
      MemoryLevel level(ranks, 1, folder, host);
      EXPECT_TRUE(level.newest(-1, notes).empty());
      for (const int step : {1, 2, 3}) {
        progress.step = step;
        level.save(session, progress, nlohmann::json::object(), folder / "metrics.jsonl");
      }
    }
    const auto before = session.parameters(run::Weights::live);
    ranks.barrier();
    if (world.rank() == 0) {  // the second host is another one now
      fs::remove_all(run::memory_folder("second"));
      EXPECT_EQ(run::checkpoints_in(run::memory_folder("first")).size(), 2u);
      EXPECT_TRUE(fs::exists(run::memory_folder("first") / "ckpt/step-3/rank-3.safetensors"));
    }
    ranks.barrier();
    session.load(run::initial_weights(4));
    MemoryLevel level(ranks, 1, folder, host);
    EXPECT_TRUE(level.newest(3, notes).empty()) << "the disk has one as new";
    const fs::path found = level.newest(2, notes);
    EXPECT_EQ(found, run::memory_folder(host) / "ckpt/step-3") << notes.back();
    EXPECT_EQ(run::load_checkpoint(found, session, 100, notes).step, 3);
    EXPECT_TRUE(session.parameters(run::Weights::live) == before);
    // One that is damaged is passed over, and so is one of which a part is on no host.
    ranks.barrier();
    if (world.rank() == 0) fs::resize_file(found / "rank-1.safetensors", 100);
    ranks.barrier();
    EXPECT_TRUE(level.newest(2, notes).empty());
    EXPECT_TRUE(says(notes.back(), "passed over")) << notes.back();
    level.end();
  });
  EXPECT_EQ(left_in_memory(), "");
}

// Where /dev/shm has no room, as in many containers, the level ends with a note, and the run goes
// on.
TEST_F(Memory, ASmallDevShmEndsTheLevelAndNotTheRun) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  if (std::system("unshare -rm true 2>/dev/null") != 0)
    GTEST_SKIP() << "this machine lets nobody mount a small disk (unshare -rm)";
  Place place("small_shm");
  write(place.folder / "small.sh",
        "mount -t tmpfs -o size=256k tmpfs /dev/shm || exit 99\n"
        "export OMPI_MCA_btl=self,tcp\n" TESSERA_BINARY
        " train --model vit_micro --set model.depth=1 --set data.train_size=88 --set "
        "data.test_size=16 --global-batch 32 --threads 1 --steps 12 --np 1 --restarts 1 --set "
        "checkpoint.memory_every=2 --quiet --out " +
            place.out().string() + " >" + place.log.string() + " 2>&1\n");
  const int status =
      std::system(("unshare -rm sh " + (place.folder / "small.sh").string()).c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0) << place.said();
  const std::string log = read(place.out() / "log.txt");
  EXPECT_TRUE(std::regex_search(
      log, std::regex("note: no checkpoints in memory any more: /dev/shm/.*: the disk is too full: "
                      "[0-9]+ bytes are needed, [0-9]+ are free\n")))
      << log;
  EXPECT_TRUE(fs::exists(place.out() / "weights.safetensors"));
}

}  // namespace
}  // namespace tessera::test::memory_test
