// Normalise in a program gives the bits that the loader's own normalisation gives, by every device,
// for every pixel: whether batches are pixels or numbers is no difference to a training.
#include <bit>

#include "base/rng.h"
#include "data/normalise.h"
#include "ops/on_device.h"

namespace tessera::test::normalise_test {
namespace {

using ir::DType;

class Normalise : public EveryDevice {};
FOR_EVERY_DEVICE(Normalise);

TEST_P(Normalise, GivesTheBitsOfTheLoader) {
  std::vector<data::Normalisation> all = {
      {{0.0}, {1.0}}, {{0.3}, {1e-30}}, {{1e20}, {3.0}}, {{0.1}, {0.1}}};
  for (const char* preset : {"half", "imagenet", "cifar10", "cifar100"})
    all.push_back(data::normalisation(preset));
  for (std::uint64_t i = 1; i < 40; ++i)
    all.push_back({{uniform(Key{1}, i)}, {0.01 * static_cast<double>(i)}});
  for (const data::Normalisation& statistics : all)
    for (const int c : {1, 2, 3, 4, 5, 7}) {
      if (statistics.mean.size() > 1 && c != 3) continue;
      data::Image image(3, 257, c);
      for (int x = 0; x < 3 * 257; ++x)
        for (int k = 0; k < c; ++k) image.at(0, x)[k] = static_cast<std::uint8_t>(x + 85 * k);
      std::vector<float> want(image.pixels.size());
      data::Normalise(statistics, c)(image, want);
      Array x(DType::u8, {image.h, image.w, image.c});
      for (std::size_t i = 0; i < want.size(); ++i)
        x.set(static_cast<std::int64_t>(i), image.pixels[i]);
      const Array got =
          run(ir::Op::normalise, ir::Normalise{statistics.mean, statistics.deviation, DType::f32},
              {x})[0];
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_EQ(
            std::bit_cast<std::uint32_t>(static_cast<float>(got[static_cast<std::int64_t>(i)])),
            std::bit_cast<std::uint32_t>(want[i]))
            << c << " channels, mean " << statistics.mean[0] << ", value " << i;
    }
}

}  // namespace
}  // namespace tessera::test::normalise_test
