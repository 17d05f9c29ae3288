// From outside: a run that goes on keeps the peak that its percentages are against, and the memory
// of a whole run is stated before it.
#include <gtest/gtest.h>

#include "app/binary.h"

namespace tessera::test::segments_test {
namespace {

// The cache of this test alone.
class OwnCache {
 public:
  OwnCache() : folder_(scratch() / "cache") {
    if (const char* given = std::getenv("XDG_CACHE_HOME")) before_ = given;
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~OwnCache() {
    before_.empty() ? ::unsetenv("XDG_CACHE_HOME") : ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;
  void lose() const { fs::remove_all(folder_); }

 private:
  fs::path folder_;
  std::string before_;
};

TEST(Segments, ARunThatGoesOnHasOneDenominator) {
  const OwnCache cache;
  const fs::path out = scratch() / "segments";
  const std::string command =
      "train" + tiny + "--set checkpoint.every=2 --quiet --out " + out.string() + " --steps ";
  ASSERT_EQ(run(command + "2").code, 0);
  const json first = json::parse(read(out / "env.json"));
  ASSERT_EQ(first["segments"].size(), 1u) << first;
  EXPECT_EQ(first["segments"][0]["peak_gflops"], first["peak_gflops"]["f32"]);
  fs::remove(out / "summary.json");  // the same run, longer
  cache.lose();                      // and a peak that would be measured anew
  ASSERT_EQ(run(command + "4").code, 0);
  const json env = json::parse(read(out / "env.json")),
             summary = json::parse(read(out / "summary.json"));
  ASSERT_EQ(env["segments"].size(), 2u) << env;
  EXPECT_EQ(env["segments"][1]["after_step"], 2);
  EXPECT_EQ(env["segments"][1]["peak_gflops"], first["peak_gflops"]["f32"]);
  EXPECT_EQ(summary["segments"], env["segments"]);
  // The share of the peak is what the lines of steps say it is.
  const double peak = first["peak_gflops"]["f32"].get<double>() * 1e9;
  std::vector<double> flops;
  for (const json& line : lines_of(out, "step"))
    flops.push_back(line["mfu"].get<double>() * line["step_ms"].get<double>() * 1e-3 * peak);
  ASSERT_EQ(flops.size(), 4u);
  for (const double f : flops) EXPECT_NEAR(f, flops[0], 1e-3 * flops[0]);
}

TEST(Segments, ARunThatGoesOnWithOtherKernelsSaysSo) {
  const fs::path out = scratch() / "kernels";
  const std::string command =
      "train" + tiny + "--set checkpoint.every=2 --out " + out.string() + " --steps ";
  ASSERT_EQ(run(command + "2").code, 0);
  fs::remove(out / "summary.json");  // the same run, longer
  const Result same = run(command + "4");
  ASSERT_EQ(same.code, 0);
  EXPECT_EQ((same.out + same.err).find("computed with the kernels"), std::string::npos);
  json env = json::parse(read(out / "env.json"));
  env["segments"][1]["kernels"] = "AVX99, tiles";  // as if it had run elsewhere
  write(out / "env.json", env.dump());
  fs::remove(out / "summary.json");
  const Result other = run(command + "6");
  ASSERT_EQ(other.code, 0);
  EXPECT_NE((other.out + other.err)
                .find("note: so far this run computed with the kernels AVX99, "
                      "tiles, and it goes on with " +
                      env["segments"][0]["kernels"].get<std::string>()),
            std::string::npos)
      << other.out << other.err;
}

// The example that was wrong: recalibration takes a whole batch at once where training recomputes
// and accumulates.
TEST(Segments, MemoryOfRecalibrationIsPlanned) {
  const fs::path out = scratch() / "recalibrated";
  const std::string what =
      " --model resnet_micro_cifar --data synthetic --set data.train_size=50 --set "
      "data.test_size=11 --threads 1 --steps 3 --global-batch 20"
      " --accumulate 4 --set ema.decay=0.9 --set parallel.recompute=full ";
  ASSERT_EQ(run("train" + what + "--quiet --out " + out.string()).code, 0);
  const json peak = json::parse(read(out / "summary.json"))["peak_bytes"];
  EXPECT_EQ(peak["planned"], peak["measured"]);
  const json explained = json::parse(run("explain --json --no-program" + what).out);
  EXPECT_EQ(explained["run"]["peak_bytes"], peak["measured"]);
  EXPECT_GT(explained["run"]["peak_bytes"], explained["peak_bytes"])
      << "here a training step needs less";
}

TEST(Segments, APeakIsOneThatTheCoresCanGive) {
  const OwnCache cache;
  const auto peak_of = [](const std::string& how) {
    const Result r = run("bench infer --model vit_micro --repeats 1 --json " + how);
    EXPECT_EQ(r.code, 0) << r.err;
    return json::parse(r.out);
  };
  const std::string cores = std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)),
                    twice = std::to_string(2 * ::sysconf(_SC_NPROCESSORS_ONLN));
  const json all = peak_of("--batch 8 --threads " + cores),
             crowded = peak_of("--threads 1 --comm local --np " + twice + " --dp " + twice +
                               " --batch " + twice);
  EXPECT_LT(crowded["peak_gflops"].get<double>(), 1.5 * all["peak_gflops"].get<double>());
  EXPECT_NE(crowded.value("peak_doubt", "").find(twice + " threads share"), std::string::npos)
      << crowded.value("peak_doubt", "");
}

}  // namespace
}  // namespace tessera::test::segments_test
