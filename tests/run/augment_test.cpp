// The [data] section as options of the data room.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "config/reader.h"
#include "input/augment.h"

namespace tessera::run::augment_test {
namespace {

config::Config with(const std::vector<std::string>& settings) {
  std::vector<config::Override> overrides;
  for (const std::string& setting : settings) overrides.push_back(config::from_set(setting));
  return config::load({}, overrides, config::Purpose::other);
}

TEST(RunAugment, DefaultsChangeNothing) {
  const config::Config config = with({});
  const data::AugmentOptions o = augment_options(config);
  EXPECT_EQ(o.flip, data::Flip::none);
  EXPECT_EQ(o.crop + o.cutout + o.randaugment_ops + o.eval_resize, 0);
  EXPECT_EQ(o.resized_crop + o.erase.probability, 0);
  EXPECT_FALSE(mix_options(config).enabled());
  EXPECT_EQ(normalisation(config).mean, std::vector<double>{0.5});
  data::Image image(32, 32, 3);
  std::vector<float> train(image.pixels.size()), eval(train);
  train_transform(config).apply(image, {}, train);
  eval_transform(config).apply(image, {}, eval);
  EXPECT_EQ(train, eval);
  EXPECT_EQ(train[0], -1.0f);
}

TEST(RunAugment, EveryKeyArrives) {
  const config::Config config =
      with({"data.flip=alternating", "data.crop=4", "data.crop_mode=reflect",
            "data.color_jitter=[0.1, 0.2]", "data.randaugment=[3, 7]", "data.erase=0.25",
            "data.erase_value=random", "data.cutout=8", "data.mixup=0.8", "data.cutmix=1",
            "data.mix_prob=0.5", "data.mix_switch=0.3", "data.normalize=cifar10",
            "data.deviation=[0.25]", "data.resize=after", "loss.label_smoothing=0.1"});
  const data::AugmentOptions o = augment_options(config);
  EXPECT_EQ(o.flip, data::Flip::alternating);
  EXPECT_EQ(o.crop, 4);
  EXPECT_EQ(o.padding, data::Padding::reflect);
  EXPECT_EQ(o.jitter, (std::array<double, 4>{0.1, 0.2, 0, 0}));
  EXPECT_EQ(o.randaugment_ops, 3);
  EXPECT_EQ(o.randaugment_magnitude, 7);
  EXPECT_EQ(o.erase.probability, 0.25);
  EXPECT_TRUE(o.erase.random);
  EXPECT_EQ(o.cutout, 8);
  EXPECT_FALSE(o.resize_first);
  const data::MixOptions m = mix_options(config);
  EXPECT_EQ(m.mixup + m.cutmix + m.probability + m.cutmix_share + m.smoothing,
            0.8 + 1 + 0.5 + 0.3 + 0.1);
  EXPECT_EQ(normalisation(config).mean.size(), 3u);
  EXPECT_EQ(normalisation(config).deviation, std::vector<double>{0.25});
  EXPECT_EQ(augment_options(with({"data.resized_crop=true"})).resized_crop, 0.08);
  EXPECT_TRUE(augment_options(with({"data.autoaugment=true"})).autoaugment);
}

TEST(RunAugment, FoldersHaveAMargin) {
  data::AugmentOptions o =
      augment_options(with({"model.name=vit_b_16", "data.source=folder:photos"}));
  EXPECT_EQ(o.eval_resize, 256);
  EXPECT_TRUE(o.eval_keep);
  o = augment_options(
      with({"model.name=vit_b_16", "data.source=folder:photos", "data.eval_resize=232"}));
  EXPECT_EQ(o.eval_resize, 232);
  EXPECT_FALSE(o.eval_keep);
}

TEST(RunAugment, FollowsWhatTheWeightsSay) {
  config::Config config = with({"model.name=vit_b_16"});
  follow_preprocess({{"mean", {0.1, 0.2, 0.3}}, {"std", {0.4, 0.5, 0.6}}, {"resize", 240}}, "w",
                    config);
  EXPECT_EQ(normalisation(config).mean, (std::vector<double>{0.1, 0.2, 0.3}));
  EXPECT_EQ(normalisation(config).deviation, (std::vector<double>{0.4, 0.5, 0.6}));
  EXPECT_EQ(augment_options(config).eval_resize, 240);
  // No margin: neither of a large photograph, nor is an image of the model's size touched.
  config::Config whole = with({"model.name=vit_b_16", "data.source=folder:photos"});
  follow_preprocess({{"resize", 0}}, "w", whole);
  EXPECT_EQ(augment_options(whole).eval_resize, 224);
  EXPECT_TRUE(augment_options(whole).eval_keep);
  config::Config silent = with({"model.name=vit_b_16"});
  follow_preprocess({}, "w", silent);
  EXPECT_EQ(silent, with({"model.name=vit_b_16"}));
  for (const nlohmann::json& wrong : std::vector<nlohmann::json>{{{"mean", {0.1, 0.2}}},
                                                                 {{"mean", "half"}},
                                                                 {{"std", {1, 0, 1}}},
                                                                 {{"std", {nullptr, 1, 1}}},
                                                                 {{"resize", 100}},
                                                                 {{"resize", -1}},
                                                                 {{"resize", 1e9}},
                                                                 {{"resize", "all"}}})
    EXPECT_THROW(follow_preprocess(wrong, "w", silent), Error) << wrong;
}

}  // namespace
}  // namespace tessera::run::augment_test
