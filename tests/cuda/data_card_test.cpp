// Data on the card: whoever augments and wherever the pictures are, the card trains on the same
// bits; and against the CPU the losses are the same to rounding. The op itself is compared with the
// loader by tests/ops (AugmentOp, and the cases of augment and gather_samples).
#include <fstream>
#include <nlohmann/json.hpp>

#include "cuda/card.h"
#include "files/scratch.h"
#include "files/text.h"
#include "verbs/verbs.h"

namespace tessera::test::data_card_test {
namespace {

struct Trained {
  std::vector<double> loss, grad_norm, copy_ms;
  std::string weights;
  nlohmann::json summary;
};

config::Config augmented(const std::string& device, const std::string& dtype) {
  config::Config c = preset_on(device, "vit_micro", dtype, 16);
  c.data.source = "synthetic:32x32x3,10";
  c.data.train_size = 75;  // the last batch has 11
  c.data.test_size = 16;
  c.data.workers = 1;
  c.data.crop = 4;
  c.data.flip = "random";
  c.data.erase = 0.5;
  c.data.cutout = 8;
  c.data.mixup = 0.4;
  c.data.cutmix = 1.0;
  c.data.normalize = "cifar10";
  c.precision.initial_scale_power = 8;  // f16: no step overflows
  c.run.steps = 12;
  c.run.epochs = 0;
  c.run.name = "data";
  return c;
}

Trained trained(config::Config c, const std::string& augment_on, const std::string& resident) {
  const Scratch scratch;
  c.data.augment_on = augment_on;
  c.data.resident = resident;
  c.run.out = (scratch / "run").string();
  run::TrainOptions options;
  options.quiet = true;
  EXPECT_EQ(run::train(c, options), 0) << augment_on << ", resident " << resident;
  Trained out;
  std::ifstream file(scratch / "run" / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json m = nlohmann::json::parse(line);
    if (m["kind"] != "step") continue;
    out.loss.push_back(m["loss"].get<double>());
    out.grad_norm.push_back(m["grad_norm"].get<double>());
    if (m.contains("breakdown")) out.copy_ms.push_back(m["breakdown"].value("copy", 0.0));
  }
  out.weights = files::read_text(scratch / "run" / "weights.safetensors", 1 << 26);
  out.summary = nlohmann::json::parse(files::read_text(scratch / "run" / "summary.json"));
  return out;
}

class OnCardData : public OnCard {
 protected:
  void expect_same(const Trained& got, const Trained& want, const std::string& what) {
    SCOPED_TRACE(what);
    EXPECT_EQ(want.loss.size(), 12u);
    EXPECT_EQ(got.loss, want.loss);
    EXPECT_EQ(got.grad_norm, want.grad_norm);
    EXPECT_TRUE(got.weights == want.weights) << "the weights have other bits";
    RecordProperty("cases", ++seen_);
  }
  int seen_ = 0;
};

TEST_F(OnCardData, HasTheSameBitsWhoeverAugments) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    SCOPED_TRACE(dtype);
    const config::Config c = augmented("cuda", dtype);
    const Trained loader = trained(c, "loader", "no");
    expect_same(trained(c, "device", "no"), loader, "the card augments");
    expect_same(trained(c, "auto", "auto"), loader, "the card holds the pictures");
  }
}

TEST_F(OnCardData, FollowsTheLoaderOfTheCpu) {
  const Trained want = trained(augmented("cpu", "f32"), "loader", "no"),
                got = trained(augmented("cuda", "f32"), "auto", "auto");
  EXPECT_LE(difference(got.loss, want.loss), 1e-4);
  EXPECT_LE(difference(got.grad_norm, want.grad_norm), 1e-4);
  RecordProperty("cases", 12);
}

TEST_F(OnCardData, IsPlannedToTheByte) {
  const Trained got = trained(augmented("cuda", "bf16"), "auto", "auto");
  const nlohmann::json& peak = got.summary["ranks"][0]["peak_bytes"];
  EXPECT_EQ(peak["planned"], peak["measured"]);
  RecordProperty("cases", 1);
}

// A copy is under way beside the step before it; sampled steps say how long it took.
TEST_F(OnCardData, SaysHowLongCopiesTook) {
  const Trained got = trained(augmented("cuda", "f32"), "device", "no");
  ASSERT_GE(got.copy_ms.size(), 2u);
  for (const double ms : got.copy_ms) EXPECT_GT(ms, 0);
  EXPECT_GT(got.summary["ranks"][0]["breakdown"].value("copy", 0.0), 0);
  RecordProperty("cases", static_cast<int>(got.copy_ms.size()));
}

}  // namespace
}  // namespace tessera::test::data_card_test
