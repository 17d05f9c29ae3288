// Arrays of numbers: what a .npy header may say, what is refused before anything is allocated, and
// how such images become the numbers that a model reads.
#include "data/arrays/npy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "data/augment.h"
#include "data/fixtures.h"
#include "data/folder.h"
#include "data/loader.h"
#include "files/scratch.h"

namespace tessera::data::npy_test {
namespace {

std::string npy(const std::string& dictionary, const std::string& data, int version = 1) {
  std::string header = dictionary;
  const std::size_t front = version == 1 ? 10 : 12;  // NumPy aligns what follows to 64
  header.resize((front + header.size() + 64) / 64 * 64 - front - 1, ' ');
  header += '\n';
  std::string out = "\x93NUMPY";
  out += static_cast<char>(version);
  out += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    out += static_cast<char>(header.size() >> (8 * i) & 255);
  return out + header + data;
}
std::string dictionary(const std::string& descr, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': (" + shape + "), }";
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string out(values.size() * sizeof(T), '\0');
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}
Image read(const std::string& bytes, int channels = 0) {
  Image out;
  decode_npy(std::as_bytes(std::span(bytes)), "x.npy", channels, out);
  return out;
}

TEST(Npy, EveryElementTypeAndOrder) {
  const Image u8 = read(npy(dictionary("|u1", "2, 2"), std::string("\x00\x33\x66\xff", 4)));
  EXPECT_EQ(u8.h * 100 + u8.w * 10 + u8.c, 221);
  EXPECT_EQ(u8.numbers, (std::vector<float>{0.0F, 0.2F, 0.4F, 1.0F}));
  EXPECT_TRUE(u8.pixels.empty());
  const Image u16 =
      read(npy(dictionary("<u2", "1, 2, 1"), bytes_of(std::vector<std::uint16_t>{65535, 13107})));
  EXPECT_EQ(u16.numbers, (std::vector<float>{1.0F, 0.2F}));
  const Image big = read(npy(dictionary(">u2", "1, 2"), std::string("\xff\xff\x33\x33", 4)));
  EXPECT_EQ(big.numbers, u16.numbers);
  const std::vector<float> reals = {-1.5F, 3e5F, 0.25F, 7.0F, 8.0F, 9.0F};
  EXPECT_EQ(read(npy(dictionary("<f4", "1, 2, 3"), bytes_of(reals), 2)).numbers, reals);
  // Column by column: [y][x] = [0][0], [1][0], [0][1], ...
  EXPECT_EQ(read(npy(dictionary("<f4", "2, 3", true), bytes_of(reals))).numbers,
            (std::vector<float>{-1.5F, 0.25F, 8.0F, 3e5F, 7.0F, 9.0F}));
  // Channels first, told by the model's channels alone.
  EXPECT_EQ(read(npy(dictionary("<f4", "2, 1, 3"), bytes_of(reals)), 2).numbers,
            (std::vector<float>{-1.5F, 7.0F, 3e5F, 8.0F, 0.25F, 9.0F}));
  const Image many = read(npy(dictionary("|u1", "3, 2, 11"), std::string(66, 'a')), 11);
  EXPECT_EQ(many.c, 11);
}

TEST(Npy, WhatIsRefused) {
  const std::string four(4, '\0'),
      nan = bytes_of(std::vector<float>{std::numeric_limits<float>::quiet_NaN()});
  const auto refused = [](const std::string& bytes, const std::string& words, int channels = 0) {
    try {
      read(bytes, channels);
      ADD_FAILURE() << "accepted, though " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("x.npy"), std::string::npos) << error.what();
    }
  };
  refused("", "no .npy file");
  refused("\x93NUMPY", "cut off");
  refused(npy(dictionary("|u1", "2, 2"), four, 9), "version 9");
  refused(npy(dictionary("<i8", "2, 2"), four), "expected u1, u2 or f4");
  refused(npy(dictionary("|O", "2, 2"), four), "expected u1, u2 or f4");
  refused(npy(dictionary("|u1", "4,"), four), "expected [height, width]");
  refused(npy(dictionary("|u1", "1, 1, 1, 4"), four), "expected [height, width]");
  refused(npy(dictionary("|u1", "2, 3"), four), "has 6 bytes, the .npy file holds 4");
  refused(npy(dictionary("|u1", "2, 2"), four + "x"), "has 4 bytes");
  refused(npy(dictionary("|u1", "0, 2"), ""), "x.npy");
  // Sizes that no memory holds are found before anything is asked for.
  refused(npy(dictionary("|u1", "99999999999, 2"), four), "x.npy");
  refused(npy(dictionary("|u1", "16000, 4000, 1024"), four), "more than an image may have");
  refused(npy(dictionary("|u1", "2, 2, 18446744073709551615"), four), "1 to 1024 channels");
  refused(npy(dictionary("|u1", "2, 2, 18446744073709551616"), four), "no list of sizes");
  refused(npy(dictionary("<f4", "1, 1"), nan), "not finite");
  refused(npy(dictionary("|u1", "2, 2"), four), "the model reads 3 channels", 3);
  refused(npy("{'descr': '|u1', 'shape': (2, 2), }", four), "lacks one of");
  refused(npy("{'descr': [('a', '|u1')], 'fortran_order': False, 'shape': (2,2)}", four),
          "no quoted word");
  refused(npy(dictionary("|u1", "2, 2") + " x", four), "goes on after its end");
}

// Numbers of the model's size keep every bit that 8-bit pictures would lose.
TEST(Npy, TransformsKeepWhatPixelsWouldLose) {
  Image image;
  image.h = 2;
  image.w = 3;
  image.c = 2;
  image.numbers = {0.001F, 1, 0.002F, 2, 0.003F, 3, 0.004F, 4, 0.005F, 5, 0.006F, 6};
  const Normalisation statistics{{0.5, 1.0}, {0.25, 2.0}};
  std::vector<float> out(12);
  make_eval_transform({}, 2, 3, 2, statistics).apply(image, {}, out);
  for (std::size_t i = 0; i < 12; ++i)
    EXPECT_EQ(out[i],
              static_cast<float>((static_cast<double>(image.numbers[i]) - statistics.mean[i % 2]) /
                                 statistics.deviation[i % 2]));
  AugmentOptions flips;
  flips.flip = Flip::alternating;
  const Transform train = make_train_transform(flips, 2, 3, 2, {{0.0}, {1.0}});
  std::vector<float> even(12), odd(12);
  train.apply(image, {0, 0, 0, 5}, even);
  train.apply(image, {0, 1, 0, 5}, odd);
  mirror_batch(std::span(odd), 3, 2);
  EXPECT_EQ(even, odd);
  // Resizing a ramp of numbers is exact where Pillow would round to a 255th.
  image.h = 1;
  image.w = 2;
  image.c = 1;
  image.numbers = {0.0F, 1e-4F};
  std::vector<float> wide(4);
  AugmentOptions squash;
  squash.eval_squash = true;
  make_eval_transform(squash, 1, 4, 1, {{0.0}, {1.0}}).apply(image, {}, wide);
  const float expected[] = {0.0F, 0.25e-4F, 0.75e-4F, 1e-4F};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(wide[i], expected[i]);
}

TEST(Npy, AFolderOfArraysFeedsTheLoader) {
  const test::Scratch scratch;
  for (const char* name : {"a", "b"})
    for (int i = 0; i < 4; ++i) {
      std::filesystem::create_directories(scratch / name);
      test::write_bytes(scratch / name / (std::to_string(i) + ".npy"),
                        npy(dictionary("<f4", "2, 2, 5"),
                            bytes_of(std::vector<float>(
                                20, static_cast<float>(i) * 100 + (name[0] == 'b' ? 1000 : 0)))));
    }
  test::write_bytes(scratch / "a" / "photo.png", "not an array");
  const auto set = image_folder(scratch.folder(), Split::train,
                                {.channels = 5, .val_fraction = 0.25, .seed = 0, .arrays = true});
  EXPECT_EQ(set->size(), 6);
  EXPECT_EQ(set->ignored(), 1);
  LoaderOptions options;
  options.batch = 6;
  options.height = options.width = 2;
  options.workers = 1;
  options.epochs = 1;
  options.transform = make_eval_transform({}, 2, 2, 5, {{0.0}, {100.0}});
  Loader loader(*set, options);
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  ASSERT_EQ(batch.images.size(), 6u * 20);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(batch.images[i * 20] >= 10.0F, batch.labels[i] == 1) << batch.images[i * 20];
}

}  // namespace
}  // namespace tessera::data::npy_test
