// Hostile safetensors files: each row is a malformed file and the words its refusal must contain;
// then random mutations of a sound one. Convention: a refusal is Error(weights); anything else
// (crash, other exception, wrong acceptance) is a failure.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/rng.h"
#include "files/safetensors.h"

namespace tessera::files::hostile_test {
namespace {

struct Case {
  std::string name, bytes, words;
};

std::string length_prefix(std::uint64_t length) {
  std::string out(8, '\0');
  std::memcpy(out.data(), &length, 8);
  return out;
}

std::string file(const std::string& header, std::size_t data_bytes = 0) {
  return length_prefix(header.size()) + header + std::string(data_bytes, '\1');
}

// One F32 tensor "a" of shape [2] in 8 bytes, with one of its parts replaced.
std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets,
                  std::size_t data_bytes = 8) {
  return file(
      fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets),
      data_bytes);
}

std::string two(const std::string& offsets_a, const std::string& offsets_b,
                std::size_t data_bytes) {
  return file(
      fmt::format(
          R"({{"a":{{"dtype":"F32","shape":[2],"data_offsets":{}}},"b":{{"dtype":"F32","shape":[2],"data_offsets":{}}}}})",
          offsets_a, offsets_b),
      data_bytes);
}

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

std::vector<Case> corpus() {
  const std::string good = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  std::string rank17 = "[" + repeat("1,", 16) + "2]";
  return {
      {"empty file", "", "too short"},
      {"seven bytes", "1234567", "too short"},
      {"header length zero", length_prefix(0) + "{}", "header length is 0"},
      {"header length past the end", length_prefix(100) + "{}", "only 2 bytes follow"},
      {"header length one past the end", length_prefix(3) + "{}", "only 2 bytes follow"},
      {"header length above the cap", length_prefix(100'000'001) + "{}", "at most 100000000"},
      {"header length all ones", length_prefix(~0ull) + "{}", "at most 100000000"},
      {"header length minus eight", length_prefix(~0ull - 7) + "{}", "at most 100000000"},
      {"text, not safetensors", "this is not a tensor file at all", "at most 100000000"},
      {"only spaces", file("        "), "start with '{'"},
      {"leading space", file(" " + good, 8), "start with '{'"},
      {"byte order mark", file("\xef\xbb\xbf" + good, 8), "start with '{'"},
      {"top-level array", file("[1,2]"), "start with '{'"},
      {"top-level number", file("12"), "start with '{'"},
      {"bad UTF-8 in a name", file("{\"\xff\":1}"), "not valid UTF-8 at byte 2"},
      {"overlong UTF-8", file("{\"\xc0\xaf\":1}"), "not valid UTF-8"},
      {"UTF-8 surrogate", file("{\"\xed\xa0\x80\":1}"), "not valid UTF-8"},
      {"UTF-8 cut off", file("{\"\xe2\x82"), "not valid UTF-8"},
      {"UTF-8 above the last code point", file("{\"\xf5\x80\x80\x80\":1}"), "not valid UTF-8"},
      {"zero byte after the object", file(good + std::string(1, '\0') + "junk", 8),
       "zero byte at byte"},
      {"unclosed object", file("{\"a\":"), "not valid JSON"},
      {"unclosed string", file("{\"a"), "not valid JSON"},
      {"trailing comma", file("{\"a\":1,}"), "not valid JSON"},
      {"junk after the object", file(good + "x", 8), "not valid JSON"},
      {"second object", file(good + "{}", 8), "not valid JSON"},
      {"comment", file("{/* */}"), "not valid JSON"},
      {"number out of range", file("{\"a\":1e999}"), "not valid JSON"},
      {"lone surrogate escape", file("{\"\\ud800\":1}"), "not valid JSON"},
      {"control character in a name", file("{\"a\nb\":1}"), "not valid JSON"},
      {"deep arrays", file("{\"a\":" + repeat("[", 1'000'000)),
       "must be an object, found an array"},
      {"deep objects", file(repeat("{\"a\":", 200'000)),
       "unknown key 'a', expected dtype, shape and data_offsets"},
      {"deep metadata", file("{\"__metadata__\":" + repeat("{\"a\":", 100'000)),
       "must be a string, found an object"},
      {"deep shape", entry("\"F32\"", repeat("[", 500'000), "[0,8]"),
       "shape must hold integers >= 0, found an array"},
      {"duplicate tensor",
       file("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"a\":{\"dtype\":"
            "\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"),
       "duplicate key 'a'"},
      {"duplicate tensor by escape",
       file("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"\\u0061\":{\"dtype\":"
            "\"U8\",\"shape\":[0],\"data_offsets\":["
            "0,0]}}"),
       "duplicate key 'a'"},
      {"duplicate metadata object", file("{\"__metadata__\":{},\"__metadata__\":{}}"),
       "duplicate key '__metadata__'"},
      {"duplicate metadata key", file("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"),
       "duplicate key 'k'"},
      {"duplicate dtype",
       file("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[0,0]}}"),
       "duplicate key 'dtype'"},
      {"duplicate shape",
       file("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"shape\":[8],\"data_offsets\":[0,0]}}"),
       "duplicate key 'shape'"},
      {"duplicate offsets",
       file("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,8],\"data_offsets\":[0,0]}"
            "}"),
       "duplicate key 'data_offsets'"},
      {"metadata is a list", file("{\"__metadata__\":[]}"),
       "__metadata__ must be an object of strings"},
      {"metadata is null", file("{\"__metadata__\":null}"),
       "__metadata__ must be an object of strings"},
      {"metadata value is a number", file("{\"__metadata__\":{\"k\":1}}"),
       "__metadata__ 'k' must be a string"},
      {"metadata value is null", file("{\"__metadata__\":{\"k\":null}}"),
       "must be a string, found null"},
      {"metadata value is a list", file("{\"__metadata__\":{\"k\":[\"v\"]}}"),
       "must be a string, found an array"},
      {"tensor is a number", file("{\"a\":3}"), "tensor 'a' must be an object"},
      {"tensor is a string", file("{\"a\":\"F32\"}"),
       "tensor 'a' must be an object, found a string"},
      {"tensor is empty", file("{\"a\":{}}"), "missing key 'dtype'"},
      {"missing shape", file("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}"),
       "missing key 'shape'"},
      {"missing offsets", file("{\"a\":{\"dtype\":\"F32\",\"shape\":[0]}}"),
       "missing key 'data_offsets'"},
      {"extra key",
       file("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"strides\":1}}"),
       "unknown key 'strides'"},
      {"key in the wrong case",
       file("{\"a\":{\"Dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}"),
       "unknown key 'Dtype'"},
      {"unknown dtype", entry("\"F33\"", "[2]", "[0,8]"), "unknown dtype 'F33'"},
      {"lower case dtype", entry("\"f32\"", "[2]", "[0,8]"), "unknown dtype 'f32'"},
      {"empty dtype", entry("\"\"", "[2]", "[0,8]"), "unknown dtype ''"},
      {"control characters in a dtype", entry("\"\\u001b[2J\"", "[2]", "[0,8]"),
       "unknown dtype '\\x1b[2J'"},
      {"dtype is a number", entry("32", "[2]", "[0,8]"), "'dtype' must be a string"},
      {"shape is a number", entry("\"F32\"", "2", "[0,8]"), "'shape' must be an array"},
      {"shape is an object", entry("\"F32\"", "{}", "[0,8]"), "'shape' must be an array"},
      {"negative dim", entry("\"F32\"", "[-2]", "[0,8]"), "negative number -2"},
      {"fractional dim", entry("\"F32\"", "[2.0]", "[0,8]"), "2.0, which is not an integer"},
      {"dim with an exponent", entry("\"F32\"", "[2e0]", "[0,8]"), "not an integer"},
      {"dim is a string", entry("\"F32\"", "[\"2\"]", "[0,8]"), "found a string"},
      {"dim is a boolean", entry("\"F32\"", "[true]", "[0,8]"), "found a boolean"},
      {"dim is null", entry("\"F32\"", "[null]", "[0,8]"), "found null"},
      {"dim above 64 bits", entry("\"F32\"", "[18446744073709551616]", "[0,8]"),
       "overflows 64 bits"},
      {"dim of 64 bits", entry("\"U8\"", "[18446744073709551615]", "[0,8]"), "overflows 63 bits"},
      {"dim of 63 bits times 4", entry("\"F32\"", "[9223372036854775807]", "[0,8]"),
       "overflows 63 bits"},
      {"product wraps to 8 bytes", entry("\"F32\"", "[4611686018427387905,2]", "[0,8]"),
       "overflows 63 bits"},
      {"product wraps to zero", entry("\"F32\"", "[4294967296,4294967296]", "[0,0]", 0),
       "overflows 63 bits"},
      {"overflow hidden by a zero dim", entry("\"F32\"", "[0,4294967296,4294967296]", "[0,0]", 0),
       "overflows 63 bits"},
      {"rank 17", entry("\"F32\"", rank17, "[0,8]"), "more than 16 dims"},
      {"rank one million", entry("\"F32\"", "[" + repeat("1,", 1'000'000) + "1]", "[0,8]"),
       "more than 16 dims"},
      {"offsets is a number", entry("\"F32\"", "[2]", "0"),
       "'data_offsets' must be an array of two"},
      {"no offsets", entry("\"F32\"", "[2]", "[]"), "found 0 numbers"},
      {"one offset", entry("\"F32\"", "[2]", "[0]"), "found 1 numbers"},
      {"three offsets", entry("\"F32\"", "[2]", "[0,4,8]"), "found 3 numbers"},
      {"negative offset", entry("\"F32\"", "[2]", "[-8,0]"), "negative number -8"},
      {"fractional offset", entry("\"F32\"", "[2]", "[0,8.5]"), "not an integer"},
      {"offset above 64 bits", entry("\"F32\"", "[2]", "[0,99999999999999999999]"),
       "overflows 64 bits"},
      {"end before begin", entry("\"F32\"", "[2]", "[8,0]"), "end before they begin"},
      {"end outside the file", entry("\"F32\"", "[2]", "[0,8]", 7), "outside the 7 data bytes"},
      {"begin near 2^64", entry("\"F32\"", "[2]", "[18446744073709551608,18446744073709551615]"),
       "outside the 8 data bytes"},
      {"all data missing", entry("\"F32\"", "[2]", "[0,8]", 0), "outside the 0 data bytes"},
      {"too few bytes for the shape", entry("\"F32\"", "[2]", "[0,4]", 4), "needs 8 bytes"},
      {"too many bytes for the shape", entry("\"F32\"", "[2]", "[0,12]", 12), "needs 8 bytes"},
      {"scalar with two elements", entry("\"F32\"", "[]", "[0,8]"), "needs 4 bytes"},
      {"empty tensor with bytes", entry("\"F32\"", "[0]", "[0,8]"), "needs 0 bytes"},
      {"same bytes twice", two("[0,8]", "[0,8]", 8), "overlap"},
      {"partial overlap", two("[0,8]", "[4,12]", 12), "overlap those of 'a'"},
      {"empty tensor inside another",
       file("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":"
            "\"F32\",\"shape\":[0],\"data_offsets\":[4,4]}"
            "}",
            8),
       "overlap"},
      {"hole at the start", entry("\"F32\"", "[2]", "[4,12]", 12), "hole of 4 bytes"},
      {"hole in the middle", two("[0,8]", "[9,17]", 17), "hole of 1 bytes"},
      {"trailing bytes", entry("\"F32\"", "[2]", "[0,8]", 9), "1 trailing bytes"},
      {"data without tensors", file("{}", 16), "16 trailing bytes"},
      {"padding counted as data", length_prefix(good.size() - 1) + good + std::string(8, '\1'),
       "not valid JSON"},
  };
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Hostile, EveryMalformedFileIsRefusedWithItsReason) {
  const auto cases = corpus();
  EXPECT_GE(cases.size(), 45u);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    try {
      parse_safetensors(bytes_of(c.bytes), "bad.safetensors");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind, ErrorKind::weights);
      EXPECT_NE(std::string(error.what()).find(c.words), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("bad.safetensors"), 0u) << error.what();
      EXPECT_LT(std::strlen(error.what()), 4000u);
    }
  }
}

TEST(Hostile, AllProblemsOfAFileAreToldAtOnce) {
  const std::string bad = file(
      R"({"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]},"b":{"shape":[2],"data_offsets":[0,8]},"c":3,)"
      R"("d":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
      8);
  try {
    parse_safetensors(bytes_of(bad), "f");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* words : {"'c' must be an object", "'a': unknown dtype",
                              "'b': missing key 'dtype'", "'d': shape [3]"})
      EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

// Whatever its value is, nothing more is said of it.
TEST(Hostile, AStrayKeyIsOneMistake) {
  for (const char* value : {"1", "\"x\"", "null", "[1]", "{}"}) {
    try {
      parse_safetensors(
          bytes_of(file(fmt::format(
              R"({{"a":{{"dtype":"U8","shape":[0],"data_offsets":[0,0],"foo":{}}}}})", value))),
          "f");
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.message, "unknown key 'foo', expected dtype, shape and data_offsets");
      EXPECT_TRUE(error.also.empty()) << error.what();
    }
  }
}

TEST(Hostile, ManyProblemsAreCounted) {
  std::string header = "{";
  for (int i = 0; i < 1000; ++i) header += fmt::format("{}\"t{}\":{}", i ? "," : "", i, i);
  try {
    parse_safetensors(bytes_of(file(header + "}")), "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_LE(error.also.size(), 8u);
    EXPECT_NE(std::string(error.what()).find("992 more problems"), std::string::npos)
        << error.what();
  }
}

TEST(Hostile, TooManyTensors) {
  std::string header = "{";
  for (std::size_t i = 0; i <= max_tensors; ++i)
    header += fmt::format("{}\"{}\":{{}}", i ? "," : "", i);
  try {
    parse_safetensors(bytes_of(file(header + "}")), "f");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("more than 1000000 tensors"), std::string::npos)
        << error.what();
  }
}

// A reader may rely on this in whatever was accepted.
void expect_sound(const SafetensorsContent& content, std::span<const std::byte> whole) {
  for (const auto& [name, view] : content.tensors) {
    ASSERT_GE(view.bytes.data(), whole.data());
    ASSERT_LE(view.bytes.data() + view.bytes.size(), whole.data() + whole.size());
    std::uint64_t bytes = dtype_size(view.dtype);
    for (const std::int64_t dim : view.shape) bytes *= static_cast<std::uint64_t>(dim);
    ASSERT_EQ(bytes, view.bytes.size());
  }
}

TEST(Hostile, MutationsNeverCrash) {
  const std::string seed_file = file(
      R"({"__metadata__":{"format":"pt","note":"caf\u00e9"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"s":{"dtype":"I64","shape":[],"data_offsets":[32,40]},)"
      R"("e":{"dtype":"U8","shape":[0,5],"data_offsets":[40,40]}}     )",
      40);
  ASSERT_NO_THROW(parse_safetensors(bytes_of(seed_file), "seed"));
  static const std::vector<std::string> tokens = {"{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  ",",
                                                  ":",
                                                  "\"",
                                                  "-1",
                                                  "0",
                                                  "1e9",
                                                  "99999999999999999999",
                                                  "null",
                                                  "true",
                                                  "\"dtype\"",
                                                  "\"shape\"",
                                                  "\"data_offsets\"",
                                                  "\"F32\"",
                                                  "\\u0000",
                                                  "\xff",
                                                  "__metadata__"};
  const char* wanted = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const long iterations = wanted ? std::atol(wanted) : 20'000;
  long refused = 0;
  for (long i = 0; i < iterations; ++i) {
    const Key key = Key{7}.with("safetensors fuzz").with(static_cast<std::uint64_t>(i));
    std::uint64_t draws = 0;
    const auto pick = [&](std::size_t n) {
      return static_cast<std::size_t>(random_bits(key, draws++) % n);
    };
    std::string mutant = seed_file;
    for (std::size_t step = 1 + pick(4); step > 0 && !mutant.empty(); --step) {
      const std::size_t at = pick(mutant.size());
      switch (pick(8)) {
        case 0:
          mutant[at] = static_cast<char>(mutant[at] ^ (1 << pick(8)));
          break;
        case 1:
          mutant[at] = static_cast<char>(pick(256));
          break;
        case 2:
          mutant.erase(at, 1 + pick(16));
          break;
        case 3:
          mutant.resize(at);
          break;
        case 4:
          mutant.insert(at, tokens[pick(tokens.size())]);
          break;
        case 5:
          mutant.insert(at, mutant.substr(pick(mutant.size()), pick(64)));
          break;
        case 6:
          mutant[at] = static_cast<char>('0' + pick(10));
          break;
        case 7:
          mutant[pick(std::min<std::size_t>(8, mutant.size()))] = static_cast<char>(pick(256));
          break;
      }
      // Keep the length honest half of the time, so that mutations reach the header reader.
      if (mutant.size() > 48 && pick(2))
        mutant.replace(0, 8, length_prefix(mutant.size() - 8 - 40));
    }
    // A copy of exact size, so that the address sanitizer sees a read past the end.
    const std::vector<char> exact(mutant.begin(), mutant.end());
    const auto bytes = std::as_bytes(std::span(exact));
    try {
      expect_sound(parse_safetensors(bytes, "mutant.safetensors"), bytes);
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.kind, ErrorKind::weights) << error.what();
      ASSERT_EQ(std::string(error.what()).find("mutant.safetensors: "), 0u) << error.what();
    }
  }
  EXPECT_GT(refused, iterations / 2);
}

}  // namespace
}  // namespace tessera::files::hostile_test
