// Pure functions say what a job becomes on fewer ranks, how hosts are read, what a failure cost.
#include <gtest/gtest.h>

#include <chrono>

#include "config/flags.h"
#include "config/reader.h"
#include "config/shrink.h"
#include "files/scratch.h"
#include "files/text.h"
#include "ranks/hang_dump.h"
#include "ranks/hosts.h"
#include "ranks/restart.h"

namespace tessera::test::pure_test {
namespace {

config::Config loaded(const std::vector<std::string>& sets) {
  std::vector<config::Override> overrides;
  for (const std::string& set : sets) overrides.push_back(config::from_set(set));
  overrides.push_back(config::from_set("run.epochs=1"));
  return config::load_all(std::nullopt, overrides, config::Purpose::train, 0).config;
}

TEST(Shrink, TheBatchAndTheMicroBatchStay) {
  const config::Config whole = loaded({"batch.global=64", "parallel.dp=4"});
  const config::Config half = config::shrink(whole, 2);
  EXPECT_EQ(half.run.np, 2);
  EXPECT_EQ(half.parallel.dp, 2);
  EXPECT_EQ(half.batch.global, 64);
  EXPECT_EQ(half.batch.accumulate, 2);
  EXPECT_EQ(half.batch.micro, whole.batch.micro);
  EXPECT_EQ(config::as_asked(half), whole);
  EXPECT_EQ(config::shrink(half, 4), whole) << "back to all ranks";
  EXPECT_EQ(config::shrink_text(half),
            "dp 2 instead of 4, 2 micro-batches instead of 1, 64 samples an update as before");
  EXPECT_EQ(config::shrink_text(whole), "");
}

TEST(Shrink, WhatDoesNotDivideIsCutFiner) {
  const config::Config three = config::shrink(loaded({"batch.global=64", "parallel.dp=4"}), 3);
  EXPECT_EQ(three.batch.accumulate, 2);  // 4/3, rounded up: no rank gets more at a time
  EXPECT_LE(three.batch.micro, 16);
  const config::Config twice =
      config::shrink(loaded({"batch.global=64", "batch.accumulate=3", "parallel.dp=4"}), 1);
  EXPECT_EQ(twice.batch.accumulate, 12);
  const config::Config tiny = config::shrink(loaded({"batch.global=4", "parallel.dp=4"}), 1);
  EXPECT_EQ(tiny.batch.accumulate, 4);
  EXPECT_EQ(tiny.batch.micro, 1);
}

TEST(Shrink, OnlyWholeCopiesGoOn) {
  const config::Config c =
      loaded({"model.name=vit_micro", "parallel.dp=3", "parallel.tp=2", "batch.global=64"});
  EXPECT_EQ(config::ranks_of_a_copy(c), 2);
  EXPECT_EQ(config::fitting_ranks(c, 100), 6);
  EXPECT_EQ(config::fitting_ranks(c, 5), 4);
  EXPECT_EQ(config::fitting_ranks(c, 1), 0);
  config::Config least = c;
  least.run.np_min = 4;
  EXPECT_EQ(config::fitting_ranks(least, 5), 4);
  EXPECT_EQ(config::fitting_ranks(least, 3), 0);
}

TEST(Shrink, DevicesOfEachRankAndSharesOfEachCopy) {
  config::Config c = loaded({"batch.global=64", "parallel.dp=2", "parallel.weights=[3,1]"});
  const config::Config one = config::shrink(c, 1);
  EXPECT_TRUE(one.parallel.shares.list.empty());
  EXPECT_EQ(config::as_asked(one), c);
  c.run.device = "cuda,cpu";
  EXPECT_THROW(config::shrink(c, 1), Error);
}

TEST(Np, MinAndMax) {
  for (const config::Flag& flag : config::flags()) {
    if (flag.name != "--np") continue;
    const auto both = config::all_from_flag(flag, "2:4");
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(both[0].key + "=" + both[0].value, "run.np=4");
    EXPECT_EQ(both[1].key + "=" + both[1].value, "run.np_min=2");
    EXPECT_EQ(both[1].origin, "--np 2:4");
    EXPECT_EQ(config::all_from_flag(flag, "4").size(), 1u);
  }
  EXPECT_THROW(loaded({"run.np=2", "run.np_min=4"}), Error);
}

TEST(Hosts, BothForms) {
  using run::Host;
  const auto hosts = run::read_hosts(
      "# ours\nnode1 slots=4 max_slots=8\n\nnode2:2 # two\nnode3\nnode1 slots=1\n", "hosts");
  EXPECT_EQ(hosts, (std::vector<Host>{{"node1", 5}, {"node2", 2}, {"node3", 1}}));
  EXPECT_EQ(run::slots_of(hosts), 8);
  EXPECT_EQ(run::read_hosts(run::hostfile_text(hosts, true), "h"), hosts);
  EXPECT_EQ(run::read_hosts(run::hostfile_text(hosts, false), "h"), hosts);
}

// Without its list mpirun would start all ranks on this host.
TEST(Hosts, AListThatCannotBeWrittenIsSaid) {
  const Scratch scratch;
  const std::vector<run::Host> hosts = {{"node1", 2}, {"node2", 2}};
  const std::vector<std::string> words = run::write_hostfile(hosts, scratch.folder(), true);
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(run::read_hosts(files::read_text(words[1]), "h"), hosts);
  for (const std::filesystem::path& folder :
       {std::filesystem::path(), scratch / "nowhere", std::filesystem::path("/proc/self")}) {
    const Error error = error_of([&] { run::write_hostfile(hosts, folder, true); });
    EXPECT_EQ(error.kind, ErrorKind::disk) << folder << ": " << error.what();
  }
}

TEST(Hosts, WhatCannotBeReadIsSaidWithItsLine) {
  for (const std::string text :
       {"node1\nnode2 slots=none", "node1\nnode2 4", "node1\nnode2:0", "node1\n-x", "node1\n:3"}) {
    try {
      run::read_hosts(text, "hosts");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::usage);
      EXPECT_EQ(error.where, "hosts:2") << text;
    }
  }
  EXPECT_THROW(run::read_hosts("# nobody\n", "hosts"), Error);
}

TEST(Hosts, CountsOfSlurm) {
  EXPECT_EQ(run::slurm_counts("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(run::slurm_counts("4"), std::vector<int>{4});
  for (const char* bad : {"2(x3", "x", "2(x0)", "2,,3", "-1"})
    EXPECT_TRUE(run::slurm_counts(bad).empty()) << bad;
}

TEST(Recovery, CountsFromTheLastStepThatMoved) {
  const auto at = [](double s) {
    return run::Recovery::Time() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                       std::chrono::duration<double>(s));
  };
  run::Recovery r;
  r.moved(-1, at(1));
  r.moved(7, at(10));
  r.moved(8, at(11));
  r.moved(8, at(13));
  EXPECT_EQ(r.back(), "");
  r.failed(1, at(14));
  r.moved(-1, at(15));
  r.moved(5, at(18));
  EXPECT_EQ(r.back(), "");
  r.moved(8, at(20));
  EXPECT_EQ(r.back(),
            "restart 1: in step 8 again; lost 9.0 s: 3.0 s until the job had ended, 4.0 s to "
            "start, 2.0 s for the 3 steps since the checkpoint");
  EXPECT_EQ(r.back(), "") << "it is said once";
  // Two failures, the second before the job was back: one sentence, from the first on.
  r.moved(9, at(21));
  r.failed(2, at(22));
  r.moved(6, at(23));
  r.failed(3, at(24));
  r.moved(6, at(26));
  r.moved(9, at(30));
  EXPECT_EQ(r.back(),
            "restart 3: in step 9 again; lost 9.0 s: 1.0 s until the job had ended, 4.0 s to "
            "start, 4.0 s for the 3 steps since the checkpoint");
  r.failed(4, at(40));
  EXPECT_EQ(r.ended(at(41)).find("restart 4: in step 9 again; lost 11.0 s"), 0u);
}

TEST(Dump, APartSaysWhatEndedLast) {
  comm::Heartbeat heartbeat;
  const int world = heartbeat.join("world", 0);
  for (int i = 0; i < 30; ++i) {
    const std::uint64_t number = heartbeat.enter(world, comm::Verb::all_reduce);
    heartbeat.wait(world, comm::Verb::all_reduce, number, "loss");
    heartbeat.leave(world, comm::Verb::all_reduce, number, "scope" + std::to_string(i));
  }
  heartbeat.wait(world, comm::Verb::barrier, heartbeat.enter(world, comm::Verb::barrier), "end");
  run::Seen seen;
  seen.rank = 3;
  seen.host = "node3";
  seen.pid = 33;
  const std::string part = run::dump_part(seen, heartbeat, "    here()\n");
  const auto has = [&](const std::string& text) { return part.find(text) != part.npos; };
  EXPECT_TRUE(has("rank 3 (node3, pid 33): in barrier 31 of world (end)")) << part;
  EXPECT_TRUE(has("group world (color 0): 31 operations entered, 30 left")) << part;
  EXPECT_TRUE(has("all_reduce 30 of world (scope29)")) << part;
  EXPECT_TRUE(has("all_reduce 7 of world (scope6)")) << "24 are kept\n" << part;
  EXPECT_FALSE(has("(scope5)")) << part;
  EXPECT_TRUE(has("where it is:\n    here()")) << part;
}

}  // namespace
}  // namespace tessera::test::pure_test
