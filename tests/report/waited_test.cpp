// Where waiting takes a part of a step that matters, the rank that the others waited for is named.
#include <gtest/gtest.h>

#include "page/verdict.h"
#include "record/stats.h"
#include "report/html.h"
#include "report/sample.h"

namespace tessera::report::test::waited {
namespace {

Study study_of_two_ranks() {
  Study study;
  Part part;
  part.name = part.title = "run";
  part.kind = PartKind::accuracy;
  part.points.push_back({"", {}, {}, {done(0, sample_run(2, 64, 27, 0.05, 0.2, 0.61))}});
  study.parts.push_back(part);
  return study;
}

std::string all_said(const Study& study) {
  std::string out;
  for (const std::string& s : verdict(study)) out += s + "\n";
  return out;
}

TEST(WaitedFor, IsNamedWhereItMatters) {
  Study study = study_of_two_ranks();
  EXPECT_EQ(all_said(study).find("mostly for rank"), std::string::npos) << "it is not known";
  std::vector<RankRecord>& ranks = study.parts[0].points[0].repeats[0].record->by_rank;
  ASSERT_EQ(ranks.size(), 2u);
  ranks[0].others_waited = 0.1;
  ranks[1].others_waited = 5;
  EXPECT_NE(all_said(study).find(
                "waiting for other ranks 20% (mostly for rank 1: the others 5.0 ms a step)"),
            std::string::npos)
      << all_said(study);
  ranks[1].others_waited = 0.2;
  EXPECT_EQ(all_said(study).find("mostly for rank"), std::string::npos) << "too little to matter";
}

}  // namespace
}  // namespace tessera::report::test::waited
