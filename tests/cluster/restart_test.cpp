// Jobs that start themselves again, from outside: ranks are killed and stopped, a second time while
// the job recovers, the job goes on by itself to the bits of a run
// that nobody disturbed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <regex>
#include <set>

#include "cluster/place.h"

namespace tessera::test::restart_test {
namespace {

const std::string steps =
    " --model vit_micro --set model.depth=1 --set model.dropout=0.1 --set data.flip=true --set "
    "data.train_size=88 --set data.test_size=16 --global-batch 32 --threads 1 --set "
    "run.eval_every=5 --set checkpoint.every=2 --set checkpoint.keep=1000 --set parallel.hang_s=4 "
    "--quiet --epochs 40 ";

struct Whole {
  std::string weights;
  std::vector<std::string> losses;
};
const Whole& whole(int ranks) {
  static std::map<int, Whole> known;
  Whole& w = known[ranks];
  if (!w.weights.empty()) return w;
  const fs::path out = scratch() / ("restart_whole_" + std::to_string(ranks));
  EXPECT_EQ(run("train" + steps + "--np " + std::to_string(ranks) + " --out " + out.string()).code,
            0);
  return w = {read(out / "weights.safetensors"), losses(out)};
}

void expect_same(const Place& place, const Whole& expected) {
  EXPECT_EQ(losses(place.out()), expected.losses);
  EXPECT_TRUE(read(place.out() / "weights.safetensors") == expected.weights);
  EXPECT_TRUE(place.pulses().empty()) << "folders of heartbeats are left";
}

// In a folder with an older run: --fresh counts once.
TEST(Restarts, ALostRankAndASecondWhileTheJobRecovers) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const Whole& undisturbed = whole(2);
  Place place("restart_twice");
  ASSERT_EQ(run("train" + steps + "--seed 5 --np 2 --out " + place.out().string()).code, 0);
  Process job("train" + steps + "--np 2 --fresh --restarts 3 --out " + place.out().string(),
              place.log);
  const int first = place.pid_of(1);
  ASSERT_TRUE(place.opened() && place.reached(8, job)) << place.said();
  const std::set<std::string> before = place.pulses();
  ::kill(first, SIGKILL);
  const int second = place.pid_of(0, before);  // as soon as it is there: the job has just started
  ASSERT_GT(second, 0) << place.said();
  ::kill(second, SIGSEGV);
  EXPECT_EQ(job.wait(), 0) << place.said();
  const std::string log = place.said();
  EXPECT_TRUE(says(log, "error: rank 1 (") && says(log, "killed from outside (SIGKILL)")) << log;
  EXPECT_TRUE(says(log, "error: rank 0 (") && says(log, "segmentation fault")) << log;
  EXPECT_TRUE(says(log, "restart 1 of 3: from the newest checkpoint, 2 of 2 ranks")) << log;
  EXPECT_TRUE(says(log, "restart 2 of 3: ")) << log;
  EXPECT_TRUE(std::regex_search(
      log, std::regex("restart 2: in step [0-9]+ again; lost [0-9.]+ s: [0-9.]+ s until the job "
                      "had ended, [0-9.]+ s to start, ")))
      << log;
  EXPECT_TRUE(says(read(place.out() / "log.txt"), "restart 2 of 3: ")) << "also in the run's log";
  expect_same(place, undisturbed);
  EXPECT_GT(segments(place.out()), 1u) << "the second start went on, it did not begin anew";
}

TEST(Restarts, AHangThatComesBackEndsTheJobWhenNoneAreLeft) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  Place place("restart_hang");
  ::setenv("TESSERA_HANG", "1:5", 1);
  Process job(
      "train" + steps + "--np 2 --restarts 1 --set parallel.hang_s=3 --out " + place.out().string(),
      place.log);
  ::unsetenv("TESSERA_HANG");
  EXPECT_EQ(job.wait(), 6) << place.said();
  const std::string log = place.said();
  EXPECT_TRUE(says(log, "error: rank 1 (") && says(log, "restart 1 of 1: ")) << log;
  EXPECT_FALSE(says(log, "restart 2")) << log;
  for (const char* number : {"1", "2"}) {
    const std::string dump = read(place.out() / ("hang-" + std::string(number) + ".txt"));
    EXPECT_EQ(dump.find("verdict: rank 1 ("), 0u) << dump;
    EXPECT_TRUE(says(dump, "rank 1 waits for nobody")) << dump;
    EXPECT_TRUE(std::regex_search(dump, std::regex("rank 0 waits in .* for rank 1"))) << dump;
    EXPECT_TRUE(says(dump, "hang_if_asked")) << "the function that it is in\n" << dump;
    EXPECT_TRUE(says(dump, "the operations with others that ended last:")) << dump;
    EXPECT_TRUE(says(log, "hang-" + std::string(number) + ".txt shows")) << log;
  }
}

TEST(Restarts, AStoppedRankIsReplacedAndOneRankAloneToo) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  for (const int ranks : {1, 2}) {
    const Whole& undisturbed = whole(ranks);
    Place place("restart_stopped_" + std::to_string(ranks));
    Process job("train" + steps + "--set parallel.hang_s=3 --restarts 1 --np " +
                    std::to_string(ranks) + " --out " + place.out().string(),
                place.log);
    const int pid = place.pid_of(ranks - 1);
    ASSERT_TRUE(place.reached(4, job)) << place.said();
    ::kill(pid, ranks == 1 ? SIGKILL : SIGSTOP);
    EXPECT_EQ(job.wait(), 0) << place.said();
    EXPECT_TRUE(says(place.said(), ranks == 1 ? "SIGKILL" : "is stopped (SIGSTOP")) << place.said();
    expect_same(place, undisturbed);
    const std::string dump = read(place.out() / "hang-1.txt");
    EXPECT_EQ(says(dump, "rank 1 (") && says(dump, "thread "), ranks == 2) << dump;
  }
}

// Asked to stop, a job with restarts left ends with 75 like any other; the next start goes on.
TEST(Restarts, ARequestToStopIsNoFailure) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  for (const int signal : {SIGTERM, SIGUSR1}) {
    Place place("restart_stop_" + std::to_string(signal));
    const std::string command =
        "train" + steps + "--np 2 --restarts 3 --out " + place.out().string();
    Process job(command, place.log);
    ASSERT_TRUE(place.reached(3, job)) << place.said();
    job.signal(signal);
    EXPECT_EQ(job.wait(), 75) << place.said();
    EXPECT_FALSE(says(place.said(), "restart")) << place.said();
    EXPECT_EQ(run(command).code, 0);
    expect_same(place, whole(2));
  }
}

// Many more ranks than cores: one of them is killed, another one stopped.
TEST(Long, ThirtyTwoRanks) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const std::string many = "train" + steps +
                           "--set checkpoint.every=5 --set parallel.hang_s=30 --np 32 "
                           "--restarts 3 --out ";
  const fs::path reference = scratch() / "thirty_two_whole";
  ASSERT_EQ(run(many + reference.string()).code, 0);
  Place place("thirty_two");
  Process job(many + place.out().string(), place.log);
  const int killed = place.pid_of(31);
  ASSERT_TRUE(place.opened() && place.reached(8, job)) << place.said();
  const std::set<std::string> before = place.pulses();
  ::kill(killed, SIGKILL);
  const int stopped = place.pid_of(17, before);
  ASSERT_GT(stopped, 0) << place.said();
  ASSERT_TRUE(place.reached(14, job)) << place.said();
  ::kill(stopped, SIGSTOP);
  EXPECT_EQ(job.wait(), 0) << place.said();
  const std::string log = place.said();
  EXPECT_TRUE(says(log, "error: rank 31 (") && says(log, "killed from outside (SIGKILL)")) << log;
  EXPECT_TRUE(says(log, "error: rank 17 (") && says(log, "is stopped (SIGSTOP")) << log;
  EXPECT_TRUE(says(log, "restart 2 of 3: ") && !says(log, "restart 3 of 3")) << log;
  expect_same(place, {read(reference / "weights.safetensors"), losses(reference)});
}

int parent_of(int pid) {
  const std::string stat = read("/proc/" + std::to_string(pid) + "/stat");
  const auto name_ends = stat.rfind(')');
  int parent = -1;
  if (name_ends != stat.npos) std::sscanf(stat.c_str() + name_ends + 1, " %*c %d", &parent);
  return parent;
}

// Ranks, guards and mpirun are killed and stopped at random moments of one job, also while it
// starts: as often as TESSERA_RESTART_FAULTS says.
TEST(Long, ManyFaultsUnderRestarts) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const char* number = std::getenv("TESSERA_RESTART_FAULTS");
  const int wanted = number ? std::atoi(number) : 20;
  const std::string length = " --set parallel.hang_s=1 --steps " + std::to_string(120 * wanted);
  const std::string endless = steps.substr(0, steps.find("--epochs"));
  std::mt19937_64 random(7);
  const auto any = [&](int n) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(n));
  };
  const fs::path reference = scratch() / "faults_whole";
  ASSERT_EQ(run("train" + endless + length + " --np 2 --out " + reference.string()).code, 0);
  Place place("many_faults");
  Process job(
      "train" + endless + length + " --np 2 --restarts 100000 --out " + place.out().string(),
      place.log);
  std::map<std::string, int> kinds;
  std::set<std::string> before;
  for (int fault = 0; fault < wanted && !fs::exists(place.out() / "summary.json"); ++fault) {
    const int pid = place.pid_of(any(2), before);
    ASSERT_GT(pid, 0) << place.said();
    std::this_thread::sleep_for(std::chrono::milliseconds(any(3000)));
    before = place.pulses();
    const int guard = parent_of(pid), kind = any(5);
    if (kind < 3) ::kill(pid, kind == 0 ? SIGKILL : kind == 1 ? SIGSEGV : SIGSTOP);
    if (kind == 3) ::kill(guard, SIGKILL);
    if (kind == 4) ::kill(parent_of(guard), SIGKILL);
    ++kinds[std::vector<std::string>{"rank killed", "rank crashed", "rank stopped", "guard killed",
                                     "mpirun killed"}[static_cast<std::size_t>(kind)]];
  }
  EXPECT_EQ(job.wait(), 0) << place.said();
  EXPECT_EQ(losses(place.out()), losses(reference));
  EXPECT_TRUE(read(place.out() / "weights.safetensors") == read(reference / "weights.safetensors"));
  std::vector<double> lost;
  const std::string log = place.said();
  const std::regex sentence("again; lost ([0-9.]+) s");
  for (std::sregex_iterator at(log.begin(), log.end(), sentence), end; at != end; ++at)
    lost.push_back(std::stod((*at)[1]));
  std::sort(lost.begin(), lost.end());
  for (const auto& [kind, count] : kinds) std::printf("%s: %d\n", kind.c_str(), count);
  if (!lost.empty())
    std::printf("%zu recoveries, seconds lost: median %.1f, longest %.1f\n", lost.size(),
                lost[lost.size() / 2], lost.back());
}

}  // namespace
}  // namespace tessera::test::restart_test
