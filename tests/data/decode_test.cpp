// Decoding: every PNG and JPEG flavour we promise, then hostile input (cut off, bits flipped,
// impossible sizes).
#include "data/decode.h"

#include <gtest/gtest.h>
#include <spng.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/rng.h"
#include "data/encoders.h"
#include "files/scratch.h"

namespace tessera::data::decode_test {
namespace {

using test::Bytes;
using test::encode_jpeg;
using test::encode_png;
using test::error_of;
using test::Scratch;
using test::smooth_image;

int worst_difference(const Image& a, const Image& b) {
  EXPECT_EQ(a.pixels.size(), b.pixels.size());
  int worst = 0;
  for (std::size_t i = 0; i < std::min(a.pixels.size(), b.pixels.size()); ++i)
    worst = std::max(worst, std::abs(a.pixels[i] - b.pixels[i]));
  return worst;
}

TEST(Png, RoundTripOfEveryChannelCount) {
  const Scratch scratch;
  for (int c = 1; c <= 4; ++c) {
    Image image(7, 5, c);
    for (std::size_t i = 0; i < image.pixels.size(); ++i)
      image.pixels[i] = static_cast<std::uint8_t>(tessera::mix(i));
    write_png(scratch / "picture.jpg", image);  // the name does not matter
    EXPECT_EQ(decode_image(scratch / "picture.jpg"), image) << c;
  }
}

TEST(Png, SixteenBitsAreRounded) {
  const std::vector<std::uint16_t> samples{0, 128, 129, 257, 32767, 65535};
  const Image grey = decode_image(
      encode_png({1, 6, 16, SPNG_COLOR_TYPE_GRAYSCALE, false, {}, {}}, samples.data(), 12), "g");
  EXPECT_EQ(grey.pixels, (std::vector<std::uint8_t>{0, 0, 1, 1, 127, 255}));
  EXPECT_EQ(decode_image(encode_png({1, 2, 16, SPNG_COLOR_TYPE_TRUECOLOR, false, {}, {}},
                                    samples.data(), 12),
                         "rgb")
                .c,
            3);
  EXPECT_EQ(decode_image(encode_png({1, 3, 16, SPNG_COLOR_TYPE_GRAYSCALE_ALPHA, false, {}, {}},
                                    samples.data(), 12),
                         "ga")
                .c,
            2);
}

TEST(Png, GreyBelowEightBitsIsSpread) {
  const std::uint8_t two_bits = 0b00011011, one_bit = 0b10100000;
  EXPECT_EQ(decode_image(
                encode_png({1, 4, 2, SPNG_COLOR_TYPE_GRAYSCALE, false, {}, {}}, &two_bits, 1), "g")
                .pixels,
            (std::vector<std::uint8_t>{0, 85, 170, 255}));
  EXPECT_EQ(decode_image(
                encode_png({1, 3, 1, SPNG_COLOR_TYPE_GRAYSCALE, false, {}, {}}, &one_bit, 1), "g")
                .pixels,
            (std::vector<std::uint8_t>{255, 0, 255}));
}

TEST(Png, Palettes) {
  const std::uint8_t indices[] = {1, 0, 1};
  const Image opaque = decode_image(
      encode_png({1, 3, 8, SPNG_COLOR_TYPE_INDEXED, false, {0x102030, 0xff0080}, {}}, indices, 3),
      "p");
  EXPECT_EQ(opaque.c, 3);
  EXPECT_EQ(opaque.pixels, (std::vector<std::uint8_t>{255, 0, 128, 16, 32, 48, 255, 0, 128}));
  const Image clear = decode_image(
      encode_png({1, 3, 8, SPNG_COLOR_TYPE_INDEXED, false, {0x102030, 0xff0080}, {7}}, indices, 3),
      "p");
  EXPECT_EQ(clear.c, 4);
  EXPECT_EQ(clear.pixels,
            (std::vector<std::uint8_t>{255, 0, 128, 255, 16, 32, 48, 7, 255, 0, 128, 255}));
  const std::uint8_t outside[] = {1, 2, 0};  // index 2 has no colour: black, as everywhere
  const Image black = decode_image(
      encode_png({1, 3, 8, SPNG_COLOR_TYPE_INDEXED, false, {0x102030, 0xff0080}, {}}, outside, 3),
      "p");
  EXPECT_EQ(black.pixels, (std::vector<std::uint8_t>{255, 0, 128, 0, 0, 0, 16, 32, 48}));
}

TEST(Png, Interlaced) {
  const Image image = smooth_image(13, 11, 3);
  EXPECT_EQ(decode_image(encode_png({13, 11, 8, SPNG_COLOR_TYPE_TRUECOLOR, true, {}, {}},
                                    image.pixels.data(), image.pixels.size()),
                         "i"),
            image);
}

TEST(Jpeg, GreyColourAndProgressive) {
  for (const int c : {1, 3}) {
    const Image image = smooth_image(33, 47, c);
    EXPECT_LE(worst_difference(decode_image(encode_jpeg(image, 95), "j"), image), 6) << c;
    EXPECT_LE(worst_difference(decode_image(encode_jpeg(image, 95, true), "j"), image), 6) << c;
  }
}

TEST(Jpeg, CmykAndYcckBecomeRgb) {
  // Without an Adobe marker 255 is full ink; with one (the encoder writes it for both) values are
  // inverted: 255 is no ink.
  const Image cmyk = smooth_image(16, 16, 4);
  Image expected(16, 16, 3);
  for (int i = 0; i < 256; ++i)
    for (int k = 0; k < 3; ++k)
      expected.pixels[3 * i + k] =
          static_cast<std::uint8_t>(cmyk.pixels[4 * i + k] * cmyk.pixels[4 * i + 3] / 255);
  for (const bool ycck : {false, true}) {
    const Image image = decode_image(encode_jpeg(cmyk, 98, false, ycck), "j");
    EXPECT_EQ(image.c, 3);
    EXPECT_LE(worst_difference(image, expected), 6) << ycck;
  }
}

std::vector<Bytes> samples() {
  const Image image = smooth_image(40, 40, 3);
  return {encode_png({40, 40, 8, SPNG_COLOR_TYPE_TRUECOLOR, false, {}, {}}, image.pixels.data(),
                     image.pixels.size()),
          encode_jpeg(image, 90), encode_jpeg(image, 90, true)};
}

TEST(Hostile, EveryTruncationIsRefused) {
  for (const Bytes& whole : samples())
    for (std::size_t sixteenth = 0; sixteenth < 16; ++sixteenth) {
      const Bytes part(whole.begin(),
                       whole.begin() + static_cast<std::ptrdiff_t>(whole.size() * sixteenth / 16));
      const Error error = error_of([&] { decode_image(part, "cut.img"); });
      EXPECT_EQ(error.kind, ErrorKind::data);
      EXPECT_EQ(std::string(error.what()).find("cut.img"), 0u) << error.what();
    }
  // The last bytes too; only the checksum of PNG's empty end mark may be missing.
  for (const Bytes& whole : samples())
    for (std::size_t missing = whole[0] == std::byte{0x89} ? 5 : 1; missing < 20; ++missing)
      EXPECT_EQ(error_of([&] {
                  decode_image(std::span(whole).first(whole.size() - missing), "cut");
                }).kind,
                ErrorKind::data)
          << missing;
}

// A flip may hit a comment or turn one valid picture into another; it must never crash or throw
// anything but Error(data).
TEST(Hostile, BitFlipsNeverCrash) {
  const Wants middle = [](int height, int width) {
    return Want{{height / 4, width / 4, (height + 1) / 2, (width + 1) / 2}, 3, 5};
  };
  const char* wanted = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const std::uint64_t rounds = wanted ? std::strtoull(wanted, nullptr, 10) : 1500;
  int kind = 0;
  for (const Bytes& whole : samples()) {
    std::uint64_t refused = 0;
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const Key key = Key{3}.with("image fuzz").with(static_cast<std::uint64_t>(kind)).with(i);
      Bytes mutant = whole;
      for (std::uint64_t k = 0; k <= i % 4; ++k)
        mutant[3 + random_bits(key, 2 * k) % (mutant.size() - 3)] ^=
            static_cast<std::byte>(1u << random_bits(key, 2 * k + 1) % 8);
      try {
        Image image;  // whole, or shrunk and cropped on the way
        decode_image(mutant, "mutant.img", i % 2 ? middle : Wants{}, image,
                     {512, 1 << 16, 1 << 20});
      } catch (const Error& error) {
        ++refused;
        ASSERT_EQ(error.kind, ErrorKind::data) << error.what();
        ASSERT_EQ(std::string(error.what()).find("mutant.img: "), 0u) << error.what();
      }
    }
    if (kind++ == 0) {
      EXPECT_GT(refused, rounds * 95 / 100);  // PNG has checksums
    }
  }
}

TEST(Hostile, HugeDimensionsAreRefusedBeforeAllocation) {
  const std::uint8_t pixel[3] = {};
  Bytes png = encode_png({1, 1, 8, SPNG_COLOR_TYPE_TRUECOLOR, false, {}, {}}, pixel, 3);
  const auto crc = [](std::span<const std::byte> bytes) {
    std::uint32_t value = ~0u;
    for (const std::byte b : bytes) {
      value ^= static_cast<std::uint32_t>(b);
      for (int k = 0; k < 8; ++k) value = value & 1 ? 0xedb88320u ^ value >> 1 : value >> 1;
    }
    return ~value;
  };
  const auto put = [](std::byte* at, std::uint32_t value) {
    for (int k = 0; k < 4; ++k) at[k] = static_cast<std::byte>(value >> (24 - 8 * k));
  };
  const auto resized = [&](std::uint32_t w, std::uint32_t h) {
    Bytes out = png;  // signature 8, length 4, "IHDR" 4, width, height, ...
    put(&out[16], w);
    put(&out[20], h);
    put(&out[29], crc(std::span(out).subspan(12, 17)));
    return out;
  };
  EXPECT_NO_THROW(decode_image(resized(1, 1), "ok"));
  for (const auto& [w, h] : {std::pair{0x0fffffffu, 1u},
                             {1u, 0x7fffffffu},
                             {0x0fffffffu, 0x7fffffffu},
                             {16385u, 1u},
                             {16384u, 16384u}})
    EXPECT_NE(
        std::string(error_of([&, w = w, h = h] { decode_image(resized(w, h), "big"); }).what())
            .find("at most 16384 a side"),
        std::string::npos)
        << w << " " << h;
  for (const auto& [w, h] :
       {std::pair{0u, 1u}, {1u, 0u}, {0x7fffffffu, 1u}, {0xffffffffu, 0xffffffffu}})
    EXPECT_EQ(error_of([&, w = w, h = h] { decode_image(resized(w, h), "big"); }).kind,
              ErrorKind::data);
  // Within the limits, but not with so few bytes.
  EXPECT_NE(std::string(error_of([&] { decode_image(resized(8000, 8000), "lie"); }).what())
                .find("cannot hold"),
            std::string::npos);

  Bytes jpeg = encode_jpeg(smooth_image(8, 8, 3), 90);
  for (std::size_t i = 0; i + 9 < jpeg.size(); ++i)
    if (jpeg[i] == std::byte{0xff} && jpeg[i + 1] == std::byte{0xc0})
      jpeg[i + 5] = jpeg[i + 7] = std::byte{0xfe};
  EXPECT_NE(std::string(error_of([&] { decode_image(jpeg, "big"); }).what()).find("65032 x 65032"),
            std::string::npos);
}

TEST(Hostile, WhatIsNoImage) {
  const Scratch scratch;
  std::ofstream(scratch / "empty.png");
  std::ofstream(scratch / "text.png") << "hello";
  std::ofstream(scratch / "signature.png") << "\x89PNG\r\n\x1a\n";
  std::ofstream(scratch / "signature.jpg") << "\xff\xd8\xff";
  for (const char* name :
       {"no.png", "empty.png", "text.png", "signature.png", "signature.jpg", ""}) {
    const Error error = error_of([&] { decode_image(scratch / name); });
    EXPECT_EQ(error.kind, ErrorKind::data) << name;
    EXPECT_NE(std::string(error.what()).find(scratch.folder().string()), std::string::npos)
        << error.what();
  }
  EXPECT_NE(std::string(error_of([&] {
                          decode_image(scratch / "text.png", {16384, 1 << 20, 4});
                        }).what())
                .find("at most 4"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { write_png(scratch / "no" / "a.png", Image(1, 1, 3)); }).kind,
            ErrorKind::disk);
}

TEST(Geometry, Channels) {
  Image rgb(1, 2, 3);
  rgb.pixels = {255, 255, 255, 255, 0, 0};
  EXPECT_EQ(to_channels(rgb, 1).pixels, (std::vector<std::uint8_t>{255, 76}));
  EXPECT_EQ(to_channels(rgb, 4).pixels,
            (std::vector<std::uint8_t>{255, 255, 255, 255, 255, 0, 0, 255}));
  EXPECT_EQ(to_channels(to_channels(rgb, 4), 3), rgb);
  EXPECT_EQ(to_channels(to_channels(rgb, 1), 3).pixels,
            (std::vector<std::uint8_t>{255, 255, 255, 76, 76, 76}));
  Image grey_alpha(1, 1, 2);
  grey_alpha.pixels = {9, 5};
  EXPECT_EQ(to_channels(grey_alpha, 4).pixels, (std::vector<std::uint8_t>{9, 9, 9, 5}));
  EXPECT_EQ(to_channels(grey_alpha, 1).pixels, (std::vector<std::uint8_t>{9}));
}

// A decoder that is asked for a part gives the same pixels there as one that is asked for all.
TEST(Jpeg, ThePartIsThatPartOfTheWhole) {
  std::uint64_t next = 0;
  const auto below = [&](int n) {
    return static_cast<int>(random_bits(Key{7}, next++) % static_cast<std::uint64_t>(n));
  };
  for (const int c : {1, 3, 4})
    for (const bool progressive : {false, true})
      for (const auto& [h, w] : {std::pair{187, 250}, {250, 187}, {61, 300}, {33, 17}, {8, 8}}) {
        Image noise(h, w, c);  // edges everywhere, also in colour
        for (std::size_t i = 0; i < noise.pixels.size(); ++i)
          noise.pixels[i] = static_cast<std::uint8_t>(tessera::mix(i));
        const Bytes jpeg = encode_jpeg(noise, 90, progressive);
        for (const int shrink : {1, 2, 4})
          for (int i = 0; i < 12; ++i) {
            const double top = below(100) / 100.0, left = below(100) / 100.0,
                         tall = below(100) / 100.0, wide = below(100) / 100.0;
            const auto wants = [&, shrink = shrink](int height, int width) {
              const auto part = [](int side, double at, double share) {
                const int begin = static_cast<int>(at * side);
                return std::pair{begin, 1 + static_cast<int>(share * (side - begin - 1))};
              };
              const auto [y, part_h] = part(height, top, tall);
              const auto [x, part_w] = part(width, left, wide);
              return Want{{y, x, part_h, part_w}, part_h / shrink, part_w / shrink};
            };
            Image some, all;
            decode_image(jpeg, "part", wants, some);
            const auto everything = [&, h = h, w = w](int height, int width) {
              int n = 8;  // eighths
              for (const int k : {1, 2, 3, 4})
                if ((h * k + 7) / 8 == some.h && (w * k + 7) / 8 == some.w) n = k;
              return Want{{0, 0, height, width}, h * n / 8, w * n / 8};
            };
            decode_image(jpeg, "whole", everything, all);
            ASSERT_EQ(std::tuple(some.h, some.w, some.c), std::tuple(all.h, all.w, all.c));
            const Region part = wants(some.h, some.w).part;
            for (int y = part.top; y < part.top + part.h; ++y)
              ASSERT_TRUE(std::equal(some.at(y, part.left), some.at(y, part.left) + part.w * some.c,
                                     all.at(y, part.left)))
                  << h << " x " << w << " x " << c << " shrunk to " << some.h << ": row " << y
                  << " of " << part.h << " x " << part.w << " at " << part.top << ", " << part.left;
          }
      }
}

// The faster transform is taken where the picture will be shrunk, and is off by little even before
// that.
TEST(Jpeg, TheFasterTransformIsClose) {
  for (const int quality : {75, 95, 100}) {
    const Bytes jpeg = encode_jpeg(smooth_image(120, 160, 3), quality);
    Image fast;
    decode_image(
        jpeg, "fast",
        [](int h, int w) {
          return Want{{0, 0, h, w}, h * 2 / 3, w * 2 / 3};
        },
        fast);
    EXPECT_LE(worst_difference(fast, decode_image(jpeg, "exact")), 4) << quality;
  }
}

// Even where what is missing was not wanted.
TEST(Hostile, TruncationsBelowThePartAreRefused) {
  const Bytes whole = encode_jpeg(smooth_image(200, 200, 3), 90);
  const auto top = [](int, int width) { return Want{{0, 0, 20, width}}; };
  Image image;
  EXPECT_NO_THROW(decode_image(whole, "whole", top, image));
  for (const std::size_t missing : {1u, 2u, 50u, 500u})
    EXPECT_EQ(error_of([&] {
                decode_image(std::span(whole).first(whole.size() - missing), "cut", top, image);
              }).kind,
              ErrorKind::data);
  Bytes longer = whole;  // what cameras append is no harm
  longer.resize(whole.size() + 100);
  EXPECT_NO_THROW(decode_image(longer, "longer", top, image));
}

}  // namespace
}  // namespace tessera::data::decode_test
