// Schedules that people write: what is wrong is named with its place, all of it at once; hostile
// text is refused without harm.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"
#include "transforms/schedules.h"

namespace tessera::transforms::schedule_text_test {
namespace {

// Gives what the parser says about a text or, where that takes it, check(); "" when neither does.
std::string verdict(const std::string& text) {
  try {
    check(parse_schedule(text, "s.txt"), "s.txt");
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::usage);
    EXPECT_FALSE(e.hint.empty());
    return e.what();
  }
  return {};
}

struct Row {
  std::string text;
  std::vector<std::string> words;
};
void expect_refused(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    const std::string said = verdict(row.text);
    for (const std::string& words : row.words)
      EXPECT_NE(said.find(words), said.npos) << row.text << "\nsays: " << said;
  }
}

TEST(ScheduleText, PeopleMayWriteIt) {
  const Schedule s = parse_schedule(
      "# mine\n\n  schedule my-own.2   micros=2 stages=2   # two of each\r\nrank 1:\tF1.0 B1.0  "
      "F1.1 B1.1\r\nrank 0: F0.0 F0.1 B0.0 B0.1",
      "s.txt");
  check(s);
  EXPECT_EQ(s.name, "my-own.2");
  EXPECT_EQ(print(s),
            "schedule my-own.2 stages=2 micros=2\nrank 0: F0.0 F0.1 B0.0 B0.1\nrank 1: F1.0 B1.0 "
            "F1.1 B1.1\n");
  EXPECT_EQ(s.home(1), 1);
  EXPECT_EQ(s.home(2), -1);
}

TEST(ScheduleText, SyntaxIsRefusedWithItsPlace) {
  const std::string head = "schedule x stages=2 micros=2\n";
  expect_refused({
      {"", {"s.txt:1:1: expected 'schedule NAME stages=N micros=N', found no such line"}},
      {"rank 0: F0.0\n",
       {"s.txt:1:1: expected 'schedule NAME stages=N micros=N' before the first rank"}},
      {"schedule\n",
       {"s.txt:1:1: expected 'schedule NAME'", "found nothing", "expected stages=N",
        "expected micros=N"}},
      {"schedule a/b stages=1 micros=1\n", {"s.txt:1:10:", "found 'a/b'"}},
      {"schedule x stages=0 micros=5000 ranks=1\n",
       {"s.txt:1:19: expected a number from 1 to 4096, found '0'",
        "s.txt:1:28: expected a number from 1 to 4096, found '5000'",
        "s.txt:1:33: expected stages=N or micros=N, found 'ranks=1'"}},
      {"schedule x stages=2 stages=2 micros=1\n", {"s.txt:1:21: stages is given twice"}},
      {"schedule x stages=4096 micros=4096\nrank 0: F0.0\n",
       {"s.txt:1:1: stages x micros is more than 1000000 turns"}},
      {head, {"expected a line 'rank 0: ...'"}},
      {head + head, {"s.txt:2:1: a second 'schedule' line"}},
      {head + "stage 0: F0.0\n",
       {"s.txt:2:1: expected 'schedule NAME ...' or 'rank N: ...', found 'stage'"}},
      {head + "rank\n", {"s.txt:2:1: expected 'rank N:' with N from 0 to 1023, found nothing"}},
      {head + "rank 1024: F0.0\n", {"s.txt:2:6:", "found '1024:'"}},
      {head + "rank 99999999999999999999: F0.0\n",
       {"s.txt:2:6:", "found '99999999999999999999...'"}},
      {head + "rank 0: F0.0\nrank 0: F0.1\n",
       {"s.txt:3:6: a second line of rank 0; the first is line 2"}},
      {head + "rank 1: F0.0\n", {"rank 0 has no line"}},
      {head + "rank 0: F0.0 G0.0 F0 F0.1x B.1 F-1.0 F99999999999.0 \x1b[31m\n",
       {"s.txt:2:14: expected a turn such as F0.1", "found 'G0.0'", "s.txt:2:19:", "s.txt:2:22:",
        "s.txt:2:28:", "s.txt:2:32:", "s.txt:2:38:", "found '?[31m'"}},
      {head + "rank 0: F2.0 B0.2\n",
       {"s.txt:2:9: F2.0 has no such stage; there are 0 to 1",
        "s.txt:2:14: B0.2 has no such micro-batch; there are 0 to 1"}},
  });
}

TEST(ScheduleCheck, NamesTheEntry) {
  const std::string one = "schedule x stages=1 micros=2\n", two = "schedule x stages=2 micros=2\n";
  expect_refused({
      {one + "rank 0: F0.0 F0.1 B0.0\n", {"s.txt: B0.1 is missing"}},
      {one + "rank 0: F0.0 B0.0 W0.0 F0.1 B0.1\n", {"W0.1 is missing"}},
      {one + "rank 0: F0.0 F0.1 W0.0 W0.1\n", {"B0.0 is missing", "B0.1 is missing"}},
      {one + "rank 0: F0.0 F0.1 F0.0\n",
       {"rank 0, turn 3: F0.0 stands there a second time; the first is rank 0, turn 1"}},
      {one + "rank 0: F0.0 B0.1 F0.1 B0.0\n",
       {"rank 0, turn 2: B0.1 comes before F0.1 (turn 3), which it needs",
        "rank 0, turn 4: B0.0 comes after B0.1; micro-batches must ascend"}},
      {one + "rank 0: F0.1 F0.0\n",
       {"rank 0, turn 2: F0.0 comes after F0.1; micro-batches must ascend"}},
      {one + "rank 0: F0.0 F0.1 W0.0 B0.0 B0.1 W0.1\n",
       {"rank 0, turn 3: W0.0 comes before B0.0 (turn 4), which it needs"}},
      {one + "rank 0: F0.0 F0.1\nrank 1:\n", {"rank 1 has no turn"}},
      {two + "rank 0: F1.0 F0.0 F0.1 F1.1\n",
       {"rank 0, turn 1: F1.0 comes before F0.0 (turn 2), which it needs"}},
      {two + "rank 0: F0.0 F0.1 F1.1\nrank 1: F1.0\n",
       {"rank 1, turn 1: F1.0 puts stage 1 on a second rank; it lives at rank 0, turn 3"}},
  });
}

TEST(ScheduleCheck, NamesWhoWaitsForWhom) {
  EXPECT_NE(verdict("schedule x stages=2 micros=3\n"
                    "rank 0: F0.0 F0.1 B0.0 B0.1 F0.2 B0.2\n"
                    "rank 1: F1.0 B1.0 F1.1 F1.2 B1.1 B1.2\n")
                .find("s.txt: deadlock: rank 0 waits in B0.1 for B1.1 of rank 1, which waits in "
                      "F1.2 for F0.2 of rank 0\n"),
            std::string::npos);
  // Rank 2 waits too, but not in the circle; and what is wrong besides is said as well.
  const std::string said = verdict(
      "schedule x stages=3 micros=2\n"
      "rank 0: F0.0 B0.0 F0.1 B0.1\n"
      "rank 1: F1.0 F1.1 B1.0 B1.1\n"
      "rank 2: F2.0 B2.0 F2.1 F2.0 B2.1\n");
  EXPECT_NE(said.find("rank 2, turn 4: F2.0 stands there a second time"), std::string::npos)
      << said;
  EXPECT_NE(said.find("deadlock: rank 0 waits in B0.0 for B1.0 of rank 1, which waits in F1.1 for "
                      "F0.1 of rank 0\n"),
            std::string::npos)
      << said;
  EXPECT_EQ(said.find("of rank 2"), std::string::npos) << said;
}

// No text can hold these.
TEST(ScheduleCheck, RefusesValuesOutOfRange) {
  const auto said = [](Schedule s) -> std::string {
    try {
      check(s);
    } catch (const Error& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_NE(said({"x", 1, 1, {{{-1, 0, Work::forward}, {0, 5, Work::backward}}}})
                .find("schedule x: rank 0, turn 1: F-1.0 has no such stage"),
            std::string::npos);
  EXPECT_NE(said({"x", 1 << 30, 1 << 30, {{{0, 0, Work::forward}}}})
                .find("stages = 1073741824 is not from 1 to 4096"),
            std::string::npos);
  EXPECT_NE(said({"x", 1, 1, {}}).find("ranks = 0 is not from 1 to 1024"), std::string::npos);
  // A thousand problems are counted, twenty are shown.
  const std::string many = said({"x", 1, 1001, {{{0, 0, Work::forward}}}});
  EXPECT_NE(many.find("980 more problems"), std::string::npos) << many;
}

// Every mutant is taken (then printing and parsing agree, and check decides) or refused by an Error
// of few words.
TEST(ScheduleText, HostileMutants) {
  const std::vector<std::string> seeds = {print(interleaved(2, 2, 5)), print(zb_h1(3, 4)),
                                          print(gpipe(1, 3, 2))};
  const std::string alphabet = "FBWG0179.:=# \t\r\n-schedule\x01\xff";
  int taken = 0, sound = 0;
  for (int n = 0; n < 1000; ++n) {
    const Key key = Key{}.with("schedule text").with(static_cast<std::uint64_t>(n));
    std::uint64_t draw = 0;
    const auto below = [&](std::size_t limit) {
      return static_cast<std::size_t>(random_bits(key, draw++) % limit);
    };
    std::string text = seeds[below(seeds.size())];
    for (std::size_t edits = 1 + below(3); edits-- > 0 && !text.empty();) {
      const std::size_t at = below(text.size());
      switch (below(5)) {
        case 0:
          text[at] = alphabet[below(alphabet.size())];
          break;
        case 1:
          text.insert(at, 1, alphabet[below(alphabet.size())]);
          break;
        case 2:
          text.erase(at, 1 + below(8));
          break;
        case 3:
          text.replace(at, 1, std::to_string(random_bits(key, draw++) >> below(64)));
          break;
        case 4:
          std::swap(text[at], text[below(text.size())]);
          break;
      }
    }
    try {
      const Schedule s = parse_schedule(text, "mutant");
      ++taken;
      ASSERT_EQ(parse_schedule(print(s), "again"), s) << text;
      check(s, "mutant");
      ++sound;
      simulate(s, [](const Turn&) { return 1.0; });
    } catch (const Error& e) {
      const std::string said = e.what();
      ASSERT_EQ(e.kind, ErrorKind::usage) << said << "\n" << text;
      ASSERT_LT(said.size(), 4000u);
      ASSERT_TRUE(std::all_of(said.begin(), said.end(), [](char c) {
        return c == '\n' || (c >= ' ' && c <= '~');
      })) << said;
    }
  }
  EXPECT_GT(taken, 10);
  EXPECT_GT(sound, 0);
  EXPECT_LT(sound, taken);
}

}  // namespace
}  // namespace tessera::transforms::schedule_text_test
