// JSON from outside: what is deeper than anything we write is no JSON.
#include "files/json.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::files::json_test {
namespace {

std::string nested(int levels) {
  const std::size_t n = static_cast<std::size_t>(levels);
  return std::string(n, '[') + std::string(n, ']');
}

TEST(Json, AsDeepAsWeWriteAndNoDeeper) {
  EXPECT_EQ(parse_json(R"({"a": {"b": [1, {"c": 2}]}})")["a"]["b"][1]["c"], 2);
  EXPECT_TRUE(parse_json(nested(json_levels)).is_array());
  EXPECT_TRUE(parse_json(nested(json_levels + 1)).is_discarded());
  EXPECT_TRUE(parse_json(nested(1'000'000)).is_discarded());
  EXPECT_TRUE(parse_json("{\"a\": 1, \"b\": " + nested(json_levels) + "}").is_discarded());
  EXPECT_TRUE(parse_json(std::string(1'000'000, '[')).is_discarded());
}

TEST(Json, WhatIsNotJson) {
  for (const char* text : {"", "{", "{\"a\":}", "[1,]", "nul", "{} {}", "1e999", "\"\\ud800\""})
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
  EXPECT_TRUE(parse_json("null").is_null());
  EXPECT_EQ(parse_json(" 3 "), 3);
}

}  // namespace
}  // namespace tessera::files::json_test
