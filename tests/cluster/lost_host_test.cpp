// A host is lost and comes back. The hosts are made up: what mpirun calls instead of ssh starts
// everything on this machine, under the name of the host, and fails for one that is down. The
// losses are those of a run that was given the same sequence of layouts by hand.
//
// The hosts have addresses for names, of a range that no machine has (RFC 1112: class E): a name
// would make each mpirun ask the machine's name server, and wait for it. How long an answer may
// take is no part of the tests: a host that is down fails at once, and the other one has minutes.
#include <gtest/gtest.h>

#include "cluster/place.h"

namespace tessera::test::lost_host_test {
namespace {

const std::string first = "240.0.0.1", second = "240.0.0.2";

const std::string steps =
    " --model vit_micro --set model.depth=1 --set data.train_size=96 --set data.test_size=16 "
    "--global-batch 32 --threads 1 --set run.eval_every=0 --set checkpoint.every=1 --set "
    "checkpoint.keep=100000 --set checkpoint.keep_best=false --set parallel.hang_s=4 --set "
    "run.host_wait_s=0 --quiet --steps ";

class Hosts {
 public:
  explicit Hosts(const Place& place) : place_(place.folder) {
    // MPICH's ssh has an option before the host.
    write(agent(), "#!/bin/sh\n[ $1 != -x ] || shift\nhost=$1\nshift\n[ ! -e " + place_.string() +
                       "/down-$host ] || exit 255\nexport TESSERA_HOST=$host TMPDIR=" +
                       place_.string() + "/tmp-$host\nmkdir -p $TMPDIR\nexec sh -c \"$*\"\n");
    fs::permissions(agent(), fs::perms::owner_all);
    write(file(), first + " slots=1\n" + second + " slots=1\n");
    for (const auto& [name, value] : variables()) {
      if (const char* given = std::getenv(name)) given_.emplace_back(name, given);
      ::setenv(name, value.c_str(), 1);
    }
  }
  ~Hosts() {
    for (const auto& [name, value] : variables()) ::unsetenv(name);
    for (const auto& [name, value] : given_) ::setenv(name, value.c_str(), 1);
    for (const std::string& host : {first, second}) kill_all(host);
  }

  fs::path file() const { return place_ / "hosts"; }
  void lose(const std::string& host) {
    write(down(host), "");
    kill_all(host);
  }
  void give_back(const std::string& host) { fs::remove(down(host)); }

 private:
  std::vector<std::pair<const char*, std::string>> variables() const {
    return {// A machine may be set up to start daemons in another way, or on no other host at all.
            {"OMPI_MCA_plm", "rsh"},
            {"OMPI_MCA_plm_rsh_agent", agent()},
            {"OMPI_MCA_btl", "tcp,self"},
            // Open MPI leaves the loopback out by itself; a machine may have no other network.
            {"OMPI_MCA_btl_tcp_if_include", "127.0.0.0/8"},
            {"HYDRA_LAUNCHER", "ssh"},
            {"HYDRA_LAUNCHER_EXEC", agent()},
            {"TESSERA_HOST_ANSWERS_S", "240"}};
  }
  fs::path agent() const { return place_ / "agent"; }
  fs::path down(const std::string& host) const { return place_ / ("down-" + host); }
  // Whatever was started there.
  void kill_all(const std::string& host) const {
    std::error_code error;
    const std::string mark = "TMPDIR=" + (place_ / ("tmp-" + host)).string();
    for (const auto& entry : fs::directory_iterator("/proc", error)) {
      const int pid = std::atoi(entry.path().filename().c_str());
      if (pid > 1 && (read(entry.path() / "environ") + '\0').find(mark + '\0') != std::string::npos)
        ::kill(pid, SIGKILL);
    }
  }

  fs::path place_;
  std::vector<std::pair<const char*, std::string>> given_;  // as they were before
};

// The run in the other folder, with the layouts of `place`'s run, one after the other.
void by_hand(const Place& place, const fs::path& out, const std::string& length) {
  const json all = json::parse(read(place.out() / "env.json"), nullptr, false)["segments"];
  const std::vector<std::string> layouts = {" --np 2", " --np 1 --accumulate 2", " --np 2"};
  ASSERT_LE(all.size(), layouts.size()) << all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i > 0) {  // forget what came after the step that this start went on from
      for (const char* name : {"summary.json", "weights.safetensors"}) fs::remove(out / name);
      std::vector<fs::path> later;
      for (const auto& entry : fs::directory_iterator(out / "ckpt")) {
        const std::string name = entry.path().filename();
        if (name.starts_with("step-") &&
            std::atoll(name.c_str() + 5) > all[i]["after_step"].get<long long>())
          later.push_back(entry.path());
      }
      for (const fs::path& path : later) fs::remove_all(path);
    }
    const Result r = run("train" + steps + length + layouts[i] + " --out " + out.string());
    ASSERT_EQ(r.code, 0) << r.err;
  }
}

// A job that has ended says no more.
bool comes_to_say(const Place& place, const Process& job, const std::string& text) {
  const auto said = [&] { return says(place.said(), text); };
  return wait_until([&] { return said() || job.ended(); }) && said();
}

void lose_a_host(const std::string& name, const std::string& length, bool comes_back) {
  Place place(name);
  const fs::path reference = scratch() / (name + "_by_hand");
  {
    Hosts hosts(place);
    Process job("train" + steps + length + " --np 1:2 --restarts 2 --hostfile " +
                    hosts.file().string() + " --out " + place.out().string(),
                place.log);
    ASSERT_TRUE(place.reached(6, job)) << place.said();
    hosts.lose(second);
    ASSERT_TRUE(comes_to_say(place, job, "restart 1: in ")) << place.said();
    if (comes_back) {
      hosts.give_back(second);
      ASSERT_TRUE(comes_to_say(place, job, "answers again")) << place.said();
    }
    EXPECT_EQ(job.wait(), 0) << place.said();
  }
  const std::string log = place.said();
  EXPECT_TRUE(says(log, second + " does not answer (rank 1): it is lost or cut off\nrestart 1"))
      << log;
  EXPECT_TRUE(
      says(log, "restart 1 of 2: from the newest checkpoint, 1 of 2 ranks, without " + second +
                    ", which does not answer; dp 1 instead of 2, 2 micro-batches instead of 1, "
                    "32 samples an update as before"))
      << log;
  EXPECT_EQ(says(log, "from the newest checkpoint, 2 of 2 ranks"), comes_back) << log;
  EXPECT_EQ(segments(place.out()), comes_back ? 3u : 2u);
  // The command that asked for two ranks finds its run finished.
  const Result again = run("train" + steps + length + " --np 2 --out " + place.out().string());
  EXPECT_EQ(again.code, 0) << again.err;
  by_hand(place, reference, length);
  EXPECT_EQ(losses(place.out()), losses(reference));
  EXPECT_TRUE(read(place.out() / "weights.safetensors") == read(reference / "weights.safetensors"));
}

TEST(LostHost, TheJobGoesOnWithTheOthers) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  lose_a_host("lost_host", "120", false);
}

TEST(Long, AHostThatComesBackIsTakenInAgain) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  ::setenv("TESSERA_ASK_HOSTS_S", "2", 1);
  lose_a_host("host_back", "1000", true);
  ::unsetenv("TESSERA_ASK_HOSTS_S");
}

TEST(LostHost, TooFewRanksEndTheJob) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  Place place("too_few");
  Hosts hosts(place);
  Process job("train" + steps + "120 --np 2:2 --restarts 2 --hostfile " + hosts.file().string() +
                  " --out " + place.out().string(),
              place.log);
  ASSERT_TRUE(place.reached(6, job)) << place.said();
  hosts.lose(second);
  EXPECT_EQ(job.wait(), 7) << place.said();
  EXPECT_TRUE(says(place.said(), second + " does not answer (rank 1)")) << place.said();
  EXPECT_TRUE(says(place.said(),
                   "the hosts that answer have room for 1 of 2 ranks, and fewer than "
                   "2 cannot go on"))
      << place.said();
}

// Also where no restart is left it is named.
TEST(LostHost, IsNamedWithoutRestarts) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  Place place("no_restart");
  Hosts hosts(place);
  Process job("train" + steps + "120 --np 2 --hostfile " + hosts.file().string() + " --out " +
                  place.out().string(),
              place.log);
  ASSERT_TRUE(place.reached(6, job)) << place.said();
  hosts.lose(first);
  EXPECT_EQ(job.wait(), 7) << place.said();
  EXPECT_TRUE(says(place.said(), first + " does not answer (rank 0)")) << place.said();
  EXPECT_FALSE(says(place.said(), second + " does not")) << place.said();
}

}  // namespace
}  // namespace tessera::test::lost_host_test
