// What a run says about itself: breakdowns that add up to the time of a step, and a trace in which nothing overlaps within a lane.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "app/binary.h"

namespace {

using namespace tessera::test;

TEST(Measured, BreakdownAddsUpAndTracesHaveLanes) {
  const fs::path out = scratch() / "measured";
  ASSERT_EQ(run("train --model vit_micro --set data.train_size=640 --set data.test_size=16 --global-batch 32 --steps 20 --threads 1 --np 2 "
                "--comm local --zero 3 --set parallel.persist=0 --set run.trace=3 --quiet --out " +
                out.string())
                .code,
            0);
  int sampled = 0;
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
    ++sampled;
  }
  EXPECT_EQ(sampled, 3);
  const json summary = json::parse(read(out / "summary.json"));
  EXPECT_EQ(summary["ranks"].size(), 2u);
  for (const json& line : lines_of(out, "epoch")) EXPECT_EQ(line["barrier_waits_s"].size(), 2u);

  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> lanes;
  std::map<int, int> waits;
  const json trace = json::parse(read(out / "trace.json"));
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    lanes[{e["pid"], e["tid"]}].emplace_back(e["ts"], e["ts"].get<double>() + e["dur"].get<double>());
    waits[e["pid"].get<int>()] += e["cat"] == "flight";
  }
  EXPECT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0], waits[1]);
  EXPECT_GT(waits[0], 0);
  for (auto& [lane, spans] : lanes) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 1; i < spans.size(); ++i) ASSERT_LE(spans[i - 1].second, spans[i].first + 1e-3) << lane.first << " " << lane.second;
  }
}

TEST(Measured, WeightsGiveTheLossesOfAnEvenSplit) {
  const auto losses = [](const std::string& name, const std::string& more) {
    const fs::path out = scratch() / name;
    EXPECT_EQ(run("train --model vit_micro --set data.train_size=320 --set data.test_size=16 --global-batch 32 --steps 10 --threads 1 --np 3 "
                  "--comm local --quiet --out " +
                  out.string() + more)
                  .code,
              0);
    std::vector<double> all;
    for (const json& line : lines_of(out, "step")) all.push_back(line["loss"]);
    return all;
  };
  const std::vector<double> even = losses("even", ""), weighted = losses("weighted", " --set parallel.weights=[2,2,1]");
  ASSERT_EQ(even.size(), 10u);
  ASSERT_EQ(weighted.size(), 10u);
  for (std::size_t i = 0; i < even.size(); ++i) EXPECT_NEAR(even[i], weighted[i], 1e-5);
}

}  // namespace
