// Losses that should agree: a part that runs one training on more ranks says how far they are
// apart.
#include <gtest/gtest.h>

#include "page/table.h"
#include "page/verdict.h"
#include "report/sample.h"

namespace tessera::report::test::losses_test {
namespace {

std::string said(const Part& part) {
  std::string out;
  for (const std::string& s : verdict(part)) out += s + "\n";
  return out;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Strong scaling is the same training on more ranks: its page and its verdict say how far the
// losses are apart.
TEST(Losses, OfStrongScaling) {
  const auto even = [](int) { return 1.0; };
  Part part = scaling_part(PartKind::strong, {1, 2, 4}, even, 2);
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < 3; ++i)
      part.points[i].repeats[r].record->loss = 1 + 0.5 * r + 0.0625 * i;  // exact in binary
  const std::string text = said(part);
  EXPECT_TRUE(has(text,
                  "the final loss differs from that of 1 rank (1.3), seed by seed, by at most "
                  "0.13 (4 ranks; seeds alone "
                  "move it by 0.50)."))
      << text;
  for (Point& p : part.points)
    for (Repeat& r : p.repeats) r.record->loss = 1.5;
  EXPECT_TRUE(has(said(part), "the final loss is that of 1 rank (1.5) to the last bit, n = "))
      << said(part);
  for (Point& p : part.points)
    for (Repeat& r : p.repeats) r.record->loss = kUnknown;
  EXPECT_FALSE(has(said(part), "final loss")) << said(part);
  EXPECT_FALSE(has(said(scaling_part(PartKind::weak, {1, 2}, even, 2)), "final loss"))
      << "other batches: other losses";
}

TEST(Losses, ADifferenceHasItsSign) {
  EXPECT_EQ(apart_words(0), "0");
  EXPECT_EQ(apart_words(2e-7), "+2.00e-07");
  EXPECT_EQ(apart_words(-0.125), "−1.25e-01");
}

}  // namespace
}  // namespace tessera::report::test::losses_test
