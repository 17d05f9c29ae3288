// The committed goldens of every family on the card: logits, loss and all gradients against
// PyTorch's numbers.
#include <algorithm>
#include <filesystem>
#include <string_view>

#include "cuda/card.h"
#include "ir/type.h"
#include "verbs/verbs.h"

namespace tessera::test::golden_card_test {
namespace {

std::vector<std::string> goldens(const std::string& family) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_SOURCE_DIR "/tests/golden"))
    if (const std::string name = entry.path().filename().string();
        name.ends_with(".safetensors") && name.starts_with(family + "_"))
      paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// In bf16 the gradient of a table of position biases sums thousands of rounded products: it has
// 2.7e-2 on the CPU too.
double most_allowed(const std::string& name, const std::string& dtype) {
  if (dtype == "f64") return 1e-9;
  if (dtype == "f32") return 1e-4;
  const double rounded = name.find("relative_position_bias_table") == name.npos ? 2e-2 : 3e-2;
  return dtype == "f16" ? rounded / 4 : rounded;  // 11 bits instead of 8, and subnormals
}

class OnCardGoldens : public OnCard {
 protected:
  void compare_all(const std::string& dtype) {
    int files = 0, tensors = 0;
    for (const char* family : {"vit", "swin", "resnet"}) {
      const std::vector<std::string> paths = goldens(family);
      EXPECT_GE(paths.size(), 4u) << family;
      for (const std::string& path : paths) {
        run::VerifyOptions options;
        options.golden = path, options.dtype = dtype, options.threads = 2, options.device = "cuda";
        const std::vector<run::Comparison> all = run::compare_golden(options);
        // In bf16 and f16 a ReLU that rounding flips changes a whole gradient: logits and loss
        // alone.
        const bool logits_only =
            ir::is_low(ir::parse_dtype(dtype)) && family == std::string_view("resnet");
        EXPECT_GE(all.size(), logits_only ? 2u : 20u);
        for (const run::Comparison& c : all) {
          const double most =
              std::max(most_allowed(c.name, dtype), dtype == "f64" ? c.tolerance : 0);
          EXPECT_TRUE(c.error <= most)  // written so that a NaN fails
              << path << " in " << dtype << ", " << c.name << ": " << c.error << " > " << most;
        }
        ++files, tensors += static_cast<int>(all.size());
      }
    }
    RecordProperty("cases", files);
    RecordProperty("tensors", tensors);
  }
};

TEST_F(OnCardGoldens, InF64) { compare_all("f64"); }
TEST_F(OnCardGoldens, InF32) { compare_all("f32"); }
TEST_F(OnCardGoldens, InBf16) { compare_all("bf16"); }
TEST_F(OnCardGoldens, InF16) { compare_all("f16"); }

}  // namespace
}  // namespace tessera::test::golden_card_test
