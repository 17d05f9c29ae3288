// Manifests from outside: what is printed parses back, and whatever else comes is refused with
// Error(weights) and a reason.
#include "files/manifest.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/check.h"
#include "base/rng.h"
#include "files/hash.h"
#include "files/scratch.h"

namespace tessera::files::manifest_test {
namespace {

using nlohmann::json;
using test::error_of;

Manifest sample() {
  Manifest m;
  m.state = {{"progress", {{"step", 7}, {"loss", 0.1}}}, {"classes", {"a", "b"}}};
  m.tensors["param.w"] = {"F32",
                          {4, 3},
                          {{"rank-0.safetensors", "param.w", {0, 0}, {2, 3}, 1},
                           {"rank-1.safetensors", "param.w", {2, 0}, {2, 3}, 2}}};
  m.tensors["adamw.m.w"] = {
      "F32", {}, {{"rank-0.safetensors", "adamw.m.w", {}, {}, 0xffffffffffffffffu}}};
  return m;
}

// The document with the hash that it should have, as a careful forger would write it.
std::string sealed(json document) {
  document.erase("hash");
  document["hash"] = hash_text(
      xxh3(std::string_view(document.dump(-1, ' ', false, json::error_handler_t::replace))));
  return document.dump();
}

TEST(Manifest, PrintsAndParsesBack) {
  const Manifest m = sample(), back = parse_manifest(print(m), "m");
  EXPECT_EQ(print(back), print(m));
  EXPECT_EQ(back.state, m.state);
  EXPECT_EQ(back.tensors.at("param.w").shards[1].offset, (Extents{2, 0}));
}

TEST(Hostile, EveryUnsoundManifestIsRefusedWithItsReason) {
  const json good = json::parse(print(sample()));
  const auto shard = "/tensors/param.w/shards/0";
  const std::vector<std::tuple<std::string, json, std::string>> patches = {
      {"/format", 1, "format 1"},
      {"/format", "2", "format"},
      {"/state", 3, "'state'"},
      {"/tensors", json::array(), "'tensors'"},
      {"/tensors/param.w", 3, "has no 'dtype'"},
      {"/tensors/param.w/dtype", "F33", "unknown dtype"},
      {"/tensors/param.w/dtype", 4, "not a text"},
      {"/tensors/param.w/shape", {4, -3}, "whole numbers"},
      {"/tensors/param.w/shape", {4, 3.0}, "whole numbers"},
      {"/tensors/param.w/shape", {4, 18446744073709551615u}, "whole numbers"},
      {"/tensors/param.w/shape", {4611686018427387904, 4}, "overflows"},
      {"/tensors/param.w/shape", std::vector<int>(17, 1), "list of dims"},
      {"/tensors/param.w/shape", {4, 3, 1}, "number of dims"},
      {"/tensors/param.w/shape", {5, 3}, "12 of its 15"},
      {"/tensors/param.w/shape", {3, 3}, "outside"},
      {"/tensors/param.w/shards", json::array(), "0 of its 12"},
      {"/tensors/param.w/shards", 1, "list of shards"},
      {std::string(shard) + "/file", "../rank-0.safetensors", "impossible name"},
      {std::string(shard) + "/file", "rank-0/../../x.safetensors", "impossible name"},
      {std::string(shard) + "/file", "manifest.json", "impossible name"},
      {std::string(shard) + "/offset", {1, 0}, "overlap"},
      {std::string(shard) + "/offset", {9223372036854775807, 0}, "outside"},
      {std::string(shard) + "/extent", {9223372036854775807, 3}, "outside"},
      {std::string(shard) + "/extent", {1, 3}, "9 of its 12"},
      {std::string(shard) + "/xxh3", "00", "hexadecimal"},
      {std::string(shard) + "/xxh3", "zzzzzzzzzzzzzzzz", "hexadecimal"},
      {std::string(shard) + "/key", nullptr, "not a text"},
  };
  for (const auto& [where, value, words] : patches) {
    json bad = good;
    bad[json::json_pointer(where)] = value;
    const Error error = error_of([&] { parse_manifest(sealed(bad), "bad/manifest.json"); });
    EXPECT_EQ(error.kind, ErrorKind::weights) << where;
    EXPECT_NE(error.message.find(words), std::string::npos) << where << ": " << error.what();
  }
  for (const auto& [text, words] : std::vector<std::pair<std::string, std::string>>{
           {"", "JSON"},
           {"[]", "JSON object"},
           {"{", "JSON"},
           {"{\"a\":1e999}", "JSON"},
           {std::string(100000, '['), "JSON"},
           {"{\"state\":" + std::string(100000, '[') + std::string(100000, ']') + "}",
            "JSON object"},
           {"{\"format\":2}", "'hash'"},
           {print(sample()).replace(print(sample()).find("0.1"), 3, "0.2"), "hash does not fit"}}) {
    const Error error = error_of([&] { parse_manifest(text, "m"); });
    EXPECT_EQ(error.kind, ErrorKind::weights);
    EXPECT_NE(error.message.find(words), std::string::npos) << error.what();
  }
}

TEST(Hostile, MutatedManifestsNeverCrash) {
  const std::string seed_text = print(sample());
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
                                                  "\"shape\"",
                                                  "\"shards\"",
                                                  "\"offset\"",
                                                  "../",
                                                  "\\u0000",
                                                  "\xff"};
  const char* wanted = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const long iterations = wanted ? std::atol(wanted) : 10'000;
  long refused = 0;
  for (long i = 0; i < iterations; ++i) {
    const Key key = Key{11}.with("manifest fuzz").with(static_cast<std::uint64_t>(i));
    std::uint64_t draws = 0;
    const auto pick = [&](std::size_t n) {
      return static_cast<std::size_t>(random_bits(key, draws++) % n);
    };
    std::string mutant = seed_text;
    for (std::size_t step = 1 + pick(3); step > 0 && !mutant.empty(); --step) {
      const std::size_t at = pick(mutant.size());
      switch (pick(6)) {
        case 0:
          mutant[at] = static_cast<char>(mutant[at] ^ (1 << pick(8)));
          break;
        case 1:
          mutant[at] = static_cast<char>('0' + pick(10));
          break;
        case 2:
          mutant.erase(at, 1 + pick(16));
          break;
        case 3:
          mutant.insert(at, tokens[pick(tokens.size())]);
          break;
        case 4:
          mutant.insert(at, mutant.substr(pick(mutant.size()), pick(64)));
          break;
        case 5:
          mutant.resize(at);
          break;
      }
    }
    // A text that still is JSON gets a fitting hash most of the time, so that mutations reach what
    // lies behind it.
    if (json document = json::parse(mutant, nullptr, false); document.is_object() && pick(4))
      mutant = sealed(document);
    try {
      const Manifest m = parse_manifest(mutant, "mutant/manifest.json");
      for (const auto& [name, tensor] : m.tensors) ASSERT_LE(tensor.shape.size(), 16u);
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.kind, ErrorKind::weights) << error.what();
      ASSERT_EQ(std::string(error.what()).find("mutant/manifest.json: "), 0u) << error.what();
    }
  }
  EXPECT_GT(refused, iterations / 2);
}

}  // namespace
}  // namespace tessera::files::manifest_test
