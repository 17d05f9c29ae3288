// Errors: what a person reads, and the exit code that a script reads.
#include <gtest/gtest.h>

#include "base/check.h"

namespace tessera::error_test {
namespace {

TEST(Error, SaysWhereWhatAndHow) {
  const Error e(ErrorKind::usage, "expected 3 heads, found 5", "run.toml:4:9",
                "5 does not divide 192");
  EXPECT_STREQ(e.what(), "run.toml:4:9: expected 3 heads, found 5\n   help: 5 does not divide 192");
  EXPECT_EQ(e.exit_code(), 2);
  EXPECT_STREQ(Error(ErrorKind::disk, "no room").what(), "no room");
}

TEST(Error, ContextGoesInFront) {
  Error e(ErrorKind::internal, "wrong shape", "h");
  e.in("failed after remat").and_also("wrong dtype");
  EXPECT_EQ(e.where, "failed after remat: h");
  EXPECT_STREQ(e.what(), "failed after remat: h: wrong shape\n   also: wrong dtype");
  EXPECT_EQ(Error(ErrorKind::data, "m").in("outer").where, "outer");
}

TEST(Error, ExitCodesAreTheDocumentedOnes) {
  const std::pair<ErrorKind, int> codes[] = {
      {ErrorKind::usage, 2},     {ErrorKind::data, 3}, {ErrorKind::weights, 4},
      {ErrorKind::nonfinite, 5}, {ErrorKind::hang, 6}, {ErrorKind::rank_lost, 7},
      {ErrorKind::memory, 8},    {ErrorKind::disk, 9}, {ErrorKind::stopped, 75}};
  for (const auto& [kind, code] : codes) EXPECT_EQ(Error(kind, "").exit_code(), code);
}

TEST(Check, NamesTheConditionAndThePlace) {
  try {
    CHECK(1 + 1 == 3, "sums");
    FAIL() << "CHECK did not throw";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::internal);
    EXPECT_EQ(e.message, "sums (expected 1 + 1 == 3)");
    EXPECT_NE(e.where.find("error_test.cpp:"), std::string::npos) << e.where;
  }
}

TEST(Words, Join) {
  EXPECT_EQ(join({"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_EQ(join({}, ", "), "");
}

TEST(Words, NearestByEditDistance) {
  const std::vector<std::string> names = {"train", "eval", "predict", "vit_b_16", "vit_b_32"};
  EXPECT_EQ(nearest("trian", names), "train");
  EXPECT_EQ(nearest("predct", names), "predict");
  EXPECT_EQ(nearest("vit_b16", names), "vit_b_16");
  EXPECT_EQ(nearest("zzzzzzzz", names), "") << "nothing is near";
  EXPECT_EQ(nearest("train", {}), "");
}

}  // namespace
}  // namespace tessera::error_test
