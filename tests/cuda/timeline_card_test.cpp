// Sampled steps on the card, which replay a second form of the graph with events in it, and what a
// card may give up for speed.
#include <cmath>
#include <set>

#include "cuda/card.h"
#include "session/init.h"

namespace tessera::test::timeline_card_test {
namespace {

struct Trained {
  std::vector<double> loss, grad_norm;
  std::map<std::string, std::vector<double>> weights;
  std::vector<exec::Timeline> timelines;
};

// Steps of one session; a span for every step of the plan in those that are named.
Trained trained(const config::Config& c, int steps, const std::set<int>& sampled) {
  run::Session session(c);
  session.load(run::initial_weights(3));
  Trained out;
  for (int step = 1; step <= steps; ++step) {
    const Samples s = samples_of(c.model, step, c.batch.global);
    run::StepResult r = session
                            .submit({.images = s.images,
                                     .labels = s.labels,
                                     .lr = 1e-3,
                                     .step = step,
                                     .position = step * 100},
                                    sampled.contains(step))
                            .wait();
    EXPECT_TRUE(r.ok);
    out.loss.push_back(r.loss);
    out.grad_norm.push_back(r.grad_norm);
    out.timelines.push_back(std::move(r.timeline));
  }
  for (const models::Param& p : models::parameters(c.model))
    out.weights[p.name] = session.parameter(p.name);
  return out;
}

class OnCardTimelines : public OnCard {};

TEST_F(OnCardTimelines, OfSampledStepsChangeNothing) {
  int seen = 0;
  for (const auto& [model, dtype] : {std::pair{"vit_micro", "bf16"}, std::pair{"swin_micro", "f32"},
                                     std::pair{"resnet_micro_cifar", "bf16"}}) {
    SCOPED_TRACE(model);
    config::Config c = preset_on("cuda", model, dtype, 16);
    if (c.model.family == "vit") c.model.dropout = 0.1;
    const std::set<int> sampled = {3, 6};
    const Trained plain = trained(c, 8, {}), looked_at = trained(c, 8, sampled);
    EXPECT_EQ(looked_at.loss, plain.loss);
    EXPECT_EQ(looked_at.grad_norm, plain.grad_norm);
    EXPECT_TRUE(looked_at.weights == plain.weights) << "the weights have other bits";
    for (int step = 1; step <= 8; ++step) {
      const exec::Timeline& t = looked_at.timelines[static_cast<std::size_t>(step - 1)];
      EXPECT_GT(t.wall_ms, 0) << step;
      EXPECT_EQ(t.spans.empty(), !sampled.contains(step)) << step;
      double sum = 0;
      for (const exec::Timeline::Span& span : t.spans) {
        EXPECT_LE(span.start, span.end) << step;
        if (span.stream == 0) sum += span.end - span.start;
      }
      // The parts together take no longer than the step took.
      if (sampled.contains(step)) {
        EXPECT_GT(sum, 0) << step;
        EXPECT_LE(sum, 1.05 * t.wall_ms) << step;
      }
      ++seen;
    }
  }
  RecordProperty("cases", seen);
}

double apart(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / norm);
}

class OnCardLiberties : public OnCard {};

// Without the switch f32 is f32; with it factors keep 10 bits, which shows.
TEST_F(OnCardLiberties, Tf32IsASwitch) {
  for (const char* model : {"vit_micro", "resnet_micro_cifar"}) {
    SCOPED_TRACE(model);
    const auto logits = [&](const char* device, bool tf32) {
      config::Config c = preset_on(device, model, "f32", 16);
      c.precision.tf32 = tf32;
      run::Session session(c);
      session.load(run::initial_weights(3));
      return session.predict(samples_of(c.model, 1, 16).images, 16);
    };
    const std::vector<double> want = logits("cpu", false), exact = logits("cuda", false),
                              rounded = logits("cuda", true);
    EXPECT_LT(apart(exact, want), 1e-4);
    EXPECT_LT(apart(rounded, want), 2e-2);
    if (std::string(model) == "vit_micro") {
      EXPECT_GT(apart(rounded, want), 10 * apart(exact, want));
    }
  }
}

// Results that need not be the same bits are close to them.
TEST_F(OnCardLiberties, AnyOrderIsNearAFixedOne) {
  config::Config c = preset_on("cuda", "resnet_micro_cifar", "bf16", 32);
  const Trained fixed = trained(c, 3, {});
  c.run.deterministic = false;
  const Trained any = trained(c, 3, {});
  EXPECT_LE(difference(any.loss, fixed.loss), 5e-2);
  EXPECT_LE(difference(any.grad_norm, fixed.grad_norm), 0.2);
}

}  // namespace
}  // namespace tessera::test::timeline_card_test
