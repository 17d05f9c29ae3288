// A run measures these: breakdowns of made-up timelines, who is slow, weights by speed, turns of a
// pipeline, and traces in which nothing overlaps.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "measure/breakdown.h"
#include "measure/pipeline_turns.h"
#include "measure/rank_speed.h"
#include "report/trace.h"
#include "train/balance.h"

namespace tessera::run::measure_test {
namespace {

using exec::Timeline;

Timeline::Span span(int step, Timeline::Kind kind, double start, double end) {
  return {step, kind == Timeline::flight ? 1 : 0, start, end, kind};
}

TEST(Breakdown, HandComputed) {
  Timeline t;
  // Step 1's message is under way from 10 to 30: handed over in 1 ms, met at 14, seen by a poll at
  // 20, waited for from 25 on.
  t.spans = {span(0, Timeline::compute, 0, 10),  span(1, Timeline::post, 10, 11),
             span(2, Timeline::compute, 11, 20), span(3, Timeline::poll, 20, 21),
             span(3, Timeline::compute, 21, 25), span(1, Timeline::wait, 25, 30),
             span(1, Timeline::flight, 10, 30),  span(4, Timeline::compute, 30, 31)};
  const report::Breakdown b = breakdown_of(t, {{1, {14, 0}}});
  EXPECT_DOUBLE_EQ(b.compute, 10 + 9 + 4 + 1);
  EXPECT_DOUBLE_EQ(b.comm_exposed, 1 + 1 + 5);
  EXPECT_DOUBLE_EQ(b.wait, 0);
  EXPECT_DOUBLE_EQ(b.comm_hidden, (20 - 14) + 4);
  std::vector<double> waited_for(3);
  const report::Breakdown late = breakdown_of(
      t, {{1, {28, 2}}}, &waited_for);  // rank 2 came 3 ms after this one began to wait
  EXPECT_EQ(waited_for, (std::vector<double>{0, 0, 3}));
  EXPECT_DOUBLE_EQ(late.wait, 3);
  EXPECT_DOUBLE_EQ(late.comm_exposed, 1 + 1 + 2);
  EXPECT_DOUBLE_EQ(late.comm_hidden, 0);
  EXPECT_DOUBLE_EQ(b.compute + b.comm_exposed + b.wait, 31);
}

TEST(Breakdown, MessagesSideBySideAreHiddenOnce) {
  Timeline t;
  t.spans = {span(2, Timeline::compute, 0, 10), span(0, Timeline::flight, 1, 6),
             span(1, Timeline::flight, 4, 8), span(3, Timeline::flight, 9, 12),
             span(4, Timeline::compute, 12, 15)};
  EXPECT_DOUBLE_EQ(breakdown_of(t, {}).comm_hidden, 7 + 1);
}

// A batch on its way to a device goes beside the step before: it is told, and part of no sum.
TEST(Breakdown, CopiesAreToldWhereThereAreAny) {
  Timeline t;
  t.spans = {span(0, Timeline::compute, 0, 10)};
  EXPECT_FALSE(report::to_json(breakdown_of(t, {})).contains("copy"));
  t.copy_ms = 3;
  const nlohmann::ordered_json told = report::to_json(breakdown_of(t, {}));
  EXPECT_EQ(told["copy"], 3.0);
  EXPECT_EQ(told["compute"], 10.0);
}

ir::Mesh dp(int n) { return {{{ir::Axis::data, "dp", n}}}; }

TEST(RankSpeeds, NamesASlowRankOnceAndWhatItIsSlowAt) {
  RankSpeeds speeds(dp(3));
  int named = 0;
  for (int step = 0; step < 100; ++step)
    for (const Straggler& s : speeds.add({{0, 8, 10, 1, 1}, {0, 8, 10, 1, 1}, {0, 8, 12, 30, 1}})) {
      ++named;
      EXPECT_EQ(step, RankSpeeds::patience - 1);
      EXPECT_EQ(s.rank, 2);
      EXPECT_EQ(s.steps, RankSpeeds::patience);
      EXPECT_EQ(s.what, "data");
      EXPECT_NEAR(s.speed, 12.0 / 43, 1e-12);
      EXPECT_DOUBLE_EQ(s.ms, 30);
      EXPECT_DOUBLE_EQ(s.median_ms, 1);
    }
  EXPECT_EQ(named, 1);
}

// One good step now and then changes nothing, and what is said is the mean, not the step that came
// last.
TEST(RankSpeeds, ARankThatIsSlowOnAverageIsNamed) {
  RankSpeeds speeds(dp(2));
  std::vector<Straggler> named;
  for (int step = 0; step < 100; ++step)
    for (const Straggler& s :
         speeds.add({{0, 8, 10, 0, 0}, {0, 8, step % 6 == 5 ? 10.0 : 40.0, 0, 0}}))
      named.push_back(s);
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].rank, 1);
  EXPECT_NEAR(named[0].ms, 35, 1e-9);
  EXPECT_NEAR(named[0].speed, 10.0 / 35, 1e-9);
}

// A rank that is stopped and goes on in turns: steps shorter than a turn are all as fast as others'
// but for one in twenty.
TEST(RankSpeeds, ARankThatIsStoppedInTurnsIsNamed) {
  RankSpeeds speeds(dp(3));
  std::vector<Straggler> named;
  for (int step = 0; step < 1000; ++step)
    for (const Straggler& s :
         speeds.add({{0, 8, 1, 0, 0}, {0, 8, step % 20 == 7 ? 60.0 : 1.0, 0, 0}, {0, 8, 1, 0, 0}}))
      named.push_back(s);
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0].rank, 1);
  EXPECT_NEAR(named[0].ms, 79.0 / 20, 1.5);  // blocks end with a stop more often than not
}

TEST(RankSpeeds, AHiccupIsNoSlowRank) {
  RankSpeeds speeds(dp(2));
  for (int step = 0; step < 200; ++step)
    EXPECT_TRUE(
        speeds.add({{0, 8, 10, 0, 0}, {0, 8, step % 50 == 20 ? 5000.0 : 10.0, 0, 0}}).empty())
        << step;
}

TEST(RankSpeeds, ARankThatRecoveredMayBeNamedAgain) {
  RankSpeeds speeds(dp(2));
  int named = 0;
  for (int step = 0; step < 600; ++step)
    named += static_cast<int>(
        speeds.add({{0, 8, 40, 0, 0}, {0, 8, step / 200 == 1 ? 40.0 : 100.0, 0, 0}}).size());
  EXPECT_EQ(named, 2);
}

// A stage with more work than another is no straggler; a rank that is slower than its peers of the
// same stage is.
TEST(RankSpeeds, AreComparedInsideAStage) {
  RankSpeeds speeds({{{ir::Axis::stage, "pp", 2, {}}, {ir::Axis::data, "dp", 3, {}}}});
  const RankStep light = {0, 8, 10, 1, 1}, heavy = {0, 8, 40, 0, 1}, slow = {0, 8, 20, 1, 1};
  std::vector<int> named;
  for (int step = 0; step < 100; ++step)
    for (const Straggler& s : speeds.add({light, slow, light, heavy, heavy, heavy})) {
      named.push_back(s.rank);
      EXPECT_DOUBLE_EQ(s.median_ms, 10);
    }
  EXPECT_EQ(named, std::vector<int>{1});
  // One rank a stage: nobody to compare with.
  RankSpeeds alone({{{ir::Axis::stage, "pp", 2, {}}}});
  for (int step = 0; step < 100; ++step) EXPECT_TRUE(alone.add({light, heavy}).empty());
}

TEST(RankSpeeds, WeightsFollowSpeed) {
  RankSpeeds speeds(dp(3));
  const std::vector<double> even = {1, 1, 1};
  EXPECT_FALSE(speeds.better_shares(even, {70}));  // nothing measured
  for (int step = 0; step < RankSpeeds::window; ++step)
    speeds.add({{0, 24, 24, 0, 0}, {0, 23, 23, 0, 0}, {0, 23, 69, 0, 0}});
  const auto better = speeds.better_shares(even, {70});
  ASSERT_TRUE(better);
  EXPECT_EQ(ir::split_by(70, *better), (ir::Shape{30, 30, 10}));
  EXPECT_FALSE(speeds.better_shares(*better, {70}));  // as good as it gets
  // Micro-batches of three samples cannot be shared out better than one each.
  EXPECT_EQ(shares_of({3, 3, 3, 3}, {3, 3, 2}), (ir::Shape{4, 4, 4}));
  EXPECT_FALSE(speeds.better_shares(even, std::vector<std::int64_t>(4, 2)));
}

// Sums over several steps say what the steps say one by one.
TEST(RankSpeeds, StepsMayComeTogether) {
  RankSpeeds single(dp(3)), together(dp(3));
  int named_single = 0, named_together = 0;
  for (int step = 0; step < 4 * RankSpeeds::patience; ++step)
    named_single += static_cast<int>(
        single.add({{0, 24, 24, 1, 1}, {0, 23, 23, 1, 1}, {0, 23, 69, 1, 1}}).size());
  for (int step = 0; step < 4 * RankSpeeds::patience; step += 10)
    for (const Straggler& s :
         together.add({{0, 240, 240, 10, 10}, {0, 230, 230, 10, 10}, {0, 230, 690, 10, 10}}, 10)) {
      ++named_together;
      EXPECT_EQ(s.rank, 2);
      EXPECT_EQ(s.what, "compute");
      EXPECT_DOUBLE_EQ(s.ms, 69);  // a step
    }
  EXPECT_EQ(named_single, 1);
  EXPECT_EQ(named_together, 1);
  EXPECT_EQ(together.better_shares({1, 1, 1}, {70}), single.better_shares({1, 1, 1}, {70}));
}

TEST(RankSpeeds, SharesThatMicroBatchesMissAreSaid) {
  config::Config config;
  config.parallel.dp = 2;
  config.parallel.shares.list = {3, 1};
  config.batch = {32, 32, 1};
  EXPECT_EQ(missed_shares(config), "");
  config.batch = {32, 8, 4};
  EXPECT_EQ(missed_shares(config), "");
  config.batch = {32, 2, 16};
  EXPECT_NE(missed_shares(config).find("16 micro-batches of 2 samples"), std::string::npos)
      << missed_shares(config);
  EXPECT_NE(missed_shares(config).find("ranks get 32 0 where 24 8 were asked for"),
            std::string::npos)
      << missed_shares(config);
}

TEST(RankSpeeds, NobodyIsLeftOutForEver) {
  RankSpeeds speeds(dp(2));
  for (int step = 0; step < RankSpeeds::window; ++step)
    speeds.add({{0, 100, 100, 0, 0}, {0, 0, 0, 0, 1}});
  const auto better = speeds.better_shares({1, 0.001}, {100});
  ASSERT_TRUE(better);
  EXPECT_GT(ir::split_by(100, *better)[1], 0);
}

TEST(Trace, LanesDoNotOverlap) {
  const std::string file = report::trace_file(
      {report::trace_events(0, "a", {{"x", "compute", 0, 5}, {"y", "compute", 5, 9}},
                            {{"m", "flight", 1, 6}, {"n", "flight", 2, 3}, {"o", "flight", 6, 7}}),
       report::trace_events(1, "b", {{"x \"q\"", "compute", 0, 5}}, {})});
  const nlohmann::json all = nlohmann::json::parse(file);
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  int events = 0;
  for (const auto& e : all["traceEvents"])
    if (e["ph"] == "X") {
      lanes[{e["pid"], e["tid"]}].emplace_back(e["ts"],
                                               e["ts"].get<double>() + e["dur"].get<double>());
      ++events;
    }
  EXPECT_EQ(events, 6);
  EXPECT_EQ(lanes.size(), 4u);  // two lanes of messages
  for (auto& [lane, spans] : lanes) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i) EXPECT_LE(spans[i - 1].second, spans[i].first);
  }
}

// A plan with a step for each equation: phase and micro-batch of stage 1, or a message.
plan::Plan plan_of(const std::vector<std::pair<ir::Phase, int>>& eqns, int receive) {
  plan::Plan plan;
  for (std::size_t i = 0; i < eqns.size(); ++i) {
    ir::Eqn e;
    e.phase = eqns[i].first;
    e.micro = eqns[i].second;
    e.stage = 1;
    plan.program.eqns.push_back(e);
    plan::Step step;
    step.eqn = static_cast<int>(i);
    if (step.eqn == receive) step.op = ir::Op::recv;
    plan.steps.push_back(step);
  }
  return plan;
}

TEST(Turns, RecomputedWorkBelongsToItsReader) {
  using enum ir::Phase;
  const plan::Plan p = plan_of(
      {{forward, 0}, {recompute, 0}, {backward, 0}, {recompute, 0}, {weight, 0}, {update, 0}}, -1);
  std::string works;
  for (const PipelineTurn& turn : turns_of(p.program)) works += turn.work;
  EXPECT_EQ(works, "FBBWWU");
}

TEST(Turns, SpansEndWhereARankWaits) {
  using enum ir::Phase;
  // A turn that the update's packing interrupts, one that waits for another stage in the middle,
  // and an update at the end.
  const plan::Plan p = plan_of({{forward, 0},
                                {forward, 0},
                                {update, 0},
                                {forward, 0},
                                {recompute, 1},
                                {backward, 1},
                                {backward, 1},
                                {update, 0}},
                               5);
  Timeline t;
  t.spans = {span(0, Timeline::compute, 0, 1),  span(1, Timeline::compute, 1, 2),
             span(2, Timeline::compute, 2, 3),  span(3, Timeline::compute, 3, 4),
             span(4, Timeline::compute, 4, 6),  span(5, Timeline::flight, 4, 9),
             span(5, Timeline::wait, 6, 9),     span(6, Timeline::compute, 9, 11),
             span(7, Timeline::compute, 11, 12)};
  const std::vector<TurnSpan> spans = turn_spans(p, t);
  ASSERT_EQ(spans.size(), 4u);
  const PipelineTurn turns[] = {{1, 0, 'F'}, {1, 1, 'B'}, {1, 1, 'B'}, {0, 0, 'U'}};
  const double starts[] = {0, 4, 9, 11}, ends[] = {4, 6, 11, 12};
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_TRUE(spans[i].turn == turns[i]) << i;
    EXPECT_EQ(spans[i].start, starts[i]);
    EXPECT_EQ(spans[i].end, ends[i]);
  }
}

const std::vector<report::TraceTurn> two_turns = {{3, 1, 2, 'F', 7, 10, 20},
                                                  {3, 0, 0, 'U', 7, 20, 21}};

TEST(Trace, TurnsAreReadBack) {
  const std::string file = report::trace_file(
      {report::trace_events(3, "a", {{"x", "compute", 0, 5}}, {{"m", "flight", 1, 6}}, two_turns)},
      {3, 2});
  const auto [blocks, turns] = report::read_trace(file, "trace.json");
  EXPECT_EQ(blocks, (std::vector<std::int64_t>{3, 2}));
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(turns[0].rank, 3);
  EXPECT_EQ(turns[0].stage, 1);
  EXPECT_EQ(turns[0].micro, 2);
  EXPECT_EQ(turns[0].work, 'F');
  EXPECT_EQ(turns[0].step, 7);
  EXPECT_EQ(turns[0].start_us, 10);
  EXPECT_EQ(turns[0].end_us, 20);
  EXPECT_EQ(turns[1].work, 'U');
}

// Every way in which a file can lie is refused with its event.
TEST(Hostile, Traces) {
  const std::string good =
      report::trace_file({report::trace_events(3, "a", {}, {}, two_turns)}, {3, 2});
  const auto refused = [](const std::string& text, const std::string& says) {
    try {
      report::read_trace(text, "trace.json");
      ADD_FAILURE() << "accepted: " << text.substr(0, 200);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind, ErrorKind::usage);
      EXPECT_NE(std::string(e.what()).find(says), std::string::npos) << e.what();
    }
  };
  for (const auto& [from, to, says] : std::vector<std::array<std::string, 3>>{
           {"\"pid\":3,\"tid\":1,\"ts\"", "\"pid\":-1,\"ts\"", "event 4: pid"},
           {"\"pid\":3,\"tid\":1,\"ts\"", "\"pid\":1e9,\"ts\"", "pid: expected"},
           {"\"stage\":1", "\"stage\":99999999999999999999", "stage"},
           {"\"stage\":1", "\"stge\":1", "stage: expected a whole number"},
           {"\"micro\":2", "\"micro\":\"2\"", "micro"},
           {"\"work\":\"F\"", "\"work\":\"X\"", "work: expected F, B, W or U"},
           {"\"work\":\"F\"", "\"work\":\"\"", "work"},
           {"\"ts\":10.0", "\"ts\":-10.0", "ts: expected microseconds"},
           {"\"ts\":10.0", "\"ts\":1e300", "ts"},
           {"\"dur\":10.0", "\"dur\":1e999", "JSON"},
           {"\"args\":{\"step\":7", "\"arg\":{\"step\":7", "work"},
           {"\"traceEvents\"", "\"events\"", "traceEvents"},
           {"[3,2]", "[3,-2]", "numbers of blocks"},
           {"[3,2]", "7", "list of blocks"}}) {
    std::string text = good;
    ASSERT_NE(text.find(from), text.npos) << from;
    text.replace(text.find(from), from.size(), to);
    refused(text, says);
  }
  for (const char* text : {"", "{", "[]", "7", "null", "{\"traceEvents\": 3}", "\xff\xfe"})
    refused(text, "trace.json");
  refused(std::string(100000, '['), "nested");
  refused("{\"traceEvents\": " + std::string(100000, '['), "nested");
  for (std::size_t length = 0; length < good.size() - 2; length += 7)
    refused(good.substr(0, length), "JSON");
}

}  // namespace
}  // namespace tessera::run::measure_test
