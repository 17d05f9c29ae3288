// The same training on the CPU and on the card, with everything random that a training has: loss
// and gradient norm at every step. And the same training twice on the card: the same bits.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cuda/card.h"
#include "files/scratch.h"
#include "verbs/verbs.h"

namespace tessera::test::trace_card_test {
namespace {

struct Steps {
  std::vector<double> loss, grad_norm;
};

// Through the verb: augmentation, mixup, schedule and clipping as a user has them.
Steps trained(const std::string& device, const std::string& model, int steps) {
  const Scratch scratch;
  config::Config c = preset_on(device, model, "f32", 16);
  if (c.model.family == "vit") {
    c.model.depth = 2;
    c.model.dropout = 0.1;
  }
  if (c.model.family != "resnet") c.model.drop_path = 0.2;
  c.data.source = "synthetic:32x32x3,10";
  c.data.train_size = 80;
  c.data.test_size = 16;
  c.data.workers = 1;
  c.data.flip = "random";
  c.data.crop = 4;
  c.data.mixup = 0.2;
  c.data.cutmix = 1.0;
  c.loss.label_smoothing = 0.1;
  c.run.steps = steps;
  c.run.epochs = 0;
  c.run.out = (scratch / "run").string();
  c.run.name = "trace";
  run::TrainOptions options;
  options.quiet = true;
  EXPECT_EQ(run::train(c, options), 0) << device << " " << model;
  Steps out;
  std::ifstream file(scratch / "run" / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json m = nlohmann::json::parse(line);
    if (m["kind"] != "step") continue;
    out.loss.push_back(m["loss"].get<double>());
    out.grad_norm.push_back(m["grad_norm"].get<double>());
  }
  return out;
}

class OnCardTraces : public OnCard {
 protected:
  void follows_the_cpu(const std::string& model, int steps) {
    const Steps want = trained("cpu", model, steps), got = trained("cuda", model, steps);
    ASSERT_EQ(want.loss.size(), static_cast<std::size_t>(steps));
    ASSERT_EQ(got.loss.size(), want.loss.size());
    const double loss = difference(got.loss, want.loss),
                 norm = difference(got.grad_norm, want.grad_norm);
    std::printf("%s, %d steps: loss differs by %.1e, gradient norm by %.1e\n", model.c_str(), steps,
                loss, norm);
    EXPECT_LE(loss, 1e-4);
    EXPECT_LE(norm, 1e-4);
    EXPECT_GT(want.grad_norm[0], 1e-3);
    RecordProperty("cases", steps);
  }
};

TEST_F(OnCardTraces, OfAVitOver20Steps) { follows_the_cpu("vit_micro", 20); }
TEST_F(OnCardTraces, OfASwinOver20Steps) { follows_the_cpu("swin_micro", 20); }
TEST_F(OnCardTraces, OfAResnetOver3Steps) { follows_the_cpu("resnet_micro_cifar", 3); }

class OnCardBits : public OnCard {
 protected:
  void the_same_twice(const std::string& model, const std::string& dtype, std::int64_t batch) {
    SCOPED_TRACE(model + " " + dtype);
    Training t{preset_on("cuda", model, dtype, batch), 4};
    t.config.precision.initial_scale_power = 8;  // f16: no step overflows
    if (t.config.model.family != "resnet") t.config.model.drop_path = 0.1;
    const Trace first = train(t), second = train(t);
    EXPECT_EQ(first.loss, second.loss);
    EXPECT_EQ(first.grad_norm, second.grad_norm);
    ASSERT_EQ(first.weights.size(), second.weights.size());
    for (const auto& [name, values] : first.weights)
      EXPECT_TRUE(values == second.weights.at(name)) << name << " has other bits";
    ++seen_;
    RecordProperty("cases", seen_);
  }
  int seen_ = 0;
};

TEST_F(OnCardBits, OfAVit) {
  for (const char* dtype : {"f32", "bf16", "f16"}) the_same_twice("vit_tiny_cifar", dtype, 64);
}
TEST_F(OnCardBits, OfASwin) {
  for (const char* dtype : {"f32", "bf16", "f16"}) the_same_twice("swin_tiny_cifar", dtype, 64);
}
TEST_F(OnCardBits, OfAResnet) {
  for (const char* dtype : {"f32", "bf16", "f16"}) the_same_twice("resnet50", dtype, 16);
}

}  // namespace
}  // namespace tessera::test::trace_card_test
