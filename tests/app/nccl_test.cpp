// --comm nccl from outside, on one card with NCCL itself: one rank runs, and two that would share
// the card are refused before any of them starts.
#include <gtest/gtest.h>

#include <cstdlib>

#include "app/binary.h"

namespace tessera::test::nccl_test {
namespace {

const std::string small =
    " --model vit_micro --set model.depth=1 --set data.train_size=32 --set data.test_size=16 "
    "--global-batch 16 --epochs 1 --threads 1 --quiet --device cuda --comm nccl --fresh ";

class OnCardNcclJobs : public testing::Test {
 protected:
  void SetUp() override {
    const json facts = json::parse(run("version --verbose --json").out, nullptr, false);
    if (!facts.is_object() || !facts.contains("card 0"))
      GTEST_SKIP() << "no card here: " << facts.dump();
    if (facts["nccl"].get<std::string>().find("NCCL") != std::string::npos)
      GTEST_SKIP() << "no NCCL here: " << facts["nccl"];
    ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  }
  void TearDown() override { ::unsetenv("CUDA_VISIBLE_DEVICES"); }
};

TEST_F(OnCardNcclJobs, OneRankRuns) {
  const fs::path out = scratch() / "nccl_one";
  const Result r = run("train" + small + "--out " + out.string());
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(lines_of(out, "step").size(), 2u);
}

TEST_F(OnCardNcclJobs, TwoRanksOnOneCardAreRefused) {
  const fs::path out = scratch() / "nccl_two";
  const Result r = run("train" + small + "--np 2 --out " + out.string());
  EXPECT_EQ(r.code, 2) << r.err;
  EXPECT_NE(r.err.find("needs a card for every rank"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("--comm mpi"), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find("error:"), r.err.rfind("error:")) << r.err;
  EXPECT_FALSE(fs::exists(out));
}

// Ranks that mpirun started find out together.
TEST_F(OnCardNcclJobs, TwoProcessesOnOneCardAreRefused) {
  if (!has_mpirun()) GTEST_SKIP() << "no mpirun";
  const fs::path out = scratch() / "nccl_two_mpi", log = scratch() / "nccl_two_mpi.log";
  const std::string command =
      "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_rmaps_base_oversubscribe=1 mpirun -np 2 " +
      std::string(TESSERA_BINARY) + " train" + small + "--out " + out.string() + " >/dev/null 2>" +
      log.string();
  const int status = std::system(command.c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 2) << read(log);
  EXPECT_NE(read(log).find("ranks 0 and 1 share a card"), std::string::npos) << read(log);
  EXPECT_NE(read(log).find("--comm mpi"), std::string::npos) << read(log);
}

TEST_F(OnCardNcclJobs, OtherwiseTheyGoThroughTheHostAndSayWhy) {
  const fs::path out = scratch() / "nccl_auto";
  const Result r =
      run("train" + small.substr(0, small.find("--comm")) + "--fresh --np 2 --out " + out.string());
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string how = json::parse(read(out / "env.json"))["ranks_talk"];
  EXPECT_NE(how.find("share a card"), std::string::npos) << how;
}

TEST_F(OnCardNcclJobs, ALibraryThatIsMissingIsNamed) {
  ::setenv("TESSERA_NCCL_LIBRARY", "/nowhere/libabsent.so", 1);
  const Result r = run("train" + small + "--np 2 --out " + (scratch() / "nccl_absent").string());
  ::unsetenv("TESSERA_NCCL_LIBRARY");
  EXPECT_EQ(r.code, 10) << r.err;
  EXPECT_NE(r.err.find("/nowhere/libabsent.so"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace tessera::test::nccl_test
