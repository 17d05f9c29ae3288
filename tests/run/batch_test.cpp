// The values that a batch carries beside images and labels reach the loss: class weights and mixed
// targets, against losses computed by hand from the logits; and test-time augmentation is reported
// beside the score, never in its place.
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "data/loader.h"
#include "input/augment.h"
#include "input/dataset.h"
#include "session/init.h"
#include "train/batches.h"
#include "train/score.h"

namespace tessera::run::batch_test {
namespace {

// Noise; three of four samples are of class 0, the others of classes 1, 2, ... in turn.
class Uneven : public data::Dataset {
 public:
  explicit Uneven(const models::ModelConfig& m)
      : h_(static_cast<int>(m.image_h)),
        w_(static_cast<int>(m.image_w)),
        c_(static_cast<int>(m.channels)) {
    for (std::int64_t i = 0; i < m.classes; ++i) names_.push_back(std::to_string(i));
  }
  std::int64_t size() const override { return 40; }
  const std::vector<std::string>& class_names() const override { return names_; }
  int height() const override { return h_; }
  int width() const override { return w_; }
  int channels() const override { return c_; }
  std::int32_t label(std::int64_t i) const override {
    return i % 4 ? 0 : static_cast<std::int32_t>(1 + i / 4 % (classes() - 1));
  }
  void get(std::int64_t index, const data::Wants&, data::Image& image) const override {
    image.reshape(h_, w_, c_);
    const Key key = Key{9}.with(static_cast<std::uint64_t>(index));
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>(random_bits(key, i));
  }

 private:
  int h_, w_, c_;
  std::vector<std::string> names_;
};

config::Config tiny() {
  config::Config c;
  c.model = models::preset("vit_micro");
  c.model.depth = 1;
  c.model.head_init = "normal";
  c.precision.dtype = "f64";
  c.run.threads = 2;
  c.batch = {40, 40, 1};
  return c;
}

// One step on the first batch of the data, and -log p of every class of every sample before it.
struct Stepped {
  data::Batch batch;
  std::vector<double> nll;  // [n, classes]
  double loss = 0;
};
Stepped step(const config::Config& c, std::int64_t accumulate = 1) {
  config::Config config = c;
  config.batch.accumulate = accumulate;
  const Uneven dataset(c.model);
  data::Loader loader(dataset, loader_options(config, dataset, data::Split::train));
  Stepped out;
  loader.next(out.batch);
  Session session(config);
  session.load(initial_weights(1));
  out.nll = session.predict(images_of(out.batch), out.batch.count);
  const auto classes = static_cast<std::size_t>(c.model.classes);
  for (std::size_t i = 0; i < out.nll.size(); i += classes) {
    double sum = 0;
    for (std::size_t k = 0; k < classes; ++k) sum += std::exp(out.nll[i + k]);
    for (std::size_t k = 0; k < classes; ++k) out.nll[i + k] = std::log(sum) - out.nll[i + k];
  }
  out.loss = session
                 .train_step({images_of(out.batch), out.batch.labels, 1e-3, 1, 0, out.batch.targets,
                              out.batch.weights})
                 .loss;
  return out;
}

TEST(BatchLoss, ClassWeightsCountEveryClassAlike) {
  config::Config c = tiny();
  const std::size_t classes = static_cast<std::size_t>(c.model.classes);
  const auto by_hand = [&](const Stepped& s, bool balanced) {
    std::vector<double> sum(classes), count(classes);
    for (std::size_t i = 0; i < s.batch.labels.size(); ++i) {
      const auto label = static_cast<std::size_t>(s.batch.labels[i]);
      sum[label] += s.nll[i * classes + label];
      count[label] += 1;
    }
    double loss = 0, present = 0, all = 0;
    for (std::size_t k = 0; k < classes; ++k)
      if (count[k] > 0) {
        loss += balanced ? sum[k] / count[k] : sum[k];
        present += 1;
        all += count[k];
      }
    return loss / (balanced ? present : all);
  };
  const Stepped plain = step(c);
  EXPECT_NEAR(plain.loss, by_hand(plain, false), 1e-6);  // pixels and weights of the loader are f32
  c.data.class_weights = "balanced";
  for (const std::int64_t accumulate : {1, 3}) {
    const Stepped s = step(c, accumulate);
    ASSERT_EQ(s.batch.weights.size(), 40u);
    EXPECT_NEAR(s.loss, by_hand(s, true), 1e-6);
    EXPECT_GT(std::abs(s.loss - plain.loss), 1e-4);
  }
}

TEST(BatchLoss, MixedTargetsReachTheLoss) {
  for (const bool cutmix : {false, true}) {
    config::Config c = tiny();
    (cutmix ? c.data.cutmix : c.data.mixup) = 1.0;
    c.loss.label_smoothing = 0.1;
    const Stepped s = step(c);
    const auto classes = static_cast<std::size_t>(c.model.classes);
    const data::Mix how =
        data::draw_mix(mix_options(c), {0, 0, 0, 40, 0}, static_cast<int>(c.model.image_h),
                       static_cast<int>(c.model.image_w));
    ASSERT_EQ(how.is_cutmix(), cutmix);
    ASSERT_LT(how.lambda, 1.0);
    double loss = 0;
    for (std::size_t i = 0; i < 40; ++i) {
      const double* nll = &s.nll[i * classes];
      const auto own = static_cast<std::size_t>(s.batch.labels[i]),
                 other = static_cast<std::size_t>(s.batch.labels[i ^ 1]);
      double mean = 0;
      for (std::size_t k = 0; k < classes; ++k) mean += nll[k] / static_cast<double>(classes);
      loss += 0.9 * (how.lambda * nll[own] + (1 - how.lambda) * nll[other]) + 0.1 * mean;
    }
    EXPECT_NEAR(s.loss, loss / 40, 1e-6);
  }
}

TEST(Score, TestTimeAugmentationIsReportedBesideTheScore) {
  config::Config c = tiny();
  const Uneven dataset(c.model);
  Session session(c);
  session.load(initial_weights(3));
  const Score plain = score(session, c, dataset, 16, 1);
  EXPECT_LT(plain.top1_tta, 0);
  c.data.tta = "flip";
  const Score both = score(session, c, dataset, 16, 1);
  EXPECT_EQ(both.top1, plain.top1);
  EXPECT_EQ(both.loss, plain.loss);
  // By hand: the mean probability of image and mirror image.
  data::LoaderOptions options = loader_options(c, dataset, data::Split::test);
  options.batch = 40;
  data::Loader loader(dataset, options);
  data::Batch b;
  ASSERT_TRUE(loader.next(b));
  const auto classes = static_cast<std::size_t>(c.model.classes);
  std::vector<double> mean(40 * classes);
  for (int view = 0; view < 2; ++view) {
    const std::vector<double> logits = session.predict(b.pixels, 40);
    for (std::size_t i = 0; i < 40; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < classes; ++k) sum += std::exp(logits[i * classes + k]);
      for (std::size_t k = 0; k < classes; ++k)
        mean[i * classes + k] += std::exp(logits[i * classes + k]) / sum;
    }
    data::mirror_batch(std::span(b.pixels), b.width, b.channels);
  }
  int correct = 0;
  for (std::size_t i = 0; i < 40; ++i) {
    const auto row = mean.begin() + static_cast<std::ptrdiff_t>(i * classes);
    correct +=
        std::max_element(row, row + static_cast<std::ptrdiff_t>(classes)) - row == b.labels[i];
  }
  EXPECT_DOUBLE_EQ(both.top1_tta, correct / 40.0);
}

}  // namespace
}  // namespace tessera::run::batch_test
