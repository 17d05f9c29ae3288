// Resizing: what any filter must keep, what it is in exact arithmetic, and that a window is a part
// of the whole. Bytes are compared with Pillow's in augment_golden_test.cpp.
#include "data/resample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "base/check.h"
#include "base/rng.h"

namespace tessera::data::resample_test {
namespace {

Image noise(int h, int w, int c) {
  Image image(h, w, c);
  for (std::size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = static_cast<std::uint8_t>(tessera::mix(i));
  return image;
}

Image resize(const Image& image, int h, int w) {
  Image out;
  resample(image, resized(whole(image), h, w), out);
  return out;
}

TEST(Resample, KeepsConstantsAveragesAndEdges) {
  Image flat(9, 7, 3);
  std::fill(flat.pixels.begin(), flat.pixels.end(), 200);
  for (const auto& [h, w] : {std::pair{3, 2}, {1, 1}, {20, 31}, {9, 14}})
    for (const std::uint8_t value : resize(flat, h, w).pixels) EXPECT_EQ(value, 200);
  // Stripes one pixel wide vanish to grey when shrunk eightfold: that is what antialiasing means.
  Image stripes(32, 32, 1);
  for (int i = 0; i < 1024; ++i) stripes.pixels[i] = i % 2 ? 255 : 0;
  for (const std::uint8_t value : resize(stripes, 4, 4).pixels) EXPECT_NEAR(value, 128, 6);
  // Doubling a ramp interpolates between the pixels' centres.
  Image ramp(1, 2, 1);
  ramp.pixels = {0, 100};
  EXPECT_EQ(resize(ramp, 1, 4).pixels, (std::vector<std::uint8_t>{0, 25, 75, 100}));
  EXPECT_EQ(resize(ramp, 1, 2), ramp);
}

// Two passes, each rounded: exact arithmetic to within a grey level.
TEST(Resample, IsExactToOneLevel) {
  for (const auto& [h, w, to_h, to_w] : {std::tuple{61, 47, 40, 33},
                                         {40, 40, 60, 70},
                                         {90, 91, 13, 11},
                                         {33, 50, 33, 20},
                                         {7, 9, 9, 7}})
    for (const int c : {1, 2, 3, 4, 5}) {
      const Image image = noise(h, w, c);
      Image out;
      const Region part{1, 2, h - 2, w - 3};
      resample(image, resized(part, to_h, to_w), out);
      const auto weight = [](int from, int to, int i, int k) {
        const double scale = static_cast<double>(from) / to, reach = std::max(1.0, scale);
        return std::max(0.0, 1 - std::abs((k + 0.5 - (i + 0.5) * scale) / reach));
      };
      for (int y = 0; y < to_h; ++y)
        for (int x = 0; x < to_w; ++x)
          for (int k = 0; k < c; ++k) {
            double sum = 0, all = 0;
            for (int v = 0; v < part.h; ++v)
              if (const double down = weight(part.h, to_h, y, v); down > 0)
                for (int u = 0; u < part.w; ++u) {
                  const double both = down * weight(part.w, to_w, x, u);
                  sum += both * image.at(part.top + v, part.left + u)[k];
                  all += both;
                }
            ASSERT_NEAR(out.at(y, x)[k], sum / all, 1.01) << h << " " << c << " " << y << " " << x;
          }
    }
}

// One direction as Pillow's C has it: a plain 32-bit sum per value, over `stride` from each of the
// others.
std::vector<std::uint8_t> plainly(const std::vector<std::uint8_t>& from, int size, int to,
                                  std::size_t stride, std::size_t outer) {
  std::vector<std::uint8_t> out(outer * static_cast<std::size_t>(to) * stride);
  const double scale = static_cast<double>(size) / to, reach = std::max(1.0, scale);
  for (int i = 0; i < to; ++i) {
    const double center = (i + 0.5) * scale;
    const int begin = std::max(0, static_cast<int>(center - reach + 0.5)),
              end = std::min(size, static_cast<int>(center + reach + 0.5));
    std::vector<double> real;
    double sum = 0;
    for (int k = begin; k < end; ++k)
      sum += real.emplace_back(std::max(0.0, 1.0 - std::abs((k - center + 0.5) * (1.0 / reach))));
    for (std::size_t o = 0; o < outer; ++o)
      for (std::size_t s = 0; s < stride; ++s) {
        std::int32_t total = 1 << 21;
        for (int k = begin; k < end; ++k)
          total += from[(o * size + k) * stride + s] *
                   static_cast<std::int32_t>(0.5 + real[static_cast<std::size_t>(k - begin)] / sum *
                                                       (1 << 22));
        out[(o * to + i) * stride + s] = static_cast<std::uint8_t>(total >> 22);
      }
  }
  return out;
}

// Whatever instructions a machine has: rows too short for a lookup, parts that end with the row,
// many taps and few, more than four channels.
TEST(Resample, HasTheBitsOfAPlainSum) {
  for (const auto& [h, w, to_h, to_w] : {std::tuple{1, 1, 3, 5},
                                         {2, 5, 1, 2},
                                         {3, 4, 7, 9},
                                         {5, 6, 4, 5},
                                         {9, 11, 9, 30},
                                         {17, 16, 5, 16},
                                         {23, 33, 14, 20},
                                         {40, 50, 63, 81},
                                         {64, 90, 40, 31},
                                         {31, 97, 4, 12},
                                         {12, 200, 9, 7},
                                         {375, 375, 224, 224},
                                         {130, 301, 1, 1}})
    for (const int c : {1, 2, 3, 4, 5})
      for (const int beside : {0, 3}) {  // pixels to the right and below that are not wanted
        Image image = noise(h + beside, w + beside, c);
        for (int x = 0; x < w; ++x) image.at(h / 2, x)[0] = 255;
        std::vector<std::uint8_t> part;
        for (int y = 0; y < h; ++y)
          part.insert(part.end(), image.at(y, 0),
                      image.at(y, 0) + static_cast<std::ptrdiff_t>(w) * c);
        const std::size_t pixel = static_cast<std::size_t>(c);
        const auto wide =
            to_w == w ? part : plainly(part, w, to_w, pixel, static_cast<std::size_t>(h));
        const auto want =
            to_h == h ? wide : plainly(wide, h, to_h, pixel * static_cast<std::size_t>(to_w), 1);
        Image out;
        resample(image, resized({0, 0, h, w}, to_h, to_w), out);
        EXPECT_TRUE(out.pixels == want)
            << h << " x " << w << " x " << c << " to " << to_h << " x " << to_w << ", " << beside;
      }
}

TEST(Resample, AWindowIsThatPartOfTheWhole) {
  for (const auto& [h, w, to_h, to_w] : {std::tuple{61, 47, 40, 33},
                                         {20, 30, 47, 30},
                                         {90, 91, 13, 11},
                                         {5, 3, 5, 40},
                                         {9, 9, 9, 9}})
    for (const int c : {1, 3, 6}) {
      const Image image = noise(h, w, c), all = resize(image, to_h, to_w);
      for (std::uint64_t i = 0; i < 30; ++i) {
        const auto pick = [&, k = std::uint64_t{0}](int n) mutable {
          return static_cast<int>(random_bits(Key{i}, k++) % static_cast<std::uint64_t>(n));
        };
        auto draw = pick;
        const int top = draw(to_h), left = draw(to_w);
        const Resampling how{
            whole(image), to_h, to_w, {top, left, 1 + draw(to_h - top), 1 + draw(to_w - left)}};
        // Pixels that are not read may be anything.
        Image some(h, w, c), out;
        const Region reads = read_by(how);
        for (int y = reads.top; y < reads.top + reads.h; ++y)
          std::copy_n(image.at(y, reads.left), reads.w * c, some.at(y, reads.left));
        resample(some, how, out);
        for (int y = 0; y < out.h; ++y)
          ASSERT_TRUE(std::equal(out.at(y, 0), out.at(y, 0) + out.w * c, all.at(top + y, left)))
              << h << " " << c << " " << y;
      }
    }
}

TEST(Resample, TheMiddleOfACover) {
  const auto windows = [](const Resampling& r) { return std::tuple(r.h, r.w, r.window); };
  EXPECT_EQ(windows(centered(375, 500, 256, 256, 224, 224)),
            std::tuple(256, 341, Region{16, 58, 224, 224}));
  EXPECT_EQ(windows(centered(500, 375, 224, 224, 224, 224)),
            std::tuple(298, 224, Region{37, 0, 224, 224}));
  EXPECT_EQ(windows(centered(8, 8, 4, 8, 4, 8)), std::tuple(8, 8, Region{2, 0, 4, 8}));
  EXPECT_THROW(centered(8, 8, 4, 4, 5, 4), Error);
  Image image(4, 4, 1), out;
  EXPECT_THROW(resample(image, resized({0, 0, 5, 4}, 2, 2), out), Error);
  EXPECT_THROW(resample(image, resized({0, 0, 4, 4}, 2, 2), image), Error);
}

// The numbers of Pillow 11 (Image.resize with BICUBIC).
TEST(Resample, BicubicIsPillows) {
  struct Case {
    int h, w, c, to_h, to_w;
    std::vector<std::uint8_t> pillow;
  };
  const Case cases[] = {
      {9, 7, 3, 4, 5, {105, 124, 160, 101, 112, 180, 82,  125, 161, 139, 173, 156, 143, 202, 140,
                       137, 156, 126, 84,  112, 109, 50,  46,  114, 117, 91,  115, 158, 136, 114,
                       191, 148, 138, 168, 144, 155, 107, 78,  166, 112, 98,  163, 133, 119, 128,
                       141, 85,  86,  159, 130, 123, 134, 152, 159, 97,  129, 113, 97,  75,  64}},
      {4, 5, 3, 7, 6, {0,   35,  171, 82,  99,  210, 123, 91,  174, 74,  144, 188, 27,  252,
                       254, 82,  255, 241, 9,   88,  157, 96,  152, 196, 138, 153, 160, 90,
                       155, 175, 43,  195, 241, 99,  221, 229, 35,  171, 129, 125, 236, 169,
                       168, 249, 135, 121, 176, 151, 75,  105, 217, 132, 142, 206, 62,  112,
                       109, 167, 191, 150, 216, 202, 117, 161, 187, 133, 110, 149, 201, 181,
                       56,  191, 95,  58,  92,  177, 116, 134, 219, 110, 102, 180, 173, 119,
                       141, 208, 189, 189, 18,  179, 142, 160, 77,  89,  83,  120, 74,  32,
                       90,  132, 97,  108, 160, 180, 178, 62,  125, 169, 167, 224, 70,  35,
                       68,  113, 0,   0,   83,  101, 53,  103, 169, 158, 173, 0,   192, 165}},
      {6,
       8,
       1,
       6,
       3,
       {63, 146, 136, 125, 194, 169, 156, 197, 173, 120, 162, 110, 151, 165, 114, 198, 126, 153}}};
  for (const Case& one : cases) {
    Image image(one.h, one.w, one.c), out;
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>(i * i * 37 + i * 11);
    resample(image, resized(whole(image), one.to_h, one.to_w, Filter::bicubic), out);
    EXPECT_EQ(out.pixels, one.pillow) << one.h;
    // The same in real numbers, to a level.
    std::vector<float> numbers(image.pixels.begin(), image.pixels.end()), real;
    resample(numbers, one.h, one.w, one.c,
             resized(whole(image), one.to_h, one.to_w, Filter::bicubic), real);
    for (std::size_t i = 0; i < real.size(); ++i)
      EXPECT_NEAR(std::clamp(real[i], 0.0F, 255.0F), one.pillow[i], 16.0F);
  }
}

}  // namespace
}  // namespace tessera::data::resample_test
