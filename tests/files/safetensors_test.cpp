// Reading and writing sound safetensors files, conversions, and what happens when the path or the
// disk is at fault.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/check.h"
#include "files/safetensors.h"
#include "files/scratch.h"
#include "files/text.h"

namespace tessera::files::safetensors_test {
namespace {

using test::error_of;
using test::Scratch;

template <class T>
NamedTensor tensor(const std::string& name, const std::string& dtype,
                   std::vector<std::int64_t> shape, const std::vector<T>& values) {
  return {name, dtype, std::move(shape), std::as_bytes(std::span(values))};
}

TEST(Safetensors, RoundTrip) {
  const Scratch scratch;
  const std::vector<float> w{1, -2, 3.5f, 4, 5, 6};
  const std::vector<std::int64_t> labels{3, 1};
  const std::vector<std::uint8_t> odd{7, 8, 9};
  const std::vector<double> none;
  write_safetensors(
      scratch / "a.safetensors",
      {tensor("w \"quoted\" \xc3\xa9", "F32", {2, 3}, w), tensor("odd", "U8", {3}, odd),
       tensor("labels", "I64", {2}, labels), tensor("none", "F64", {0, 4}, none)},
      {{"format", "tessera"}, {"line", "a\nb"}});
  const Safetensors read(scratch / "a.safetensors");
  ASSERT_EQ(read.tensors().size(), 4u);
  EXPECT_EQ(read.metadata().at("line"), "a\nb");
  EXPECT_EQ(to_floats(read.read("w \"quoted\" \xc3\xa9")), w);
  EXPECT_EQ(read.at("w \"quoted\" \xc3\xa9").shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(to_doubles(read.read("labels")), (std::vector<double>{3, 1}));
  EXPECT_EQ(to_doubles(read.read("odd")), (std::vector<double>{7, 8, 9}));
  EXPECT_TRUE(to_doubles(read.read("none")).empty());
  for (const auto& [name, view] : read.tensors())
    EXPECT_EQ(view.offset % dtype_size(view.dtype), 0u) << name;
  // Nothing temporary stays behind.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.folder()), {}), 1);
}

TEST(Safetensors, SameInputSameBytesInAnyOrder) {
  const Scratch scratch;
  const std::vector<float> a{1}, b{2};
  write_safetensors(scratch / "1", {tensor("a", "F32", {}, a), tensor("b", "F32", {1}, b)});
  write_safetensors(scratch / "2", {tensor("b", "F32", {1}, b), tensor("a", "F32", {}, a)});
  const std::string text = read_text(scratch / "1");
  EXPECT_EQ(text, read_text(scratch / "2"));
  EXPECT_EQ((text.size() - 8) % 8, 0u);
  EXPECT_EQ(text.substr(8, 53), R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)");
}

TEST(Safetensors, NoTensors) {
  const Scratch scratch;
  write_safetensors(scratch / "e", {});
  EXPECT_TRUE(Safetensors(scratch / "e").tensors().empty());
}

TEST(Safetensors, MovesKeepTheFile) {
  const Scratch scratch;
  const std::vector<float> a{42};
  write_safetensors(scratch / "a", {tensor("a", "F32", {1}, a)});
  std::vector<Safetensors> files;
  for (int i = 0; i < 5; ++i) files.emplace_back(scratch / "a");
  for (const Safetensors& file : files) EXPECT_EQ(to_floats(file.read("a")), a);
}

TEST(Safetensors, UnalignedTensorsAreRead) {
  const std::string header =
      R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"f":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})";
  std::string text(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(text.data(), &length, 8);
  text += header + '\7' + std::string(8, '\0');
  const double value = 2.5;
  std::memcpy(text.data() + text.size() - 8, &value, 8);
  const auto content = parse_safetensors(std::as_bytes(std::span(text)), "f");
  EXPECT_EQ(to_doubles(content.tensors.at("f")), std::vector<double>{2.5});
}

TEST(Safetensors, HalfPrecisionConversions) {
  const auto value = [](const char* dtype, std::uint16_t bits) {
    return to_floats(TensorView{dtype, {1}, std::as_bytes(std::span(&bits, 1))})[0];
  };
  EXPECT_EQ(value("F16", 0x3c00), 1.0f);
  EXPECT_EQ(value("F16", 0xc500), -5.0f);
  EXPECT_EQ(value("F16", 0x7bff), 65504.0f);
  EXPECT_EQ(value("F16", 0x0001), 0x1.0p-24f);
  EXPECT_EQ(value("F16", 0x83ff), -1023 * 0x1.0p-24f);
  EXPECT_TRUE(std::signbit(value("F16", 0x8000)));
  EXPECT_EQ(value("F16", 0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(value("F16", 0x7e00)));
  EXPECT_EQ(value("BF16", 0x3f80), 1.0f);
  EXPECT_EQ(value("BF16", 0xc0a0), -5.0f);
  EXPECT_TRUE(std::isnan(value("BF16", 0x7fc0)));
  // Every finite half by its definition.
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const int exponent = static_cast<int>(bits >> 10 & 31),
              mantissa = static_cast<int>(bits & 1023);
    if (exponent == 31) continue;
    const double size =
        exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
    ASSERT_EQ(value("F16", static_cast<std::uint16_t>(bits)), bits & 0x8000 ? -size : size) << bits;
  }
}

TEST(Safetensors, ErrorsOfThePath) {
  const Scratch scratch;
  EXPECT_NE(std::string(error_of([&] { Safetensors(scratch / "no"); }).what()).find("No such file"),
            std::string::npos);
  EXPECT_EQ(error_of([&] { Safetensors(scratch / "no"); }).kind, ErrorKind::weights);
  EXPECT_NE(
      std::string(error_of([&] { Safetensors(scratch.folder()); }).what()).find("found a folder"),
      std::string::npos);
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_NE(
      std::string(error_of([&] { Safetensors(scratch / "pipe"); }).what()).find("device or pipe"),
      std::string::npos);
  std::ofstream(scratch / "empty");
  EXPECT_NE(std::string(error_of([&] { Safetensors(scratch / "empty"); }).what()).find("too short"),
            std::string::npos);
}

TEST(Safetensors, MissingTensorSuggestsTheNearest) {
  const Scratch scratch;
  const std::vector<float> a{1};
  write_safetensors(scratch / "a", {tensor("encoder.weight", "F32", {1}, a)});
  const Safetensors file(scratch / "a");
  EXPECT_NE(std::string(error_of([&] { file.at("encoder.weigth"); }).what())
                .find("did you mean 'encoder.weight'"),
            std::string::npos);
  EXPECT_EQ(error_of([&] {
              to_floats(TensorView{"F8_E4M3", {0}, {}}, "q");
            }).kind,
            ErrorKind::weights);
}

TEST(Safetensors, OurOwnMistakesAreChecks) {
  const Scratch scratch;
  const std::vector<float> a{1, 2};
  EXPECT_EQ(error_of([&] { write_safetensors(scratch / "a", {tensor("a", "F32", {3}, a)}); }).kind,
            ErrorKind::internal);
  EXPECT_EQ(error_of([&] { write_safetensors(scratch / "a", {tensor("a", "F99", {2}, a)}); }).kind,
            ErrorKind::internal);
  EXPECT_EQ(
      error_of([&] {
        write_safetensors(scratch / "a", {tensor("a", "F32", {2}, a), tensor("a", "F32", {2}, a)});
      }).kind,
      ErrorKind::internal);
  EXPECT_EQ(
      error_of([&] { write_safetensors(scratch / "a", {tensor("\xff", "F32", {2}, a)}); }).kind,
      ErrorKind::internal);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.folder()));
}

// A limit on file sizes stands for a full disk: the write fails midway.
TEST(Safetensors, FullDiskKeepsTheOldFile) {
  const Scratch scratch;
  const std::vector<float> small{1}, large(100'000, 2);
  write_safetensors(scratch / "w", {tensor("a", "F32", {1}, small)});
  const std::string before = read_text(scratch / "w");
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit low = old;
  low.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const Error error =
      error_of([&] { write_safetensors(scratch / "w", {tensor("a", "F32", {100'000}, large)}); });
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error.kind, ErrorKind::disk);
  EXPECT_NE(std::string(error.what()).find((scratch / "w").string()), std::string::npos)
      << error.what();
  EXPECT_EQ(read_text(scratch / "w"), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.folder()), {}), 1);
}

TEST(Text, RoundTripAndRefusals) {
  const Scratch scratch;
  write_atomically(scratch / "t", "one\n");
  write_atomically(scratch / "t", "two\n");
  EXPECT_EQ(read_text(scratch / "t"), "two\n");
  EXPECT_EQ(read_text(scratch / "t", 4), "two\n");
  EXPECT_EQ(error_of([&] { read_text(scratch / "t", 3); }).kind, ErrorKind::usage);
  EXPECT_EQ(error_of([&] { read_text(scratch / "no", 3, ErrorKind::data); }).kind, ErrorKind::data);
  EXPECT_EQ(error_of([&] { write_atomically(scratch / "no" / "t", "x"); }).kind, ErrorKind::disk);
  EXPECT_EQ(error_of([&] { write_atomically(scratch.folder(), "x"); }).kind, ErrorKind::disk);
  EXPECT_EQ(error_of([&] { write_atomically("/dev/null", "x"); }).kind, ErrorKind::disk);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_FALSE(read_text("/proc/self/status").empty());  // claims to have 0 bytes
  EXPECT_EQ(error_of([&] { read_text("/proc/self/status", 10); }).kind, ErrorKind::usage);
  const std::string large(300'000, 'x');
  write_atomically(scratch / "t", large);
  EXPECT_EQ(read_text(scratch / "t"), large);
}

}  // namespace
}  // namespace tessera::files::safetensors_test
