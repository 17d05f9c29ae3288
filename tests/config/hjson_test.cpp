// The JSON that DeepSpeed reads: what HJSON adds, hostile texts with the words of each refusal, and
// mutants. Convention: only tessera::Error with exit code 2 may escape load_inputs, and it names
// the file.
#include "config/deepspeed/hjson.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "config/print.h"
#include "config/reader.h"

namespace tessera::config::hjson_test {
namespace {

std::string times(int n, std::string_view s) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

TEST(Hjson, WhatDeepSpeedAccepts) {
  const HjsonDocument d = read_hjson(R"(# comment
{ // another
  train_batch_size: 32   /* a third */
  "a": 5e8, 'b': [1, 2.5, -3,], c: true # yes
  d: null, "e": {"f": "x\n\u00e9\ud83d\ude00",},
  g: some words, with a comma
  h: -0.5e-3
})",
                                     "x.json");
  ASSERT_TRUE(d.problems.empty()) << d.problems[0].message;
  const JsonNode& r = d.root;
  EXPECT_EQ(r.find("train_batch_size")->value.integer, 32);
  EXPECT_EQ(r.find("a")->value.real, 5e8);
  EXPECT_EQ(r.find("b")->value.items.size(), 3u);
  EXPECT_TRUE(r.find("c")->value.boolean);
  EXPECT_TRUE(r.find("d")->is_null());
  EXPECT_EQ(r.find("e")->find("f")->value.text, "x\n\u00e9\U0001f600");
  EXPECT_EQ(r.find("g")->value.text, "some words, with a comma");
  EXPECT_EQ(r.find("h")->value.real, -0.5e-3);
  EXPECT_EQ(r.find("h")->place.line, 7);
  EXPECT_EQ(r.find("h")->place.column, 6);
  EXPECT_EQ(read_hjson("a: 1\nb: 2\n", "x").root.members.size(),
            2u);  // the outermost braces may be left out
  EXPECT_EQ(read_hjson("\xef\xbb\xbf{\"a\": 12345678901234567890}", "x").root.find("a")->value.kind,
            Value::Kind::real);
  EXPECT_EQ(read_hjson("{a: 007}", "x").problems.size(),
            1u);  // a text without quotes takes its line, and the brace
}

TEST(Hjson, Base64) {
  EXPECT_EQ(decode_base64("e30="), "{}");
  EXPECT_EQ(decode_base64("e30"), "{}");
  EXPECT_EQ(decode_base64("_-8"), "\xff\xef");
  EXPECT_EQ(decode_base64("/+8="), "\xff\xef");
  for (const char* bad : {"", "=", "a", "a b", "ds.json", "abcde"})
    EXPECT_FALSE(decode_base64(bad)) << bad;
}

struct Bad {
  std::string text, says;
};
const std::vector<Bad>& corpus() {
  static const std::vector<Bad> all = {
      {"{", "the object is not closed"},
      {"{\"a\"", "expected ':' after the key"},
      {"{\"a\":", "expected a value"},
      {"{\"a\": 1", "the object is not closed"},
      {"{\"a\": 1}}", "something stands after the end"},
      {"{\"a\": 1} x", "something stands after the end"},
      {"[]", "expected an object, found a list"},
      {"{\"a\": \"x}", "this text is not closed"},
      {"{\"a\": \"x\ny\"}", "this text is not closed"},
      {"{\"a\": \"\\q\"}", "a backslash stands before"},
      {"{\"a\": \"\\u12\"}", "four hexadecimal digits"},
      {"{\"a\": \"\\ud800\"}", "half of a surrogate pair"},
      {"{\"a\": \"\\ud800\\u0041\"}", "half of a surrogate pair"},
      {"{\"a\": '''x'''}", "multi-line texts are not read"},
      {"{\"a\": [1, 2", "the list is not closed"},
      {"{/* ", "this comment is not closed"},
      {"{,}", "expected a key"},
      {"{\"a\" 1}", "expected ':' after the key"},
      {"{\"train_batch_size\": 1, \"train_batch_size\": 2}",
       "the key \"train_batch_size\" stands twice in one object"},
      {"{\"train_batch_size\": 1, \"x\": {\"a\": 1,\n\"a\": 2}}",
       "the key \"a\" stands twice in one object"},
      {"{\"x\": [{\"a\": 1, \"a\": 2}]}", "stands twice"},
      {"{\"a\": \"\xff\"}", "not valid UTF-8"},
      {"\x7f\x45LF\x02\x01", "not valid JSON"},
      {"[batch]\nglobal = 3\n", "expected an object, found a list"},
      {times(100000, "{\"a\":"), "values nest deeper than 64"},
      {"{\"a\": " + times(100000, "[") + "}", "values nest deeper than 64"},
      {std::string("{\"train_batch_size\": 8, \"x\0\": 1}", 32), "(accepted)"},
      {std::string((1 << 20) + 1, ' '), "larger than 1 MiB"},
      {"{" + times(20000, "\"k\": 1, ") + "}", "19979 more of the kind"},
  };
  return all;
}

std::string outcome(const std::string& text) {
  try {
    load_inputs({"", "", text, "ds.json", {}, Purpose::other, 1});
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    EXPECT_NE(std::string(e.what()).find("ds.json"), std::string::npos) << e.what();
    EXPECT_LT(std::string(e.what()).size(), 20000u);
    return e.what();
  }
  return "(accepted)";
}

TEST(Hostile, EveryDeepSpeedFileIsRefusedClearly) {
  for (const Bad& bad : corpus()) {
    const std::string message = outcome(bad.text);
    EXPECT_NE(message.find(bad.says), message.npos)
        << bad.text.substr(0, 80) << "\n"
        << message.substr(0, 1000) << "\nlacks: " << bad.says;
  }
}

TEST(Hostile, DeepSpeedMutants) {
  std::vector<std::string> seeds = {
      R"({"train_batch_size": 32, "gradient_accumulation_steps": 1, "micro_batch_per_gpu": 16, "fp16": {"enabled": false},
 "zero_optimization": {"stage": 2, "offload_param": {"device": "none"}}, "pipeline": {"pipe_partitioned": false}})",
      R"({train_micro_batch_size_per_gpu: 4 # per rank
 optimizer: {type: "AdamW", params: {lr: 1e-3, betas: [0.9, 0.95], weight_decay: "auto"}},
 scheduler: {type: "WarmupCosineLR", params: {total_num_steps: 100, warmup_num_steps: 10}}, bf16: {enabled: true}})",
      R"({"train_batch_size": "auto", "gradient_clipping": 1.0, "tensorboard": {"enabled": true}, "wandb": {"enabled": false}})"};
  for (const Bad& bad : corpus())
    if (bad.text.size() < 500) seeds.push_back(bad.text);
  const std::vector<std::string> tokens = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           ":",
                                           ",",
                                           "\"",
                                           "'",
                                           "#",
                                           "//",
                                           "/*",
                                           "*/",
                                           "\n",
                                           "\\u",
                                           "1e308",
                                           "-",
                                           "null",
                                           "true",
                                           "\"auto\"",
                                           "9223372036854775807",
                                           "\xff",
                                           "\xc3\xa9",
                                           "\"stage\": 3,",
                                           "\"enabled\":"};
  const char* wish = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const long iterations = wish ? std::atol(wish) : 3000;
  std::mt19937_64 random(2);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  long accepted = 0;
  for (long i = 0; i < iterations; ++i) {
    std::string text = i % 2 == 0 ? seeds[below(3)] : seeds[below(seeds.size())];
    for (std::size_t m = below(4) + 1; m > 0; --m) {
      const std::size_t at = below(text.size() + 1);
      switch (below(5)) {
        case 0:
          text.insert(at, tokens[below(tokens.size())]);
          break;
        case 1:
          text.erase(at, below(8) + 1);
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(random());
          break;
        case 3:
          text.insert(at, text.substr(below(text.size() + 1), below(40)));
          break;
        case 4:
          if (at < text.size() && text[at] >= '0' && text[at] <= '9')
            text[at] = static_cast<char>('0' + below(10));
          break;
      }
    }
    const int world = static_cast<int>(below(5));
    try {
      const Loaded l = load_inputs({"", "", text, "ds.json", {}, Purpose::other, world});
      ++accepted;
      ASSERT_EQ(load_text(to_toml(l.config), "again.toml", {}, Purpose::other, world), l.config)
          << text;
      ASSERT_FALSE(to_json(l).empty());
      ASSERT_FALSE(effective_text(l.deepspeed).empty());
    } catch (const Error& e) {
      ASSERT_EQ(e.exit_code(), 2) << e.what() << "\n" << text;
      ASSERT_NE(std::string(e.what()).find("ds.json"), std::string::npos) << e.what() << "\n"
                                                                          << text;
    }
  }
  EXPECT_GT(accepted, iterations / 50);
}

}  // namespace
}  // namespace tessera::config::hjson_test
