// Text from outside on its way to a terminal: nothing in it steers one, and documents stay what
// they were to a parser.
#include "base/printable.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/check.h"
#include "base/rng.h"
#include "base/say.h"

namespace tessera::test::printable_test {
namespace {

bool harmless(std::string_view text) {
  while (!text.empty()) {
    const std::size_t n = utf8_length(text);
    if (n == 0 || (text[0] != '\n' && !is_printable(text.substr(0, n)))) return false;
    text.remove_prefix(n);
  }
  return true;
}

TEST(Printable, WhatSteersIsWrittenOut) {
  EXPECT_EQ(printable("plain \u00e4\u4e2d\U0001F600"), "plain \u00e4\u4e2d\U0001F600");
  EXPECT_EQ(printable("a\x1b[2J\x07\x7f\n\t"), "a\\x1b[2J\\x07\\x7f\\n\\t");
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("\u0085\u009b"), "\\u0085\\u009b");
  EXPECT_EQ(printable("\u202e\u2066\u2028\u061c\u200b\ufeffx"),
            "\\u202e\\u2066\\u2028\\u061c\\u200b\\ufeffx");
  EXPECT_EQ(printable("\xff\x9b\xc3("), "\\xff\\x9b\\xc3(");
  EXPECT_EQ(printable("\U000e0041"), "\\ue0041");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable_lines("a\nb\x1b\n"), "a\nb\\x1b\n");
}

TEST(Printable, ADocumentSaysTheSameToAParser) {
  EXPECT_EQ(printable_json("{\n \"a\": \"\u009b\u202e\x7f\u00e4\"}"),
            "{\n \"a\": \"\\u009b\\u202e\\u007f\u00e4\"}");
  EXPECT_EQ(printable_json("\"\U000e0041\""), "\"\\udb40\\udc41\"");
  EXPECT_EQ(printable_json("\"\xff\""), "\"\ufffd\"");
}

TEST(Printable, NoBytesGetThrough) {
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    std::string text;
    for (std::uint64_t i = 0; i < 1 + mix(seed) % 12; ++i) {
      const std::uint64_t r = mix(seed * 131 + i);
      if (r % 3 == 0) text += static_cast<char>(r >> 8);
      if (r % 3 == 1) text += "\u009b\u202e\xe2\x80"[(r >> 8) % 7];
      if (r % 3 == 2) text += static_cast<char>((r >> 8) % 0x20);
    }
    ASSERT_TRUE(harmless(printable(text))) << seed;
    ASSERT_EQ(printable(text).find('\n'), std::string::npos) << seed;
    ASSERT_TRUE(harmless(printable_lines(text))) << seed;
    ASSERT_TRUE(harmless(printable_json(text))) << seed;
    ASSERT_TRUE(harmless(Error(ErrorKind::data, text, text, text).and_also(text).what())) << seed;
  }
}

TEST(Printable, AnErrorShowsWhatItKeepsExactly) {
  const std::string name = "a\x1b[2J\nerror: b";
  Error error(ErrorKind::data, "cannot read " + name, name, "remove " + name);
  EXPECT_EQ(error.message, "cannot read " + name);
  EXPECT_EQ(error.where, name);
  EXPECT_EQ(std::string(error.what()),
            "a\\x1b[2J\\nerror: b: cannot read a\\x1b[2J\\nerror: b\n   help: remove "
            "a\\x1b[2J\\nerror: b");
  // A quoted line of a file keeps its place below the message.
  EXPECT_EQ(std::string(Error(ErrorKind::usage, "wrong\n    3 | x = 1\n      | ^").what()),
            "wrong\n    3 | x = 1\n      | ^");
  EXPECT_EQ(std::string(Error(ErrorKind::usage, "wrong\n  120 | x = 1\n12345 | y\n12 x").what()),
            "wrong\n  120 | x = 1\n12345 | y\\n12 x");
}

TEST(Say, ArgumentsStayOnTheirLine) {
  char buffer[256] = "";
  std::FILE* file = ::fmemopen(buffer, sizeof(buffer), "w");
  ASSERT_NE(file, nullptr);
  say(file, "{:6}|{}|{:.1f}\n", std::string("a\nb"), "\x1b", 1.25);
  say_lines(file, "two\nlines\x1b\n");
  say_json(file, "{\"a\": \"\u009b\"}\n");
  std::fclose(file);
  EXPECT_STREQ(buffer, "a\\nb  |\\x1b|1.2\ntwo\nlines\\x1b\n{\"a\": \"\\u009b\"}\n");
}

}  // namespace
}  // namespace tessera::test::printable_test
