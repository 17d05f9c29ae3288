// Batches of pixels, which the program normalises, are to a training and to inference what
// normalised numbers are: the same bits, of a fourth of the bytes.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "config/reader.h"
#include "data/synthetic.h"
#include "input/augment.h"
#include "input/dataset.h"
#include "session/init.h"
#include "train/batches.h"

namespace tessera::run::pixels_test {
namespace {

config::Config small(const std::string& model, const std::string& dtype) {
  config::Config c;
  c.model = models::preset(model);
  c.model.head_init = "normal";
  c.precision.dtype = dtype;
  c.run.threads = 2;
  c.batch = {6, 3, 2};
  c.data.normalize = "imagenet";
  return c;
}

struct Both {
  std::vector<std::uint8_t> pixels;
  std::vector<float> numbers;
  std::vector<std::int32_t> labels;
};
Both images_for(const config::Config& c, int count) {
  Both out;
  const models::ModelConfig& m = c.model;
  data::Image image(count * static_cast<int>(m.image_h), static_cast<int>(m.image_w),
                    static_cast<int>(m.channels));
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(random_bits(Key{4}, i));
  out.pixels = image.pixels;
  out.numbers.resize(image.pixels.size());
  data::Normalise(normalisation(c), static_cast<int>(m.channels))(image, out.numbers);
  for (int i = 0; i < count; ++i) out.labels.push_back(i % static_cast<int>(m.classes));
  return out;
}

TEST(Pixels, GiveTheBitsOfNumbers) {
  for (const char* model : {"vit_micro", "resnet_micro_cifar"})
    for (const char* dtype : {"f32", "bf16", "f64"}) {
      SCOPED_TRACE(std::string(model) + " " + dtype);
      const config::Config c = small(model, dtype);
      const Both images = images_for(c, 6);
      Session bytes(c), floats(c);
      bytes.load(initial_weights(1));
      floats.load(initial_weights(1));
      for (int step = 1; step <= 2; ++step) {
        const StepResult a = bytes.train_step(images.pixels, images.labels, 1e-3, step, 0),
                         b = floats.train_step(images.numbers, images.labels, 1e-3, step, 0);
        EXPECT_EQ(a.loss, b.loss);
        EXPECT_EQ(a.grad_norm, b.grad_norm);
      }
      EXPECT_EQ(bytes.parameters(Weights::live), floats.parameters(Weights::live));
      EXPECT_EQ(bytes.evaluate(images.pixels, images.labels).logits,
                floats.evaluate(images.numbers, images.labels).logits);
    }
}

TEST(Pixels, TakeAFourthOfTheBytes) {
  Session session(small("vit_micro", "f32"));
  const auto bytes = [&](ImageForm form) {
    return session.compiled({Goal::predict, 64, Weights::live, form}).plan.feed_bytes;
  };
  EXPECT_EQ(bytes(ImageForm::numbers), 4 * bytes(ImageForm::pixels));
  EXPECT_EQ(session.compiled(Goal::predict, 64).plan.input("images")->slot.type.dtype,
            ir::DType::u8);
}

config::Config with(const std::vector<std::string>& settings) {
  std::vector<config::Override> overrides;
  for (const std::string& setting : settings) overrides.push_back(config::from_set(setting));
  return config::load({}, overrides, config::Purpose::other);
}

// A drawing of training before normalisation stays pixels, one after it does not.
TEST(Pixels, AreWhatTrainingReadsWhereItCan) {
  for (const char* setting :
       {"data.flip=random", "data.crop=4", "data.resized_crop=true", "data.randaugment=[2, 9]",
        "data.autoaugment=true", "data.color_jitter=[0.4, 0.4]", "data.cutmix=1"})
    EXPECT_EQ(image_form(with({setting}), Goal::train), ImageForm::pixels) << setting;
  for (const char* setting : {"data.mixup=0.8", "data.erase=0.25", "data.cutout=8"}) {
    EXPECT_EQ(image_form(with({setting}), Goal::train), ImageForm::numbers) << setting;
    EXPECT_EQ(image_form(with({setting}), Goal::recalibrate), ImageForm::numbers) << setting;
    EXPECT_EQ(image_form(with({setting}), Goal::evaluate), ImageForm::pixels) << setting;
  }
}

// The loader's pixels, normalised, are the numbers that it would have given.
TEST(Pixels, OfTheLoaderAreItsNumbersBeforeNormalisation) {
  const config::Config c =
      with({"data.flip=random", "data.crop=4", "data.crop_mode=reflect", "data.cutmix=1",
            "data.color_jitter=[0.4]", "data.normalize=cifar10", "data.train_size=40",
            "batch.global=16", "data.workers=0"});
  const auto dataset = open_data(c, data::Split::train);
  data::LoaderOptions options = loader_options(c, *dataset, data::Split::train);
  ASSERT_TRUE(options.bytes);
  data::Loader pixels(*dataset, options);
  options.bytes = false;
  data::Loader numbers(*dataset, options);
  const data::Normalise normalise(normalisation(c), 3);
  bool mixed = false;
  for (int i = 0; i < 4; ++i) {
    data::Batch a, b;
    ASSERT_TRUE(pixels.next(a) && numbers.next(b));
    data::Image image(static_cast<int>(a.count) * a.height, a.width, a.channels);
    ASSERT_EQ(image.pixels.size(), a.pixels.size());
    EXPECT_TRUE(a.images.empty() && b.pixels.empty());
    image.pixels = a.pixels;
    std::vector<float> normalised(a.pixels.size());
    normalise(image, normalised);
    EXPECT_EQ(normalised, b.images);
    EXPECT_EQ(a.targets, b.targets);
    for (const float share : a.targets) mixed |= share > 0 && share < 1;
  }
  EXPECT_TRUE(mixed);
}

}  // namespace
}  // namespace tessera::run::pixels_test
