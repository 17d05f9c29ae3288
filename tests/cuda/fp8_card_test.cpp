// Eight bits on the card: the losses of the CPU's reference kernels, the same bits in every run,
// and a library behind the products of a real size.
#include <cmath>

#include "base/rng.h"
#include "cuda/card.h"
#include "session/init.h"

namespace tessera::test::fp8_card_test {
namespace {

struct Steps {
  std::vector<double> losses, norms;
  std::vector<double> logits;
};

Steps trained(const std::string& device, const std::string& model, std::int64_t batch, int steps) {
  run::Session session(preset_on(device, model, "fp8", batch));
  session.load(run::initial_weights(5));
  const models::ModelConfig& m = session.config().model;
  std::vector<float> images(static_cast<std::size_t>(batch * m.image_h * m.image_w * m.channels));
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<float>(normal(Key{9}, i));
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < batch; ++i) labels.push_back(static_cast<std::int32_t>(i % 10));
  Steps out;
  for (int i = 1; i <= steps; ++i) {
    const run::StepResult r = session.train_step(images, labels, 1e-3, i, 0);
    EXPECT_TRUE(r.ok) << device;
    out.losses.push_back(r.loss);
    out.norms.push_back(r.grad_norm);
  }
  out.logits = session.evaluate(images, labels).logits;
  return out;
}

class OnCardFp8 : public OnCard {};

TEST_F(OnCardFp8, LossesAreThoseOfTheCpu) {
  for (const char* model : {"vit_micro", "swin_micro"}) {
    const Steps card = trained("cuda", model, 16, 12), cpu = trained("cpu", model, 16, 12);
    for (std::size_t i = 0; i < card.losses.size(); ++i) {
      // Attention and norms round differently in bf16, and a rounding may fall to a neighbour.
      EXPECT_NEAR(card.losses[i], cpu.losses[i], 0.02 * cpu.losses[0]) << model << " " << i;
      EXPECT_NEAR(card.norms[i], cpu.norms[i], 0.1 * cpu.norms[i] + 0.01) << model << " " << i;
    }
    EXPECT_LT(card.losses.back(), card.losses.front()) << model;
  }
}

TEST_F(OnCardFp8, SameBitsInEveryRun) {
  const Steps a = trained("cuda", "vit_tiny_cifar", 64, 4),
              b = trained("cuda", "vit_tiny_cifar", 64, 4);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.logits, b.logits);
}

}  // namespace
}  // namespace tessera::test::fp8_card_test
