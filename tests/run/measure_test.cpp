// What a run measures: breakdowns of made-up timelines, who is slow, weights by speed, and traces in which nothing overlaps.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "report/trace.h"
#include "run/breakdown.h"
#include "run/pace.h"

namespace tessera::run::measure_test {
namespace {

using exec::Timeline;

Timeline::Span span(int step, Timeline::Kind kind, double start, double end) {
  return {step, kind == Timeline::flight ? 1 : 0, start, end, kind};
}

TEST(Breakdown, HandComputed) {
  Timeline t;
  // Step 1's message is under way from 10 to 30: handed over in 1 ms, met at 14, seen by a poll at 20, waited for from 25 on.
  t.spans = {span(0, Timeline::compute, 0, 10), span(1, Timeline::post, 10, 11),    span(2, Timeline::compute, 11, 20),
             span(3, Timeline::poll, 20, 21),   span(3, Timeline::compute, 21, 25), span(1, Timeline::wait, 25, 30),
             span(1, Timeline::flight, 10, 30), span(4, Timeline::compute, 30, 31)};
  const report::Breakdown b = breakdown_of(t, {{1, 14}});
  EXPECT_DOUBLE_EQ(b.compute, 10 + 9 + 4 + 1);
  EXPECT_DOUBLE_EQ(b.comm_exposed, 1 + 1 + 5);
  EXPECT_DOUBLE_EQ(b.wait, 0);
  EXPECT_DOUBLE_EQ(b.comm_hidden, (20 - 14) + 4);
  const report::Breakdown late = breakdown_of(t, {{1, 28}});  // another rank came 3 ms after this one began to wait
  EXPECT_DOUBLE_EQ(late.wait, 3);
  EXPECT_DOUBLE_EQ(late.comm_exposed, 1 + 1 + 2);
  EXPECT_DOUBLE_EQ(late.comm_hidden, 0);
  EXPECT_DOUBLE_EQ(b.compute + b.comm_exposed + b.wait, 31);
}

TEST(Breakdown, MessagesSideBySideAreHiddenOnce) {
  Timeline t;
  t.spans = {span(2, Timeline::compute, 0, 10), span(0, Timeline::flight, 1, 6), span(1, Timeline::flight, 4, 8),
             span(3, Timeline::flight, 9, 12), span(4, Timeline::compute, 12, 15)};
  EXPECT_DOUBLE_EQ(breakdown_of(t, {}).comm_hidden, 7 + 1);
}

ir::Mesh dp(int n) { return {{{ir::Axis::data, "dp", n}}}; }

TEST(Paces, NamesASlowRankOnceAndWhatItIsSlowAt) {
  Paces paces(dp(3));
  int named = 0;
  for (int step = 0; step < 100; ++step)
    for (const Straggler& s : paces.add({{0, 8, 10, 1, 1}, {0, 8, 10, 1, 1}, {0, 8, 12, 30, 1}})) {
      ++named;
      EXPECT_EQ(step, Paces::patience - 1);
      EXPECT_EQ(s.rank, 2);
      EXPECT_EQ(s.what, "data");
      EXPECT_NEAR(s.speed, 12.0 / 43, 1e-12);
      EXPECT_DOUBLE_EQ(s.ms, 30);
      EXPECT_DOUBLE_EQ(s.median_ms, 1);
    }
  EXPECT_EQ(named, 1);
}

TEST(Paces, ARankThatRecoversIsNotNamed) {
  Paces paces(dp(2));
  for (int step = 0; step < 100; ++step) EXPECT_TRUE(paces.add({{0, 8, 10, 0, 0}, {0, 8, step % 29 == 0 ? 10.0 : 40.0, 0, 0}}).empty());
}

TEST(Paces, WeightsFollowSpeed) {
  Paces paces(dp(3));
  const std::vector<double> even = {1, 1, 1};
  EXPECT_FALSE(paces.better_weights(even, 70));  // nothing measured
  for (int step = 0; step < Paces::window; ++step) paces.add({{0, 24, 24, 0, 0}, {0, 23, 23, 0, 0}, {0, 23, 69, 0, 0}});
  const auto better = paces.better_weights(even, 70);
  ASSERT_TRUE(better);
  EXPECT_EQ(ir::split_by(70, *better), (ir::Shape{30, 30, 10}));
  EXPECT_FALSE(paces.better_weights(*better, 70));  // as good as it gets
}

TEST(Paces, NobodyIsLeftOutForEver) {
  Paces paces(dp(2));
  for (int step = 0; step < Paces::window; ++step) paces.add({{0, 100, 100, 0, 0}, {0, 0, 0, 0, 1}});
  const auto better = paces.better_weights({1, 0.001}, 100);
  ASSERT_TRUE(better);
  EXPECT_GT(ir::split_by(100, *better)[1], 0);
}

TEST(Trace, LanesDoNotOverlap) {
  const std::string file = report::trace_file({report::trace_events(0, "a", {{"x", "compute", 0, 5}, {"y", "compute", 5, 9}},
                                                                    {{"m", "flight", 1, 6}, {"n", "flight", 2, 3}, {"o", "flight", 6, 7}}),
                                               report::trace_events(1, "b", {{"x \"q\"", "compute", 0, 5}}, {})});
  const nlohmann::json all = nlohmann::json::parse(file);
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  int events = 0;
  for (const auto& e : all["traceEvents"])
    if (e["ph"] == "X") {
      lanes[{e["pid"], e["tid"]}].emplace_back(e["ts"], e["ts"].get<double>() + e["dur"].get<double>());
      ++events;
    }
  EXPECT_EQ(events, 6);
  EXPECT_EQ(lanes.size(), 4u);  // two lanes of messages
  for (auto& [lane, spans] : lanes) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_LE(spans[i - 1].second, spans[i].first);
  }
}

}  // namespace
}  // namespace tessera::run::measure_test
