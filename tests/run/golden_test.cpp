// Every committed golden in every element type: logits, loss and all gradients against PyTorch's
// numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>

#include "base/check.h"
#include "files/safetensors.h"
#include "files/scratch.h"
#include "session/bytes.h"
#include "verbs/verbs.h"

namespace tessera::run::golden_test {
namespace {

std::vector<std::string> goldens(const std::vector<std::string>& families = {"vit_", "swin_"}) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(TESSERA_SOURCE_DIR "/tests/golden"))
    if (const std::string name = entry.path().filename().string(); name.ends_with(".safetensors"))
      if (std::any_of(families.begin(), families.end(),
                      [&](const std::string& family) { return name.starts_with(family); }))
        paths.push_back(entry.path().string());
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
    for (const Comparison& c : all)
      EXPECT_TRUE(c.ok()) << path << " " << c.name << ": " << c.error << " > " << c.tolerance;
  }
}
INSTANTIATE_TEST_SUITE_P(DTypes, GoldenTest, testing::Values("f64", "f32", "bf16", "f16"),
                         [](const auto& i) { return i.param; });

// Logits and loss of a ResNet in a low precision are compared: rounding flips a ReLU here and
// there.
TEST(Golden, AResnetInLowPrecision) {
  ASSERT_GE(goldens({"resnet_"}).size(), 4u);
  for (const std::string& path : goldens({"resnet_"}))
    for (const char* dtype : {"bf16", "f16"}) {
      VerifyOptions options;
      options.golden = path;
      options.dtype = dtype;
      options.threads = 2;
      const std::vector<Comparison> all = compare_golden(options);
      EXPECT_EQ(all.size(), 2u);
      for (const Comparison& c : all)
        EXPECT_TRUE(c.ok()) << path << " " << dtype << ", " << c.name << ": " << c.error << " > "
                            << c.tolerance;
    }
}

// A golden with something changed.
struct Changed {
  test::Scratch scratch;
  files::Safetensors file{TESSERA_SOURCE_DIR "/tests/golden/vit_square.safetensors"};
  std::map<std::string, files::NamedTensor> tensors;
  files::Metadata metadata = file.metadata();
  std::vector<std::byte> storage;
  std::map<std::string, files::TensorBytes> held;

  Changed() {
    for (const auto& [name, t] : file.tensors())
      tensors[name] = {name, t.dtype, t.shape, (held[name] = file.read(name)).bytes};
  }
  void fill(const std::string& name, const std::string& dtype, double value) {
    files::NamedTensor& t = tensors.at(name);
    std::int64_t count = 1;
    for (const std::int64_t extent : t.shape) count *= extent;
    storage = encode(std::vector<double>(static_cast<std::size_t>(count), value),
                     dtype == "F32" ? ir::DType::f32 : ir::DType::f64);
    t.dtype = dtype;
    t.bytes = storage;
  }
  VerifyOptions write() {
    std::vector<files::NamedTensor> all;
    for (const auto& [name, t] : tensors) all.push_back(t);
    files::write_safetensors(scratch / "g", all, metadata);
    VerifyOptions options;
    options.golden = (scratch / "g").string();
    options.threads = 1;
    return options;
  }
  std::string refusal() {
    try {
      compare_golden(write());
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 4);
      return error.what();
    }
    return "(accepted)";
  }
};

// A NaN is named, whatever comes after it.
TEST(Verify, TheWorstIsTheOneThatIsNotANumber) {
  Changed golden;
  golden.fill("logits", "F64", std::numeric_limits<double>::quiet_NaN());
  const VerifyOptions options = golden.write();
  testing::internal::CaptureStdout();
  const int code = verify(options);
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, 1);
  EXPECT_NE(said.find("the worst is logits at nan"), std::string::npos) << said;
}

TEST(Verify, NamesAndTypesThatMeanNothingAreRefusedAllAtOnce) {
  EXPECT_EQ(Changed().refusal(), "(accepted)");
  Changed labels;
  labels.fill("labels", "F32", 1.5);
  EXPECT_NE(labels.refusal().find("tensor 'labels' is F32, expected I64"), std::string::npos)
      << labels.refusal();
  Changed names;
  names.tensors["grad.bogus"] = names.tensors["grad.class_token"];
  names.tensors["grad.bogus"].name = "grad.bogus";
  names.tensors["extra"] = names.tensors["loss"];
  names.tensors["extra"].name = "extra";
  names.tensors["logits"].dtype = "I64";
  const std::string said = names.refusal();
  for (const char* words :
       {"2 of the tensors mean nothing in a golden of this model: 'extra', 'grad.bogus'",
        "also: tensor 'logits' is I64"})
    EXPECT_NE(said.find(words), std::string::npos) << said;
}

// verify takes no --model: its advice is another than that of other verbs.
TEST(Verify, AGoldenWithoutAModelIsSentBackToItsMaker) {
  Changed golden;
  golden.metadata.clear();
  const std::string said = golden.refusal();
  EXPECT_NE(said.find("'tessera.model' is absent"), std::string::npos) << said;
  EXPECT_NE(said.find("make_goldens.py"), std::string::npos) << said;
  EXPECT_EQ(said.find("--model"), std::string::npos) << said;
}

}  // namespace
}  // namespace tessera::run::golden_test
