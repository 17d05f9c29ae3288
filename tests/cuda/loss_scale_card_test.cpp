// f16 on the card: an overflow recovers as on the CPU, decided on the card while the loop runs a
// step ahead, and the same training twice has the same bits.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cuda/card.h"
#include "files/scratch.h"
#include "verbs/verbs.h"

namespace tessera::test::loss_scale_card_test {
namespace {

struct Tries {
  std::vector<double> scales, losses;
  std::vector<bool> skipped;
};

// 2^24 overflows; halved step by step it fits.
Tries trained(const std::string& device, const std::string& model, int ahead = -1) {
  const Scratch scratch;
  config::Config c = preset_on(device, model, "f16", 16);
  c.precision.initial_scale_power = 24;
  c.precision.loss_scale_window = 4;
  c.data.source = "synthetic:32x32x3,10";
  c.data.train_size = 16 * 24;
  c.data.test_size = 16;
  c.data.workers = 1;
  c.run.epochs = 1;
  c.run.out = (scratch / "run").string();
  c.run.name = "half";
  run::TrainOptions options;
  options.quiet = true;
  options.ahead = ahead;
  EXPECT_EQ(run::train(c, options), 0) << device << " " << model;
  Tries out;
  std::ifstream file(scratch / "run" / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json m = nlohmann::json::parse(line);
    if (m["kind"] != "step") continue;
    out.scales.push_back(m["loss_scale"].get<double>());
    out.losses.push_back(m["loss"].get<double>());
    out.skipped.push_back(m.contains("skipped"));
  }
  return out;
}

class OnCardLossScale : public OnCard {};

TEST_F(OnCardLossScale, AnOverflowRecovers) {
  int seen = 0;
  for (const char* model : {"vit_micro", "swin_micro", "resnet_micro_cifar"}) {
    const Tries got = trained("cuda", model);
    ASSERT_EQ(got.scales.size(), 24u) << model;
    double scale = 0x1p24;
    int good = 0, overflows = 0;
    for (std::size_t i = 0; i < got.scales.size(); ++i) {
      ASSERT_EQ(got.scales[i], scale) << model << ", try " << i;
      EXPECT_TRUE(std::isfinite(got.losses[i])) << model;
      if (got.skipped[i]) {
        scale /= 2;
        good = 0;
        ++overflows;
      } else if (++good == 4) {
        scale = std::min(2 * scale, 0x1p24);
        good = 0;
      }
    }
    EXPECT_GE(overflows, 3) << model;
    EXPECT_LE(overflows, 18) << model;
    ++seen;
  }
  RecordProperty("cases", seen);
}

TEST_F(OnCardLossScale, FollowsTheCpu) {
  const Tries want = trained("cpu", "vit_micro"), got = trained("cuda", "vit_micro");
  EXPECT_EQ(got.scales, want.scales);
  EXPECT_EQ(got.skipped, want.skipped);
  EXPECT_LE(difference(got.losses, want.losses), 1e-2);
  RecordProperty("cases", 1);
}

// A loop that waits for every step sees the same as one that runs ahead.
TEST_F(OnCardLossScale, HasTheSameBitsAheadAndTwice) {
  const Tries ahead = trained("cuda", "swin_micro"), again = trained("cuda", "swin_micro"),
              waits = trained("cuda", "swin_micro", 0);
  EXPECT_EQ(ahead.losses, again.losses);
  EXPECT_EQ(ahead.losses, waits.losses);
  EXPECT_EQ(ahead.scales, waits.scales);
  RecordProperty("cases", 2);
}

}  // namespace
}  // namespace tessera::test::loss_scale_card_test
