// Which cores the ranks of a machine keep to: how a machine is shared out, and what a job says of
// it.
#include "ranks/placement.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <set>

#include "base/threads.h"
#include "cluster/place.h"

namespace tessera::test::placement_test {
namespace {

// Two NUMA nodes of four cores with two hyperthreads each, numbered as Linux does.
std::vector<Cpu> two_nodes() {
  std::vector<Cpu> out;
  for (int cpu = 0; cpu < 16; ++cpu) out.push_back({cpu, cpu % 8 / 4, cpu % 8});
  return out;
}

TEST(Placement, RanksKeepToTheirNumaNodes) {
  using Shares = std::vector<std::vector<int>>;
  const std::vector<int> first = {0, 1, 2, 3, 8, 9, 10, 11}, second = {4, 5, 6, 7, 12, 13, 14, 15};
  EXPECT_EQ(run::share_out(two_nodes(), 2, false), (Shares{first, second}));
  EXPECT_EQ(run::share_out(two_nodes(), 4, false), (Shares{first, first, second, second}));
  EXPECT_EQ(run::share_out(two_nodes(), 4, true),
            (Shares{{0, 1, 8, 9}, {2, 3, 10, 11}, {4, 5, 12, 13}, {6, 7, 14, 15}}));
  EXPECT_EQ(run::share_out(two_nodes(), 1, true).at(0).size(), 16u);
  EXPECT_EQ(run::share_out(two_nodes(), 8, true).at(7), (std::vector<int>{7, 15}));
  EXPECT_TRUE(run::share_out(two_nodes(), 9, true).empty()) << "more ranks than cores";
  EXPECT_EQ(run::cpu_list(first), "0-3,8-11");
}

TEST(Placement, NoTwoRanksShareACore) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    std::set<int> seen;
    for (const std::vector<int>& share : run::share_out(two_nodes(), ranks, true))
      for (const int cpu : share) EXPECT_TRUE(seen.insert(cpu).second) << cpu << " of " << ranks;
    EXPECT_EQ(seen.size(), 16u) << ranks;
  }
}

TEST(Placement, AJobSaysWhereItsRanksAre) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path out = scratch() / "placed";
  for (const std::string how : {"cores", "none"}) {
    const Result job = tessera::test::run(
        "train --model vit_micro --set model.depth=1 --set data.train_size=64 --set "
        "data.test_size=16 --global-batch 8 --threads 1 --np 2 --steps 2 --fresh --set "
        "run.place=" +
        how + " --out " + out.string());
    EXPECT_EQ(job.code, 0) << job.err;
    const auto shares = tessera::run::share_out(tessera::own_cpus(), 2, true);
    const std::string expected =
        how == "none"    ? "; cores: not placed (run.place = \"none\")"
        : shares.empty() ? "; cores: not placed (more ranks than cores)"
                         : "; cores: rank 0 on " + tessera::run::cpu_list(shares[0]) +
                               ", rank 1 on " + tessera::run::cpu_list(shares[1]) + "\n";
    EXPECT_TRUE(says(job.out + job.err, expected)) << expected << job.out << job.err;
    const std::string kept = json::parse(read(out / "summary.json"))["placement"];
    EXPECT_EQ(kept.find("cores: "), 0u) << kept;
    EXPECT_EQ(says(kept, "not placed"), how == "none" || shares.empty()) << kept;
  }
}

// Takes a variable away for as long as it lives.
class Without {
 public:
  explicit Without(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) value_ = value;
    ::unsetenv(name);
  }
  ~Without() {
    if (value_) ::setenv(name_, value_->c_str(), 1);
  }

 private:
  const char* name_;
  std::optional<std::string> value_;
};

// Like mpirun, which refuses more ranks than slots, every verb with ranks wants to be asked.
TEST(Placement, MoreRanksThanCoresMustBeAskedFor) {
  const Without open_mpi("OMPI_MCA_rmaps_base_oversubscribe"),
      prrte("PRTE_MCA_rmaps_default_mapping_policy");
  const std::string cores = std::to_string(available_cores()),
                    out = " --out " + (scratch() / "crowd").string(),
                    command =
                        "train --model vit_micro --set model.depth=1 --set data.train_size=1024 "
                        "--set data.test_size=16 --steps 1 --quiet --comm local --global-batch ";
  const std::string many = std::to_string(2 * available_cores());
  const Result refused = tessera::test::run(command + many + " --np " + many + out);
  EXPECT_EQ(refused.code, 2) << refused.err;
  EXPECT_TRUE(says(refused.err, many + " ranks x 1 thread on " + cores) &&
              says(refused.err, "--oversubscribe starts them all the same"))
      << refused.err;
  const Result threads = tessera::test::run(command + "16 --np 2 --threads " + many + out);
  EXPECT_EQ(threads.code, 2) << threads.err;
  EXPECT_TRUE(says(threads.err, "2 ranks x " + many + " threads on " + cores)) << threads.err;
  const Result asked =
      tessera::test::run(command + "16 --np 2 --oversubscribe --threads " + many + out);
  EXPECT_EQ(asked.code, 0) << asked.err;
  EXPECT_TRUE(says(asked.err, "warning: 2 ranks x")) << asked.err;
  const Result other = tessera::test::run("bench comm --np " + many);
  EXPECT_EQ(other.code, 2) << other.err;
  EXPECT_TRUE(says(other.err, "--oversubscribe starts them all the same")) << other.err;
  for (const std::string verb : {"train", "eval", "predict", "bench comm", "bench infer"})
    EXPECT_TRUE(says(tessera::test::run("help " + verb).out, "--oversubscribe")) << verb;
}

}  // namespace
}  // namespace tessera::test::placement_test
