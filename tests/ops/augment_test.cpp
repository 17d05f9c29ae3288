// The op augment gives the bits that the loader's own augmentations give, by every device: the same
// draws move the same pixels, whoever moves them.
#include <bit>
#include <cstring>

#include "base/rng.h"
#include "data/device_work.h"
#include "ops/on_device.h"

namespace tessera::test::augment_test {
namespace {

using ir::DType;

struct Setting {
  const char* name;
  data::AugmentOptions augment;
  data::MixOptions mix;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  const auto add = [&](const char* name, const auto& change) {
    Setting s{name, {}, {}};
    change(s);
    all.push_back(s);
  };
  const auto everything = [](Setting& s) {
    s.augment.crop = 4;
    s.augment.flip = data::Flip::random;
    s.augment.cutout = 5;
    s.augment.erase.probability = 0.7;
  };
  add("flip", [](Setting& s) { s.augment.flip = data::Flip::alternating; });
  add("crop", [](Setting& s) { s.augment.crop = 3; });
  add("reflected crop and flip", [](Setting& s) {
    s.augment.crop = 6;
    s.augment.padding = data::Padding::reflect;
    s.augment.flip = data::Flip::random;
  });
  add("erase", [](Setting& s) { s.augment.erase.probability = 0.5; });
  add("everything on one picture", everything);
  add("mixup", [&](Setting& s) {
    everything(s);
    s.mix.mixup = 0.4;
  });
  add("cutmix", [&](Setting& s) {
    everything(s);
    s.mix.cutmix = 1;
  });
  add("both, now and then", [&](Setting& s) {
    everything(s);
    s.mix.mixup = 0.8;
    s.mix.cutmix = 1;
    s.mix.probability = 0.7;
  });
  return all;
}

constexpr int height = 11, width = 9, count = 7;  // the last has no partner
const std::vector<std::int32_t> labels = {0, 3, 1, 2, 4, 0, 2};

// The pictures of a batch, and what the loader makes of them.
struct Batch {
  std::vector<std::uint8_t> pictures;
  std::vector<float> numbers, targets;
  std::vector<PictureDraw> draws;
  std::vector<float> targets_of_draws;
};
Batch batch_of(const Setting& s, int channels, const data::Normalisation& statistics,
               std::int64_t epoch) {
  const std::size_t values = static_cast<std::size_t>(height) * width * channels;
  const data::DeviceWork work = data::device_work(s.augment, s.mix);
  const data::Transform transform =
      data::make_train_transform(s.augment, height, width, channels, statistics);
  const data::BatchPart part{5, epoch, 40, count, 0};
  const data::MixShape shape{height, width, channels, 5};
  Batch b;
  b.numbers.resize(count * values);
  b.targets.resize(count * 5);
  b.targets_of_draws.resize(count * 5);
  for (int i = 0; i < count; ++i) {
    data::Image image(height, width, channels);
    for (std::size_t k = 0; k < values; ++k)
      image.pixels[k] =
          static_cast<std::uint8_t>(random_bits(Key{8}.with(static_cast<std::uint64_t>(i)), k));
    b.pictures.insert(b.pictures.end(), image.pixels.begin(), image.pixels.end());
    const data::SampleKey key{5, epoch, 40 + i, 17 * i};
    transform.apply(image, key,
                    std::span(b.numbers).subspan(static_cast<std::size_t>(i) * values, values));
    b.draws.push_back(data::draw_picture(s.augment, work, height, width, key));
  }
  data::mix(s.mix, part, shape, std::span(b.numbers), labels, b.targets);
  data::draw_partners(data::mix_targets(s.mix, part, shape, labels, b.targets_of_draws), b.draws);
  return b;
}

template <class T>
Array array_of(DType dtype, const ir::Shape& shape, const std::vector<T>& values) {
  Array a(dtype, shape);
  for (std::size_t i = 0; i < values.size(); ++i) a.set(static_cast<std::int64_t>(i), values[i]);
  return a;
}

template <class T>
std::vector<T> partners(const std::vector<T>& all, std::size_t each) {
  std::vector<T> out;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t partner = (i ^ 1) < count ? i ^ 1 : i;
    out.insert(out.end(), all.begin() + static_cast<std::ptrdiff_t>(partner * each),
               all.begin() + static_cast<std::ptrdiff_t>((partner + 1) * each));
  }
  return out;
}

std::vector<Array> operands_of(const Batch& b, int channels, bool mixes) {
  const ir::Shape pictures = {count, height, width, channels}, rows = {count, 16};
  std::vector<std::int32_t> draws(count * 16);
  std::memcpy(draws.data(), b.draws.data(), draws.size() * sizeof(draws[0]));
  std::vector<Array> in = {array_of(DType::u8, pictures, b.pictures),
                           array_of(DType::i32, rows, draws)};
  if (!mixes) return in;
  const auto each = static_cast<std::size_t>(height) * width * channels;
  in.push_back(array_of(DType::u8, pictures, partners(b.pictures, each)));
  in.push_back(array_of(DType::i32, rows, partners(draws, 16)));
  return in;
}

class AugmentOp : public EveryDevice {};
FOR_EVERY_DEVICE(AugmentOp);

TEST_P(AugmentOp, GivesTheBitsOfTheLoader) {
  int mixed = 0;
  for (const Setting& s : settings())
    for (const int channels : {1, 3, 4}) {
      const data::Normalisation statistics =
          channels == 3 ? data::normalisation("cifar10") : data::normalisation("half");
      const ir::Augment attrs{statistics.mean, statistics.deviation, DType::f32,
                              s.augment.padding == data::Padding::reflect};
      const data::DeviceWork work = data::device_work(s.augment, s.mix);
      for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
        SCOPED_TRACE(std::string(s.name) + ", " + std::to_string(channels) + " channels, epoch " +
                     std::to_string(epoch));
        const Batch b = batch_of(s, channels, statistics, epoch);
        EXPECT_EQ(b.targets, b.targets_of_draws);
        for (const PictureDraw& row : b.draws)
          mixed += row.keep != PictureDraw::whole || row.patch.h > 0;
        EXPECT_EQ(b.draws.back().keep, PictureDraw::whole);
        const Array got = run(ir::Op::augment, attrs, operands_of(b, channels, work.mixes))[0];
        for (std::size_t i = 0; i < b.numbers.size(); ++i)
          ASSERT_EQ(
              std::bit_cast<std::uint32_t>(static_cast<float>(got[static_cast<std::int64_t>(i)])),
              std::bit_cast<std::uint32_t>(b.numbers[i]))
              << "value " << i;
      }
    }
  EXPECT_GT(mixed, 50);
}

// Steps that the device cannot do stay with the loader, and with it what comes before.
TEST(DeviceWork, IsWhatComesLast) {
  Setting s{"", {}, {}};
  EXPECT_FALSE(data::device_work(s.augment, s.mix).any());
  s.augment.crop = 4;
  s.augment.cutout = 3;
  s.mix.mixup = 1;
  EXPECT_EQ(data::device_work(s.augment, s.mix), (data::DeviceWork{true, true, true}));
  EXPECT_FALSE(data::touches_pictures(data::left_to_loader(s.augment, {true, true, true})));
  s.augment.randaugment_ops = 2;  // after the crop, so the crop stays with it
  EXPECT_EQ(data::device_work(s.augment, s.mix), (data::DeviceWork{false, true, true}));
  EXPECT_TRUE(data::touches_pictures(data::left_to_loader(s.augment, {false, true, true})));
  s.augment.randaugment_ops = 0;
  s.augment.resize_first = false;  // crops before it resizes
  EXPECT_FALSE(data::device_work(s.augment, s.mix).moves);
  s.augment.resize_first = true;
  s.augment.erase.probability = 0.5;
  s.augment.erase.random = true;
  EXPECT_FALSE(data::device_work(s.augment, s.mix).any());
}

}  // namespace
}  // namespace tessera::test::augment_test
