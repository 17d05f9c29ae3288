// The trace of one step as a chart: alone, and on the page of a study.
#include "page/timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "page/figures/figure.h"
#include "page/page.h"
#include "report/sample.h"
#include "report/trace.h"

namespace tessera::report::test {
namespace timelines {

namespace fs = std::filesystem;

// Ranks, messages and whole traces that have no place are counted and said.
TEST(Timeline, WhatIsLeftOutIsSaid) {
  const fs::path folder =
      fs::temp_directory_path() / ("tessera-left-out-" + std::to_string(::getpid()));
  std::vector<std::string> ranks;
  for (int r = 0; r < 35; ++r) {
    std::vector<TraceEvent> flights;
    for (int i = 0; i < 12; ++i) flights.push_back({"all_reduce", "flight", 100, 900});
    ranks.push_back(trace_events(r, "node", {{"contract", "compute", 0, 1000}}, flights, {}));
  }
  const std::string text = trace_file(ranks, {35, 35});
  const Timeline t = read_timeline(text, "trace.json");
  EXPECT_EQ(t.ranks.size(), 32u);
  EXPECT_EQ(t.ranks_left_out, 3);
  EXPECT_GT(t.messages_left_out, 0u);
  EXPECT_EQ(t.events_left_out, 0u);
  Study study = sample_study(1);
  std::size_t pipelines = 0;
  for (Part& part : study.parts)
    for (Point& p : part.points)
      for (Repeat& r : p.repeats) {
        if (!r.record) continue;
        r.folder = "run" + std::to_string(pipelines++);
        r.record->bubble = 0.1;
        fs::create_directories(folder / r.folder);
        std::ofstream(folder / r.folder / "trace.json") << text;
      }
  ASSERT_GT(pipelines, 5u);
  fs::resize_file(folder / "run0/trace.json", (std::uintmax_t{256} << 20) + 1);
  std::ifstream page(write_page(study, (folder / "out").string(), folder.string()));
  const std::string html((std::istreambuf_iterator<char>(page)), {});
  for (const char* part : {"3 further ranks are not drawn.", "more are under way at once",
                           "Further pipelines have no chart: ", "MB are not read: "})
    EXPECT_NE(html.find(part), std::string::npos) << part;
  fs::remove_all(folder);
}

TEST(Timeline, OfOneStep) {
  const fs::path folder =
      fs::temp_directory_path() / ("tessera-timeline-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::vector<std::string> ranks;
  for (int r = 0; r < 2; ++r) {
    std::vector<TraceEvent> doing;
    std::vector<TraceTurn> turns;
    for (int s = 0; s < 4; ++s) {
      const double t = 1000.0 * s;
      doing.insert(doing.end(), {{"wait for data", "data", t, t + 100},
                                 {"contract msa", "compute", t + 100, t + 700},
                                 {"wait for all_reduce", "wait", t + 700, t + 900},
                                 {"read results", "host", t + 900, t + 950}});
      turns.push_back({r, r, 0, 'F', s + 1, t + 100, t + 300});
    }
    ranks.push_back(trace_events(r, "node", doing, {{"all_reduce", "flight", 2500, 2900}}, turns));
  }
  const std::string text = trace_file(ranks, {2, 2});
  const Timeline t = read_timeline(text, "trace.json");
  ASSERT_EQ(t.ranks.size(), 2u);
  EXPECT_NEAR(t.span, 1.0, 1e-9);
  EXPECT_EQ(t.ranks[0].size(), 5u);
  EXPECT_EQ(t.ranks[0].front().name, "wait for data");
  EXPECT_EQ(t.turns.size(), 2u);
  EXPECT_NO_THROW(parse_xml(timeline_figure("t", "c", t.ranks)));
  EXPECT_THROW((void)read_timeline("{", "trace.json"), Error);
  // On the page: the chart of the largest run, and of a pipeline its turns.
  Study study = sample_study(1);
  Repeat& repeat = study.parts[3].points[4].repeats[0];
  repeat.folder = "run";
  fs::create_directories(folder / "run");
  std::ofstream(folder / "run/trace.json") << text;
  std::ifstream page(write_page(study, (folder / "out").string(), folder.string()));
  const std::string html((std::istreambuf_iterator<char>(page)), {});
  EXPECT_NO_THROW(parse_xml(html));
  EXPECT_NE(html.find("id=\"figure-timeline\""), std::string::npos);
  EXPECT_NE(html.find("id=\"figure-pipeline\""), std::string::npos);
  fs::remove_all(folder);
}

}  // namespace timelines
}  // namespace tessera::report::test
