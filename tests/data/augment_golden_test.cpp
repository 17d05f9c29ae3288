// Every pixel operation against torchvision and Pillow, byte for byte: tests/golden/augment.txt,
// made by tools/make_augment_golden.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "data/augment.h"
#include "data/augment_color.h"
#include "data/augment_policy.h"

namespace tessera::data::augment_golden_test {
namespace {

using Words = std::vector<std::string>;
using Args = std::vector<double>;

int digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

// H W C PIXELS, the last four words of a line.
Image image_of(const Words& words) {
  const std::size_t n = words.size();
  Image image(std::stoi(words[n - 4]), std::stoi(words[n - 3]), std::stoi(words[n - 2]));
  const std::string& hex = words[n - 1];
  EXPECT_EQ(hex.size(), 2 * image.pixels.size());
  for (std::size_t i = 0; i < image.pixels.size() && 2 * i + 1 < hex.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(16 * digit(hex[2 * i]) + digit(hex[2 * i + 1]));
  return image;
}

struct Golden {
  std::map<std::string, Image> images;
  std::vector<Words> cases, policies, subs;
};

const Golden& golden() {
  static const Golden all = [] {
    Golden g;
    std::ifstream file(TESSERA_SOURCE_DIR "/tests/golden/augment.txt");
    for (std::string line; std::getline(file, line);) {
      std::istringstream in(line);
      Words words;
      for (std::string word; in >> word;) words.push_back(word);
      if (words[0] == "image") g.images[words[1]] = image_of(words);
      if (words[0] == "case") g.cases.push_back(words);
      if (words[0] == "policy") g.policies.push_back(words);
      if (words[0] == "sub") g.subs.push_back(words);
    }
    return g;
  }();
  return all;
}

int whole(double value) { return static_cast<int>(value); }

// With mean 0 and deviation 1/255 a normalised value is the byte itself.
Image bytes_of(const Transform& transform, const Image& image, int h, int w) {
  std::vector<float> values(static_cast<std::size_t>(h) * w * image.c);
  transform.apply(image, {}, values);
  Image out(h, w, image.c);
  std::transform(values.begin(), values.end(), out.pixels.begin(),
                 [](float v) { return static_cast<std::uint8_t>(v + 0.5f); });
  return out;
}

const std::map<std::string, std::function<void(Image&, const Args&)>> operations = {
    {"brightness", [](Image& i, const Args& a) { brightness(i, a[0]); }},
    {"contrast", [](Image& i, const Args& a) { contrast(i, a[0]); }},
    {"saturation", [](Image& i, const Args& a) { saturation(i, a[0]); }},
    {"sharpness", [](Image& i, const Args& a) { sharpness(i, a[0]); }},
    {"hue", [](Image& i, const Args& a) { hue(i, a[0]); }},
    {"posterize", [](Image& i, const Args& a) { posterize(i, whole(a[0])); }},
    {"solarize", [](Image& i, const Args& a) { solarize(i, a[0]); }},
    {"invert", [](Image& i, const Args&) { invert(i); }},
    {"autocontrast", [](Image& i, const Args&) { autocontrast(i); }},
    {"equalize", [](Image& i, const Args&) { equalize(i); }},
    {"resize",
     [](Image& i, const Args& a) {
       const Image in = i;
       resample(in, resized({0, 0, in.h, in.w}, whole(a[0]), whole(a[1])), i);
     }},
    {"resized_crop",
     [](Image& i, const Args& a) {
       const Image in = i;
       resample(
           in,
           resized({whole(a[0]), whole(a[1]), whole(a[2]), whole(a[3])}, whole(a[4]), whole(a[5])),
           i);
     }},
    {"eval",
     [](Image& i, const Args& a) {
       // torchvision sizes the shorter side of the image, we the model's: the same for a square, so
       // the others are asked for directly.
       const Image in = i;
       const int side = whole(a[0]), h = whole(a[1]), w = whole(a[2]);
       if (h == w) {
         AugmentOptions options;
         options.eval_resize = side;
         i = bytes_of(make_eval_transform(options, h, w, in.c, {{0.0f}, {1.0f / 255}}), in, h, w);
       } else {
         resample(in, centered(in.h, in.w, side, side, h, w), i);
       }
     }},
    {"padded_crop",
     [](Image& i, const Args& a) {
       const Image in = i;
       crop(in, {whole(a[2]), whole(a[3]), in.h, in.w},
            a[0] == 0 ? Padding::zero : Padding::reflect, i);
     }},
};

TEST(AugmentGolden, OperationsMatchTorchvision) {
  std::map<std::string, int> seen;
  for (const Words& words : golden().cases) {
    const std::string op = words[1];
    ASSERT_TRUE(operations.contains(op)) << op;
    Args args;
    std::string what = op;
    for (std::size_t i = 2; i + 5 < words.size(); ++i) {
      args.push_back(std::stod(words[i]));
      what += " " + words[i];
    }
    const std::string& name = words[words.size() - 5];
    Image image = golden().images.at(name);
    operations.at(op)(image, args);
    EXPECT_EQ(image, image_of(words)) << what << " of " << name;
    ++seen[op];
  }
  EXPECT_EQ(seen.size(), operations.size());
}

TEST(AugmentGolden, PolicyOperationsMatchTorchvision) {
  std::map<std::string, PolicyOp> ops;
  for (int i = 0; i <= static_cast<int>(PolicyOp::invert); ++i)
    ops[std::string(name(static_cast<PolicyOp>(i)))] = static_cast<PolicyOp>(i);
  std::map<PolicyOp, int> seen;
  for (const Words& words : golden().policies) {
    const PolicyOp op = ops.at(words[1]);
    const int bins = std::stoi(words[2]), bin = std::stoi(words[3]), sign = std::stoi(words[4]);
    Image image = golden().images.at(words[5]);
    EXPECT_TRUE(sign > 0 || is_signed(op)) << words[1];
    apply(op, sign * magnitude(op, bin, bins, image.h, image.w), image);
    EXPECT_EQ(image, image_of(words))
        << words[1] << " " << bins << " " << bin << " " << sign << " of " << words[5];
    ++seen[op];
  }
  EXPECT_EQ(seen.size(), ops.size());
}

TEST(AugmentGolden, AutoAugmentIsThePublishedPolicy) {
  ASSERT_EQ(golden().subs.size(), autoaugment_cifar().size());
  for (std::size_t n = 0; n < golden().subs.size(); ++n)
    for (std::size_t i = 0; i < 2; ++i) {
      const Words& words = golden().subs[n];
      const PolicyStep& step = autoaugment_cifar()[n][i];
      EXPECT_EQ(words[2 + 3 * i], name(step.op)) << n;
      EXPECT_EQ(std::stod(words[3 + 3 * i]), step.probability) << n;
      EXPECT_EQ(std::max(0, std::stoi(words[4 + 3 * i])), step.bin) << n;
    }
}

}  // namespace
}  // namespace tessera::data::augment_golden_test
