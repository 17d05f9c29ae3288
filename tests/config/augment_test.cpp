// The keys of the augmentations: what true and false stand for, lists, and what does not go
// together.
#include <gtest/gtest.h>

#include "config/fields.h"
#include "config/print.h"
#include "config/reader.h"

namespace tessera::config::augment_test {
namespace {

Config with(const std::vector<std::string>& settings) {
  std::vector<Override> overrides;
  for (const std::string& setting : settings) overrides.push_back(from_set(setting));
  return load({}, overrides, Purpose::other);
}

std::string refusal(const std::vector<std::string>& settings) {
  try {
    with(settings);
  } catch (const Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "accepted: " << settings[0];
  return "";
}

void expect_refused(const std::vector<std::string>& settings, const std::string& words) {
  const std::string message = refusal(settings);
  EXPECT_NE(message.find(words), message.npos) << message;
  EXPECT_EQ(message.find("also:"), message.npos) << message;
}

TEST(AugmentKeys, TrueAndFalseStandForWordsNumbersAndLists) {
  for (const auto& text :
       {"[data]\nflip = true\nresized_crop = true\nrandaugment = true\n",
        "[data]\nflip = \"random\"\nresized_crop = 0.08\nrandaugment = [2, 9]\n"}) {
    const Config c = load_text(text, "x.toml", {}, Purpose::other);
    EXPECT_EQ(c.data.flip, "random");
    EXPECT_EQ(c.data.resized_crop, 0.08);
    EXPECT_EQ(c.data.randaugment, (std::vector<double>{2, 9}));
    EXPECT_EQ(load_text(to_toml(c), "x.toml", {}, Purpose::other), c);
  }
  const Config off = with({"data.flip=false", "data.resized_crop=false", "data.randaugment=false"});
  EXPECT_EQ(off.data, Config{}.data);
  EXPECT_EQ(with({"data.flip=true"}).data.flip, "random");
  EXPECT_EQ(with({"data.flip=alternating"}).data.flip, "alternating");
  EXPECT_EQ(with({"data.resized_crop=0.25"}).data.resized_crop, 0.25);
  EXPECT_EQ(with({"data.randaugment=[1, 14]"}).data.randaugment, (std::vector<double>{1, 14}));
  expect_refused({"data.flip=sometimes"}, "choose none, random or alternating");
  expect_refused({"data.shuffle=random"}, "expected true or false");
  expect_refused({"data.resized_crop=1.5"}, "out of range");
}

TEST(AugmentKeys, RoundTrip) {
  const Config c =
      with({"data.normalize=cifar10", "data.mean=[0.1, 0.2, 0.3]", "data.deviation=[0.25]",
            "data.crop=4", "data.crop_mode=reflect", "data.color_jitter=[0.4, 0.4]",
            "data.autoaugment=true", "data.erase=0.25", "data.erase_value=random", "data.cutout=8",
            "data.mixup=0.8", "data.cutmix=1", "data.mix_prob=0.5", "data.mix_switch=0.3",
            "data.eval_resize=36", "data.tta=flip", "data.resize=after"});
  EXPECT_EQ(load_text(to_toml(c), "x.toml", {}, Purpose::other), c);
  EXPECT_EQ(c.data.color_jitter.size(), 2u);
}

TEST(AugmentKeys, RefusesWhatDoesNotGoTogether) {
  expect_refused({"data.crop=4", "data.resized_crop=true"}, "choose one of the two crops");
  expect_refused({"data.autoaugment=true", "data.randaugment=true"},
                 "choose one of the two policies");
  expect_refused({"data.randaugment=[2]"}, "for example [2, 9]");
  expect_refused({"data.randaugment=[0, 9]"}, "for example [2, 9]");
  expect_refused({"data.randaugment=[2, 9.5]"}, "for example [2, 9]");
  expect_refused({"data.randaugment=[2, 31]"}, "out of range");
  expect_refused({"data.randaugment=[1, 2, 3]"}, "at most 2 numbers");
  expect_refused({"data.randaugment=3"}, "expected a list of numbers");
  expect_refused({"data.color_jitter=[0.1, 0.1, 0.1, 0.6]"}, "at most 0.5");
  expect_refused({"data.color_jitter=[1, 1, 1, 0.1, 1]"}, "at most 4 numbers");
  expect_refused({"data.mean=[0.5, 0.5]"}, "one per channel");
  expect_refused({"data.deviation=[0]"}, "out of range");
  expect_refused({"data.normalize=imagenet", "data.source=synthetic:32x32x1,10"},
                 "about 3 channels, not 1");
  expect_refused({"data.eval_resize=31"}, "less than the model's 32 pixels");
  EXPECT_NO_THROW(with({"data.normalize=imagenet", "data.mean=[0.5]", "data.deviation=[0.5]",
                        "data.source=synthetic:32x32x1,10"}));
}

}  // namespace
}  // namespace tessera::config::augment_test
