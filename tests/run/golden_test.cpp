// Every committed golden in every element type: logits, loss and all gradients against PyTorch's numbers.
#include <gtest/gtest.h>

#include <filesystem>

#include "run/run.h"

namespace tessera::run::golden_test {
namespace {

std::vector<std::string> goldens() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_SOURCE_DIR "/tests/golden"))
    if (const std::string name = entry.path().filename().string(); name.ends_with(".safetensors"))
      if (name.starts_with("vit_") || name.starts_with("swin_")) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

TEST(Golden, ThereAreSome) { EXPECT_GE(goldens().size(), 12u); }

class GoldenTest : public testing::TestWithParam<std::string> {};
TEST_P(GoldenTest, AllTensorsWithinTolerance) {
  for (const std::string& path : goldens()) {
    VerifyOptions options;
    options.golden = path;
    options.dtype = GetParam();
    options.threads = 2;
    const std::vector<Comparison> all = compare_golden(options);
    EXPECT_GE(all.size(), 20u);
    for (const Comparison& c : all) EXPECT_TRUE(c.ok()) << path << " " << c.name << ": " << c.error << " > " << c.tolerance;
  }
}
INSTANTIATE_TEST_SUITE_P(DTypes, GoldenTest, testing::Values("f64", "f32", "bf16"), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace tessera::run::golden_test
