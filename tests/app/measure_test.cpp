// A run says about itself: breakdowns that add up to the time of a step, and a trace in which
// nothing overlaps within a lane.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "app/binary.h"

namespace tessera::test::measure_test {
namespace {

TEST(Measured, BreakdownAddsUpAndTracesHaveLanes) {
  const fs::path out = scratch() / "measured";
  ASSERT_EQ(run("train --model vit_micro --set data.train_size=640 --set data.test_size=16 "
                "--global-batch 32 --steps 20 --threads 1 --np 2 "
                "--comm local --zero 3 --set parallel.persist=0 --set run.trace=3 --quiet --out " +
                out.string())
                .code,
            0);
  int sampled = 0;
  double computing = 0;
  for (const json& line : lines_of(out, "step")) {
    if (!line.contains("breakdown")) continue;
    const json& b = line["breakdown"];
    double sum = 0;
    for (const char* part : {"compute", "comm_exposed", "wait", "data", "host"}) {
      EXPECT_GE(b[part].get<double>(), 0) << part;
      sum += b[part].get<double>();
    }
    EXPECT_GT(b["compute"].get<double>(), 0);
    EXPECT_LE(b["comm_hidden"].get<double>(), b["compute"].get<double>());
    EXPECT_NEAR(sum / line["step_ms"].get<double>(), 1.0, 0.02) << line;
    if (++sampled > 1) computing += b["compute"].get<double>();
  }
  EXPECT_EQ(sampled, 4);  // steps 1, 3, 10 and 20
  double all = 0, epochs = 0;
  for (const json& line : lines_of(out, "step")) all += line["step_ms"].get<double>() * 1e-3;
  for (const json& line : lines_of(out, "epoch")) epochs += line["seconds"].get<double>();
  EXPECT_LE(all, epochs) << "steps do not overlap";
  const json summary = json::parse(read(out / "summary.json"));
  const double mean = summary["ranks"][0]["breakdown"]["compute"].get<double>();
  EXPECT_NEAR(mean, computing / 3, 1e-3 * mean) << "the first step warms up and is left out";
  EXPECT_EQ(summary["ranks"].size(), 2u);
  for (const json& line : lines_of(out, "epoch")) EXPECT_EQ(line["barrier_waits_s"].size(), 2u);

  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  std::map<int, int> waits, met;
  const json trace = json::parse(read(out / "trace.json"));
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    lanes[{e["pid"], e["tid"]}].emplace_back(e["ts"],
                                             e["ts"].get<double>() + e["dur"].get<double>());
    waits[e["pid"].get<int>()] += e["cat"] == "flight";
    met[e["pid"].get<int>()] += e["name"] == "wait for the other ranks";
  }
  EXPECT_EQ(waits.size(), 2u);
  EXPECT_EQ(met, (std::map<int, int>{{0, 3}, {1, 3}}))
      << "a step ends when all ranks have ended it";
  EXPECT_EQ(waits[0], waits[1]);
  EXPECT_GT(waits[0], 0);
  for (auto& [lane, spans] : lanes) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i)
      ASSERT_LE(spans[i - 1].second, spans[i].first + 1e-3) << lane.first << " " << lane.second;
  }
}

TEST(Measured, WeightsGiveTheLossesOfAnEvenSplit) {
  const auto losses = [](const std::string& name, const std::string& more) {
    const fs::path out = scratch() / name;
    EXPECT_EQ(run("train --model vit_micro --set data.train_size=320 --set data.test_size=16 "
                  "--global-batch 32 --steps 10 --threads 1 --np 3 "
                  "--comm local --quiet --out " +
                  out.string() + more)
                  .code,
              0);
    std::vector<double> all;
    for (const json& line : lines_of(out, "step")) all.push_back(line["loss"]);
    return all;
  };
  const std::vector<double> even = losses("even", ""),
                            weighted = losses("weighted", " --set parallel.weights=[2,2,1]");
  ASSERT_EQ(even.size(), 10u);
  ASSERT_EQ(weighted.size(), 10u);
  for (std::size_t i = 0; i < even.size(); ++i) EXPECT_NEAR(even[i], weighted[i], 1e-5);
}

// The turns of a rank in the order of time, those of one turn that follow each other once.
std::vector<std::string> turns_of(const json& turns, int rank, double* overlap = nullptr) {
  std::vector<std::pair<double, const json*>> order;
  for (const json& t : turns)
    if (t["rank"] == rank) order.emplace_back(t["start"], &t);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> names;
  double end = 0;
  for (const auto& [start, t] : order) {
    if (overlap) *overlap = std::max(*overlap, end - start);
    end = (*t)["end"];
    const std::string name =
        (*t)["work"].get<std::string>() + (*t)["stage"].dump() + "." + (*t)["micro"].dump();
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names;
}

TEST(Measured, PipelinesShowTheirSchedule) {
  const fs::path out = scratch() / "pipeline", svg = scratch() / "schedule.svg";
  ASSERT_EQ(run("train --model vit_micro --set data.train_size=96 --set data.test_size=16 "
                "--global-batch 24 --accumulate 6 --steps 4 "
                "--threads 1 --pp 2 --set parallel.stages=time --comm local --set run.trace=3 "
                "--quiet --out " +
                out.string())
                .code,
            0);
  const json explained = json::parse(
      run("explain --run " + out.string() + " --schedule-svg " + svg.string() + " --json").out,
      nullptr, false);
  ASSERT_TRUE(explained.is_object());
  EXPECT_EQ(explained["world"], 2);
  EXPECT_FALSE(explained.contains("program"));
  const json &pipeline = explained["pipeline"], &measured = pipeline["measured"];
  EXPECT_EQ(pipeline["schedule"], "1f1b");
  EXPECT_EQ(pipeline["turns"].size(), 24u);
  for (int rank = 0; rank < 2; ++rank) {
    double overlap = 0;
    const std::vector<std::string> turns = turns_of(measured["turns"], rank, &overlap);
    EXPECT_EQ(turns.size(), 12u);
    EXPECT_EQ(turns, turns_of(pipeline["turns"], rank));
    EXPECT_LE(overlap, 1e-5);
  }
  EXPECT_GT(measured["bubble"].get<double>(), 0);
  EXPECT_LT(measured["bubble"].get<double>(), 1);
  EXPECT_GT(measured["bubble_of_turns"].get<double>(), 0);
  EXPECT_LE(measured["bubble_of_turns"].get<double>(),
            measured["bubble"].get<double>() + 1e-6);  // no turn can start earlier
  EXPECT_EQ(measured["idle"].size(), 2u);
  EXPECT_NE(read(svg).find("measured: "), std::string::npos);
  for (const json& line : lines_of(out, "step"))
    if (line.contains("breakdown")) {
      EXPECT_GT(line["breakdown"]["bubble"].get<double>(), 0);
      EXPECT_LT(line["breakdown"]["bubble"].get<double>(), 1);
    }
  const Result text = run("explain --run " + out.string());
  for (const char* part :
       {"pp2 = 2 ranks", "in flight", "measured: step", "by formula", " predicted, ", "GFLOP/s"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;

  // These do not fit, or are no trace.
  const auto refused = [&](const std::string& arguments, const std::string& says) {
    const Result r = run("explain " + arguments);
    EXPECT_EQ(r.code, 2) << arguments;
    EXPECT_NE(r.err.find(says), std::string::npos) << r.err;
  };
  refused("--run " + out.string() + " --accumulate 2",
          "--run takes the configuration of the run, and --accumulate 2 was given");
  refused("--model vit_micro --schedule-svg " + svg.string(), "no pipeline");
  refused("--run " + (scratch() / "nowhere").string(), "there is no such run folder");
  write(out / "trace.json", "{\"traceEvents\": []}");
  refused("--run " + out.string(), "no turns of a pipeline");
  write(out / "trace.json", "{\"traceEvents\": [{\"cat\": \"turn\"}]}");
  refused("--run " + out.string(), "event 1");
  fs::remove(out / "trace.json");
  EXPECT_NE(run("explain --run " + out.string()).out.find("nothing is measured: "),
            std::string::npos);
}

TEST(Measured, RunsWithoutPipelineOrTraceAreExplained) {
  for (const auto& [layout, why] :
       std::map<std::string, std::string>{{"", "the run has no pipeline"},
                                          {"--pp 2 --accumulate 2 --set run.trace=0 ",
                                           "the run keeps no trace (run.trace = 0)"}}) {
    const fs::path out = scratch() / "unmeasured";
    ASSERT_EQ(run("train --model vit_micro --set data.train_size=8 --set data.test_size=8 "
                  "--global-batch 8 --steps 1 --threads 1 " +
                  layout + "--comm local --quiet --fresh --out " + out.string())
                  .code,
              0);
    const Result r = run("explain --run " + out.string());
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_NE(r.out.find("nothing is measured: " + why), std::string::npos) << r.out;
    EXPECT_EQ(r.out.find("measured: step"), std::string::npos);
  }
}

// Peers: one span and one bubble for the chart, the numbers below it and the picture.
TEST(Measured, ChartsWithPeersSayWhoseTheyAre) {
  const fs::path out = scratch() / "peers", svg = scratch() / "peers.svg";
  ASSERT_EQ(run("train --model vit_micro --set data.train_size=48 --set data.test_size=8 "
                "--global-batch 16 --accumulate 4 --steps 3 "
                "--threads 1 --pp 2 --dp 2 --comm local --set run.trace=2 --quiet --out " +
                out.string())
                .code,
            0);
  const std::string text =
      run("explain --run " + out.string() + " --schedule-svg " + svg.string()).out;
  const double bubble =
      json::parse(run("explain --json --run " + out.string()).out)["pipeline"]["measured"]["bubble"]
          .get<double>() *
      100;
  char shown[32];
  std::snprintf(shown, sizeof shown, "%.1f%%", bubble);
  const std::size_t chart = text.find("measured: step");
  ASSERT_NE(chart, std::string::npos) << text;
  for (const char* part : {"stage 0 (rank 0) |", "stage 1 (rank 2) |"})
    EXPECT_NE(text.find(part, chart), std::string::npos) << text;
  EXPECT_NE(text.find("bubble " + std::string(shown) + " of 4 ranks x ", chart), std::string::npos)
      << shown << text;
  EXPECT_NE(text.find(std::string(shown) + " measured (all ranks)", chart), std::string::npos)
      << shown << text;
  EXPECT_NE(read(svg).find("bubble " + std::string(shown) + " of all 4 ranks"), std::string::npos);
  EXPECT_NE(read(svg).find("stage 1 (rank 2)"), std::string::npos);
}

}  // namespace
}  // namespace tessera::test::measure_test
