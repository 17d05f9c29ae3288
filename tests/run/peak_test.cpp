// The peak that "% of peak" is against: measured once, kept, never more than the cores can give,
// and doubted where that is due.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/threads.h"
#include "comm/comm.h"
#include "files/text.h"
#include "measure/peak.h"
#include "measure/segments.h"

namespace tessera::run::peak_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A cache of its own, and the user's afterwards.
class PeakCache : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* given = std::getenv("XDG_CACHE_HOME")) before_ = given;
    folder_ = fs::temp_directory_path() / ("tessera_peak_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    before_.empty() ? ::unsetenv("XDG_CACHE_HOME") : ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    fs::remove_all(folder_);
  }
  // The one file that is kept.
  fs::path kept() const {
    fs::path out;
    for (const auto& entry : fs::directory_iterator(folder_ / "tessera"))
      if (entry.path().extension() == ".json") out = entry.path();
    return out;
  }
  void change(const char* key, const json& value) const {
    json all = json::parse(files::read_text(kept()));
    all[key] = value;
    files::write_atomically(kept(), all.dump());
  }

  fs::path folder_;
  std::string before_;
};

TEST_F(PeakCache, IsMeasuredOnceAndKept) {
  const Ranks alone(nullptr);
  const Peak first = peak_of(alone, 1);
  EXPECT_GT(first.gflops, 0.1);
  EXPECT_EQ(first.all_gflops, first.gflops);
  EXPECT_EQ(first.threads, 1);
  change("doubt", "");
  change("gflops", 12.5);
  EXPECT_EQ(peak_of(alone, 1).gflops, 12.5) << "what is kept is taken, nothing is measured";
  // One that was in doubt is measured again; a number that no machine has is none.
  change("doubt", "the machine was busy");
  EXPECT_NE(peak_of(alone, 1).gflops, 12.5);
  for (const json& bad : {json(0), json(-3), json("fast"), json(1e300)}) {
    change("doubt", "");
    change("gflops", bad);
    EXPECT_GT(peak_of(alone, 1).gflops, 0.1) << bad;
  }
  files::write_atomically(kept(), "no JSON");
  EXPECT_GT(peak_of(alone, 1).gflops, 0.1);
}

// bf16 and int8 have peaks of their own, kept beside that of f32; types without instructions have
// that of f32.
TEST_F(PeakCache, EveryElementTypeHasItsOwn) {
  const Ranks alone(nullptr);
  const auto peak = [&](const char* dtype) { return peak_of(alone, 1, nullptr, dtype); };
  peak("f32");
  change("doubt", "");
  change("gflops", 12.5);
  for (const char* dtype : {"bf16", "int8"}) {
    const Peak found = peak(dtype);
    EXPECT_EQ(found.dtype, dtype);
    EXPECT_GT(found.gflops, 0.1);
    EXPECT_NE(found.gflops, 12.5) << "that of f32 is not that of " << dtype;
  }
  EXPECT_EQ(peak("f32").gflops, 12.5);
  EXPECT_EQ(peak("f64").gflops, 12.5);
  EXPECT_EQ(peak("f64").dtype, "f32");
  std::map<std::string, int> files;
  for (const auto& entry : fs::directory_iterator(folder_ / "tessera"))
    if (entry.path().extension() == ".json")
      ++files[json::parse(files::read_text(entry.path()))["dtype"]];
  EXPECT_EQ(files, (std::map<std::string, int>{{"bf16", 1}, {"f32", 1}, {"int8", 1}}));
  // A run that goes on takes the peak of a segment only where that was of its type.
  const Segment first = begin_segment(alone, 1, folder_, 0);
  fs::create_directories(folder_);
  first.write(folder_);
  EXPECT_EQ(first.all[0]["peak_dtype"], "f32");
  const Segment low = begin_segment(alone, 1, folder_, 7, "cpu", "bf16");
  EXPECT_EQ(low.all[1]["peak_dtype"], "bf16");
  EXPECT_NE(low.peak.gflops, 12.5);
}

// Each type has a peak of its own instruction, or that of f32 where a machine has none. How much
// more it is depends on the machine (AVX-512-BF16 gives no more than f32 does on some).
TEST(Peak, LowTypesHaveAPeakThatCanBe) {
  const exec::DeviceInfo cpu = exec::device_info("cpu", 1);
  const double wide = cpu.peak_gflops("f32").gflops;
  for (const char* dtype : {"bf16", "int8"}) {
    EXPECT_GT(cpu.peak_gflops(dtype).gflops, 0.4 * wide) << cpu.how(dtype);
    EXPECT_LT(cpu.peak_gflops(dtype).gflops, 64 * wide) << cpu.how(dtype);
  }
}

TEST_F(PeakCache, ALinkIsNotFollowed) {
  const Ranks alone(nullptr);
  peak_of(alone, 1);
  change("doubt", "");
  change("gflops", 12.5);
  const fs::path file = kept(), elsewhere = folder_ / "elsewhere.json";
  fs::rename(file, elsewhere);
  fs::create_symlink(elsewhere, file);
  EXPECT_NE(peak_of(alone, 1).gflops, 12.5);
}

TEST_F(PeakCache, WithoutAHomeItIsMeasured) {
  fs::create_directories(folder_);
  files::write_atomically(folder_ / "tessera", "a file where the folder would be");
  EXPECT_GT(peak_of(Ranks(nullptr), 1).gflops, 0.1);
}

// The sum of ranks that share cores is what the cores give.
TEST_F(PeakCache, RanksBeyondTheCoresAddNothing) {
  const int cores = available_cores(), ranks = 2 * cores;
  const double machine = exec::device_info("cpu", cores).peak_gflops("f32").gflops;
  comm::run_local(ranks, [&](comm::Comm& world) {
    const Peak peak = peak_of(Ranks(&world), 1);
    EXPECT_LT(peak.all_gflops, 1.5 * machine);
    EXPECT_NEAR(peak.gflops * ranks, peak.all_gflops, 1e-9 * peak.all_gflops);
    EXPECT_NE(peak.doubt.find(std::to_string(ranks) + " threads share " + std::to_string(cores) +
                              " cores"),
              std::string::npos)
        << peak.doubt;
  });
}

TEST_F(PeakCache, ARunThatGoesOnHasItsOwn) {
  const Ranks alone(nullptr);
  const Segment first = begin_segment(alone, 1, folder_, 0);
  fs::create_directories(folder_);
  files::write_atomically(folder_ / "env.json", "{\"host\": \"here\"}\n");
  first.write(folder_);
  fs::remove_all(folder_ / "tessera");  // what was kept is lost, and would be measured anew
  const Segment next = begin_segment(alone, 1, folder_, 7);
  ASSERT_EQ(next.all.size(), 2u);
  EXPECT_EQ(next.peak.gflops, first.peak.gflops);
  EXPECT_EQ(next.all[1]["after_step"], 7);
  EXPECT_EQ(next.all[1]["peak_gflops"], next.all[0]["peak_gflops"]);
  next.write(folder_);
  const json env = json::parse(files::read_text(folder_ / "env.json"));
  EXPECT_EQ(env["host"], "here");
  EXPECT_EQ(env["segments"].size(), 2u);
  // Other threads are another peak; a run that starts over has no earlier segments.
  EXPECT_EQ(begin_segment(alone, 2, folder_, 7).all[2]["threads"], 2);
  EXPECT_EQ(begin_segment(alone, 1, folder_, 0).all.size(), 1u);
}

TEST_F(PeakCache, ARunThatGoesOnWithOtherKernelsSaysSo) {
  const Ranks alone(nullptr);
  const Segment first = begin_segment(alone, 1, folder_, 0, "cpu", "bf16");
  EXPECT_EQ(first.other_kernels, "");
  const std::string here = first.all[0]["kernels"];
  EXPECT_NE(here.find(", "), std::string::npos) << here;
  fs::create_directories(folder_);
  first.write(folder_);
  EXPECT_EQ(begin_segment(alone, 1, folder_, 7, "cpu", "bf16").other_kernels, "");
  json env = json::parse(files::read_text(folder_ / "env.json"));
  env["segments"][0]["kernels"] = "AVX99, tiles";
  files::write_atomically(folder_ / "env.json", env.dump());
  EXPECT_EQ(begin_segment(alone, 1, folder_, 7, "cpu", "bf16").other_kernels,
            "so far this run computed with the kernels AVX99, tiles, and it goes on with " + here +
                ": from here on its bits will differ from those of a run that was not interrupted");
  // One that starts over has no past, and older versions did not record their kernels.
  EXPECT_EQ(begin_segment(alone, 1, folder_, 0, "cpu", "bf16").other_kernels, "");
  for (const json& strange : {json(), json(3), json(json::array({"a"}))}) {
    env["segments"][0]["kernels"] = strange;
    files::write_atomically(folder_ / "env.json", env.dump());
    EXPECT_EQ(begin_segment(alone, 1, folder_, 7, "cpu", "bf16").other_kernels, "");
  }
}

TEST(Peak, IsDoubtedWhereThatIsDue) {
  const PeakKey key{.host = "a", .cpu = "b", .ranks = 4, .threads = 1, .cores = 2};
  const MachinePeak crowded = judge_peak(std::vector<exec::MeasuredPeak>(4, {140, 70, 0.02}), key);
  EXPECT_DOUBLE_EQ(crowded.gflops, 280);
  EXPECT_EQ(crowded.doubt, "");
  const PeakKey two{.host = "a", .cpu = "b", .ranks = 1, .threads = 2, .cores = 2};
  EXPECT_EQ(judge_peak({{300, 295, 0.02}}, two).doubt, "");
  EXPECT_EQ(judge_peak({{300, 150, 0.02}}, two).doubt,
            "the machine was busy: its threads had 50% of the time that they could use");
  EXPECT_EQ(judge_peak({{300, 290, 0.4}}, two).doubt,
            "the rounds of the measurement differ by 40%");
  EXPECT_DOUBLE_EQ(judge_peak({{300, 150, 0.02}}, two).gflops, 300) << "CPU time is what counts";
}

}  // namespace
}  // namespace tessera::run::peak_test
