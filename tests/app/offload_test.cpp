// Offload from the command line: what explain says before is what a run takes, on one rank and on
// two, and a folder that is not there ends a run with the exit code of disks.
#include <gtest/gtest.h>

#include "app/binary.h"

namespace tessera::test::offload_test {
namespace {

const std::string small =
    " --model vit_micro --set model.depth=1 --set data.train_size=32 --set data.test_size=8 "
    "--global-batch 16 --threads 1 --steps 3 --set optim.clip=1 ";

TEST(OffloadRuns, TakeWhatExplainSays) {
  for (const std::string layout : {"", "--dp 2 --zero 1 --comm local "}) {
    const fs::path here = scratch() / "offload_none";
    ASSERT_EQ(run("train" + small + layout + "--quiet --fresh --out " + here.string()).code, 0);
    const json without = json::parse(read(here / "summary.json"));
    for (const std::string home : {"host", "file"}) {
      SCOPED_TRACE(layout + home);
      const std::string with = small + layout + "--set parallel.offload_optimizer=" + home +
                               " --set parallel.offload_mb=0.004 ";
      const json explained = json::parse(run("explain" + with + "--json").out);
      const fs::path out = scratch() / ("offload_" + home);
      const Result result = run("train" + with + "--quiet --fresh --out " + out.string());
      ASSERT_EQ(result.code, 0) << result.err;
      EXPECT_TRUE(read(out / "weights.safetensors") == read(here / "weights.safetensors"));
      const json summary = json::parse(read(out / "summary.json"));
      EXPECT_EQ(summary["peak_bytes"]["planned"], summary["peak_bytes"]["measured"]);
      EXPECT_LT(summary["peak_bytes"]["planned"], without["peak_bytes"]["planned"]);
      EXPECT_EQ(explained["run"]["ranks"]["most"], summary["peak_bytes"]["planned"]);
      EXPECT_EQ(explained["run"][home + "_bytes"], summary["ranks"][0]["peak_bytes"][home]);
      EXPECT_EQ(explained["away"][home + "_bytes"], explained["run"][home + "_bytes"]);
      EXPECT_GT(explained["away"]["fetched"], 0);
      EXPECT_EQ(explained["away"]["fetched"], explained["away"]["stowed"]);
    }
  }
}

// Weights and state: what is planned is what is taken, and the device has less by the weights.
TEST(OffloadRuns, OfWeightsTakeWhatExplainSays) {
  const std::string layout = "--dp 2 --zero 3 --comm local --set parallel.persist=64 ";
  const fs::path here = scratch() / "offload_params_none", out = scratch() / "offload_params";
  ASSERT_EQ(run("train" + small + layout + "--quiet --fresh --out " + here.string()).code, 0);
  const std::string with = small + layout +
                           "--set parallel.offload_params=file "
                           "--set parallel.offload_optimizer=host --set parallel.offload_mb=0.004 ";
  const json explained = json::parse(run("explain" + with + "--json").out),
             resident = json::parse(run("explain" + small + layout + "--json").out);
  const Result result = run("train" + with + "--quiet --fresh --out " + out.string());
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_TRUE(read(out / "weights.safetensors") == read(here / "weights.safetensors"));
  const json summary = json::parse(read(out / "summary.json"));
  EXPECT_EQ(summary["peak_bytes"]["planned"], summary["peak_bytes"]["measured"]);
  EXPECT_EQ(explained["run"]["ranks"]["most"], summary["peak_bytes"]["planned"]);
  EXPECT_EQ(explained["away"]["file_bytes"], summary["ranks"][0]["peak_bytes"]["file"]);
  EXPECT_EQ(explained["away"]["host_bytes"], summary["ranks"][0]["peak_bytes"]["host"]);
  EXPECT_EQ(explained["away"]["weights_bytes"], explained["away"]["file_bytes"]);
  const auto weights = [](const json& of) { return of["memory"]["weights"].get<std::int64_t>(); };
  EXPECT_EQ(weights(resident) - weights(explained),
            explained["away"]["weights_bytes"].get<std::int64_t>());
  const std::string text = run("explain" + with).out;
  for (const char* line : {"\n  beside it, on the host: ", "\n  beside it, in a file: "})
    EXPECT_NE(text.find(line), std::string::npos) << line << " in\n" << text;
}

TEST(OffloadRuns, BenchSaysWhatTheLinkDoes) {
  const json found =
      json::parse(run("bench offload --json --threads 1 --max-bytes 1MB --repeats 3").out);
  EXPECT_EQ(found["home"], "host");
  EXPECT_GT(found["link_gbytes"]["up"], 0);
  ASSERT_EQ(found["rows"].size(), 2u);
  EXPECT_EQ(found["rows"][0]["fetched"], found["rows"][0]["stowed"]);
  EXPECT_GT(found["rows"][1]["up_gbytes"], 0);
  EXPECT_EQ(found["rows"][1]["stowed"], 0);
}

TEST(OffloadRuns, ExplainNamesWhatRestsElsewhere) {
  const std::string text =
      run("explain" + small + "--set parallel.offload_optimizer=file --plan").out;
  for (const char* words : {"optimizer state on file", "beside it, in a file: ",
                            " bytes of optimizer state; a step fetches ", " in a file\n",
                            "fetch              arena+", "stow               m.decay+0"})
    EXPECT_NE(text.find(words), std::string::npos) << words << " in\n" << text;
}

TEST(OffloadRuns, AFolderThatIsNotThereEndsARunWithNine) {
  const Result result = run("train" + small +
                            "--set parallel.offload_optimizer=file --set "
                            "parallel.offload_folder=/nowhere/at/all --quiet --fresh --out " +
                            (scratch() / "offload_nowhere").string());
  EXPECT_EQ(result.code, 9);
  EXPECT_NE(result.err.find("/nowhere/at/all: cannot make a file in this folder"),
            std::string::npos)
      << result.err;
}

}  // namespace
}  // namespace tessera::test::offload_test
