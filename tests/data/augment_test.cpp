// The transforms as a whole: every draw keyed by the sample, the fused path equal to its parts, any
// size and any number of channels.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "base/check.h"
#include "data/augment.h"
#include "data/augment_color.h"
#include "data/augment_policy.h"

namespace tessera::data::augment_test {
namespace {

Image noise(int h, int w, int c, std::uint64_t seed = 1) {
  Image image(h, w, c);
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(random_bits(Key{seed}, i) >> 56);
  return image;
}

std::vector<float> run(const Transform& transform, const Image& image, const SampleKey& key,
                       std::size_t size) {
  std::vector<float> out(size, -100.0f);
  transform.apply(image, key, out);
  return out;
}

AugmentOptions everything() {
  AugmentOptions o;
  o.crop = 3;
  o.padding = Padding::reflect;
  o.flip = Flip::random;
  o.randaugment_ops = 2;
  o.autoaugment = true;
  o.jitter = {0.4, 0.4, 0.4, 0.1};
  o.erase.probability = 0.7;
  o.erase.random = true;
  o.cutout = 5;
  return o;
}

TEST(Augment, TheFusedPathIsItsParts) {
  for (const int c : {1, 3, 4, 7})
    for (const int pad : {0, 2, 11, 40})
      for (const Padding padding : {Padding::zero, Padding::reflect})
        for (std::int64_t position = 0; position < 20; ++position) {
          AugmentOptions o;
          o.crop = pad;
          o.padding = padding;
          o.flip = Flip::random;
          const Image image = noise(9, 12, c);
          const SampleKey key{5, 2, position, position};
          const Normalisation statistics{std::vector<double>(c, 0.3), std::vector<double>(c, 0.7)};
          Image cropped;
          const Region from =
              pad > 0 ? draw_padded_crop(Draw(key, "crop"), 9, 12, pad) : whole(image);
          crop(image, from, padding, cropped);
          if (flipped(Flip::random, key)) mirror(cropped);
          std::vector<float> parts(cropped.pixels.size());
          Normalise(statistics, c)(cropped, parts);
          EXPECT_EQ(run(make_train_transform(o, 9, 12, c, statistics), image, key, parts.size()),
                    parts)
              << c << " " << pad;
          EXPECT_TRUE(from.top >= -pad && from.top <= pad && from.left >= -pad && from.left <= pad);
        }
}

TEST(Augment, SameKeySameResultOnAnyThread) {
  AugmentOptions cropping = everything();
  cropping.crop = 0;
  cropping.resized_crop = 0.08;
  AugmentOptions late = everything();
  late.resize_first = false;
  for (const AugmentOptions& o : {everything(), cropping, late}) {
    const Transform transform = make_train_transform(o, 16, 20, 3, normalisation("imagenet"));
    const std::size_t size = 16 * 20 * 3;
    std::vector<std::vector<float>> here(24), there(24);
    for (std::size_t i = 0; i < 24; ++i)
      here[i] = run(transform, noise(31, 27, 3, i), {7, 1, static_cast<std::int64_t>(i), 0}, size);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (std::size_t i = 24; i-- > 0;)  // another order, other scratch memory
          if (i % 3 == t)
            there[i] =
                run(transform, noise(31, 27, 3, i), {7, 1, static_cast<std::int64_t>(i), 0}, size);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(here, there);
    const Image image = noise(31, 27, 3);
    const auto first = run(transform, image, {7, 1, 0, 0}, size);
    EXPECT_NE(first, run(transform, image, {7, 2, 0, 0}, size)) << "another epoch";
    EXPECT_NE(first, run(transform, image, {7, 1, 1, 0}, size)) << "another position";
    EXPECT_NE(first, run(transform, image, {8, 1, 0, 0}, size)) << "another seed";
    EXPECT_EQ(first, run(transform, image, {7, 1, 0, 9}, size))
        << "the index matters to alternating flips alone";
  }
}

TEST(Augment, AlternatingFlipsAlternate) {
  int flips = 0;
  for (std::int64_t index = 0; index < 1000; ++index) {
    const auto at = [&](std::int64_t epoch, std::int64_t position) {
      return flipped(Flip::alternating, {3, epoch, position, index});
    };
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) EXPECT_NE(at(epoch, 17), at(epoch + 1, 4));
    flips += at(0, 0);
    EXPECT_FALSE(flipped(Flip::none, {3, 0, index, index}));
  }
  EXPECT_NEAR(flips, 500, 60);
}

// A transform reads no more than it says it wants: anything else may be in the other pixels.
TEST(Augment, ReadsOnlyWhatItWants) {
  AugmentOptions cropping = everything(), margin, plain;
  cropping.crop = 0;
  cropping.resized_crop = 0.08;
  margin.eval_resize = 20;
  plain.flip = Flip::random;
  std::vector<Transform> transforms;
  for (const AugmentOptions& o : {everything(), cropping, plain})
    transforms.push_back(make_train_transform(o, 16, 12, 3, {}));
  for (const AugmentOptions& o : {plain, margin})
    transforms.push_back(make_eval_transform(o, 16, 12, 3, {}));
  std::size_t left_out = 0;
  for (const Transform& transform : transforms)
    for (const auto& [h, w] : {std::pair{16, 12}, {50, 31}, {31, 50}, {7, 90}, {20, 15}, {3, 3}})
      for (std::int64_t position = 0; position < 10; ++position) {
        const SampleKey key{2, 1, position, position};
        const Image image = noise(h, w, 3), other = noise(h, w, 3, 2);
        const Region part = transform.wants_of(key)(h, w).part;
        Image some = other;
        for (int y = part.top; y < part.top + part.h; ++y)
          std::copy_n(image.at(y, part.left), part.w * 3, some.at(y, part.left));
        left_out += some != image;
        EXPECT_EQ(run(transform, some, key, 16 * 12 * 3), run(transform, image, key, 16 * 12 * 3))
            << h << " x " << w;
      }
  EXPECT_GT(left_out, 100u);
}

TEST(Augment, AnySizeAndAnyChannels) {
  AugmentOptions late = everything(), cropping = everything();
  late.resize_first = false;
  cropping.resized_crop = 0.08;
  cropping.crop = 0;
  for (const AugmentOptions& o : {everything(), late, cropping})
    for (const int c : {1, 2, 3, 4, 6})
      for (const auto& [h, w] :
           {std::pair{1, 1}, {1, 9}, {9, 1}, {2, 2}, {32, 32}, {8, 8}, {5, 300}})
        for (std::int64_t position = 0; position < 12; ++position) {
          const Transform transform = make_train_transform(o, 8, 8, c, {});
          for (const float value : run(transform, noise(h, w, c), {1, 0, position, 0},
                                       64 * static_cast<std::size_t>(c)))
            ASSERT_TRUE(value >= -7 && value <= 7)
                << h << " " << w << " " << c;  // -100 where nothing was written
          const Transform eval = make_eval_transform(o, 8, 8, c, {});
          for (const float value : run(eval, noise(h, w, c), {}, 64 * static_cast<std::size_t>(c)))
            ASSERT_TRUE(value >= -1 && value <= 1);
        }
  // A grey picture among coloured ones; more than four channels have no such meaning.
  const auto grey = run(make_eval_transform({}, 4, 4, 3, {}), noise(4, 4, 1), {}, 48);
  EXPECT_EQ(grey[0], grey[1]);
  std::vector<float> out(96);
  EXPECT_THROW(make_eval_transform({}, 4, 4, 6, {}).apply(noise(4, 4, 3), {}, out), Error);
}

TEST(Augment, OneModelPixel) {
  const auto one = run(make_train_transform(everything(), 1, 1, 3, {}), noise(40, 30, 3), {}, 3);
  for (const float value : one) EXPECT_TRUE(value >= -1 && value <= 1);
}

TEST(Augment, EvaluationOfTheModelsSizeIsTheImage) {
  const Image image = noise(6, 5, 3);
  std::vector<float> plain(image.pixels.size());
  Normalise(normalisation("cifar10"), 3)(image, plain);
  AugmentOptions o;
  EXPECT_EQ(run(make_eval_transform(o, 6, 5, 3, normalisation("cifar10")), image, {}, plain.size()),
            plain);
  o.eval_resize = 7;
  EXPECT_EQ(run(make_eval_transform(o, 6, 5, 3, normalisation("cifar10")), image, {}, plain.size()),
            plain);
  o.eval_keep = false;
  EXPECT_NE(run(make_eval_transform(o, 6, 5, 3, normalisation("cifar10")), image, {}, plain.size()),
            plain);
  EXPECT_NEAR(plain[1], (image.pixels[1] / 255.0 - 0.4822) / 0.2435, 1e-5);
}

TEST(Augment, MirrorsABatch) {
  std::vector<float> batch(2 * 3 * 4 * 2);
  std::iota(batch.begin(), batch.end(), 0.0f);
  const std::vector<float> before = batch;
  mirror_batch(batch, 4, 2);
  EXPECT_EQ(std::vector<float>(batch.begin(), batch.begin() + 8),
            (std::vector<float>{6, 7, 4, 5, 2, 3, 0, 1}));
  mirror_batch(batch, 4, 2);
  EXPECT_EQ(batch, before);
}

TEST(Augment, ColourOperationsKeepAlphaAndGrey) {
  for (int op = 6; op <= static_cast<int>(PolicyOp::invert); ++op) {
    const Image before = noise(20, 20, 4);
    Image after = before;
    apply(static_cast<PolicyOp>(op), 4, after);
    for (std::size_t i = 3; i < before.pixels.size(); i += 4)
      ASSERT_EQ(before.pixels[i], after.pixels[i]) << op;
    EXPECT_NE(before, after) << op;
  }
  for (const int c : {1, 2, 6}) {
    const Image before = noise(5, 5, c);
    Image after = before;
    saturation(after, 0.1);
    hue(after, 0.4);
    EXPECT_EQ(before, after);
  }
}

TEST(Augment, RefusesWhatMakesNoSense) {
  const auto refused = [](auto change) {
    AugmentOptions o;
    change(o);
    EXPECT_THROW(make_train_transform(o, 8, 8, 3, {}), Error);
  };
  refused([](AugmentOptions& o) { o.resized_crop = 1.5; });
  refused([](AugmentOptions& o) { o.jitter[3] = 0.6; });
  refused([](AugmentOptions& o) {
    o.randaugment_ops = 2;
    o.randaugment_magnitude = 31;
  });
  refused([](AugmentOptions& o) { o.erase.probability = -1; });
  refused([](AugmentOptions& o) { o.eval_resize = 7; });
  EXPECT_THROW(make_train_transform({}, 8, 8, 1, normalisation("imagenet")), Error);
  EXPECT_THROW(make_train_transform({}, 8, 8, 3, {{0.5f}, {0.0f}}), Error);
  EXPECT_THROW(normalisation("mnist"), Error);
}

// Looked up, but as the formula in double says, rounded once.
TEST(Augment, NormalisedValuesAreRoundedOnce) {
  std::vector<Normalisation> all = {{{0.0f}, {1.0f}}, {{0.3f}, {1e-30f}}, {{1e20f}, {3.0f}}};
  for (const char* preset : {"half", "imagenet", "cifar10", "cifar100"})
    all.push_back(normalisation(preset));
  for (std::uint64_t i = 1; i < 40; ++i)
    all.push_back({{static_cast<float>(uniform(Key{1}, i))}, {0.01f * static_cast<float>(i)}});
  for (const Normalisation& statistics : all)
    for (const int c : {1, 2, 3, 4, 5, 7}) {
      const auto of = [](const std::vector<double>& list, int k) {
        return static_cast<double>(static_cast<float>(list[list.size() == 1 ? 0 : k]));
      };
      if (statistics.mean.size() > 1 && c != 3) continue;
      Image image(3, 257, c);
      for (int x = 0; x < 3 * 257; ++x)
        for (int k = 0; k < c; ++k) image.at(0, x)[k] = static_cast<std::uint8_t>(x + 85 * k);
      const Normalise normalise(statistics, c);
      std::vector<float> out(image.pixels.size());
      normalise(image, out);
      for (int y = 0; y < 3; ++y)
        for (int x = 0; x < 257; ++x)
          for (int k = 0; k < c; ++k)
            ASSERT_EQ(out[static_cast<std::size_t>((y * 257 + x) * c + k)],
                      static_cast<float>((image.at(y, x)[k] / 255.0 - of(statistics.mean, k)) /
                                         of(statistics.deviation, k)))
                << c << " " << x << " " << k;
    }
}

}  // namespace
}  // namespace tessera::data::augment_test
