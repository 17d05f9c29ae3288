// Run folders as records: whole ones, ones of runs that go on, damaged ones; and records as JSON
// and back.
#include "record/record.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "base/check.h"
#include "report/sample.h"

namespace tessera::report::test {
namespace records {

namespace fs = std::filesystem;
using nlohmann::json;

class Record : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tessera-record-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    write("resolved.toml",
          "# every value\n[model]\nname = \"vit_micro\"\n[data]\nsource = "
          "\"synthetic\"\n[batch]\nglobal = 64\naccumulate = 2\n"
          "[precision]\ndtype = \"f32\"\n[parallel]\ndp = 2\ntp = 1\npp = 1\nsp = 1\nzero = "
          "1\nschedule = \"1f1b\"\n[run]\nthreads = "
          "1\nseed = 3\n");
    write("env.json", R"({"cpu": "Neoverse V1", "cores": 2, "host": "a"})");
    for (int s = 1; s <= 500; ++s)
      metrics_ += json{{"kind", "step"},  {"step", s},
                       {"loss", 3.0 / s}, {"step_ms", s <= 2 ? 900.0 : 50.0 + s % 3},
                       {"mfu", 0.25},     {"comm_bytes", 592204}}
                      .dump() +
                  "\n" + (s % 250 == 0 ? epoch(s / 250) : "");
    write("metrics.jsonl", metrics_);
    summary_ = {{"model", "vit_micro"},
                {"dtype", "f32"},
                {"data", "synthetic"},
                {"world", 2},
                {"steps", 500},
                {"skipped", 1},
                {"seed", 3},
                {"threads", 1},
                {"wall_s", 31.5},
                {"batch", {{"global", 64}, {"accumulate", 2}}},
                {"step_ms", {{"median", 51.0}, {"p10", 50.0}, {"p90", 52.0}}},
                {"images_per_s", 1254.9},
                {"final", {{"loss", 0.006}, {"test_loss", 1.1}, {"test_top1", 0.62}}},
                {"best", {{"test_top1", 0.64}, {"step", 250}}},
                {"peak_bytes", {{"planned", 100}, {"measured", 110}}},
                {"layout", {{"dp", 2}, {"tp", 1}, {"pp", 1}, {"sp", 1}, {"zero", 1}}},
                {"ranks", json::array({rank("a", 40), rank("b", 44)})}};
    write("summary.json", summary_.dump());
  }
  void TearDown() override { fs::remove_all(folder_); }

  static std::string epoch(int e) {
    return json{{"kind", "epoch"},
                {"epoch", e},
                {"seconds", 10.0 * e},
                {"elapsed_s", 12.0 * e},
                {"loss", 2.0 - e},
                {"train_top1", 0.5},
                {"test_top1", 0.5 + 0.1 * e},
                {"barrier_wait_s", 0.1}}
               .dump() +
           "\n";
  }
  static json rank(const char* host, double compute) {
    return {{"host", host},
            {"device", "cpu"},
            {"peak_bytes", {{"planned", 100}, {"measured", 110}}},
            {"barrier_wait_s", 0.1},
            {"breakdown",
             {{"compute", compute},
              {"comm_exposed", 4},
              {"comm_hidden", 3},
              {"wait", 2},
              {"data", 1},
              {"copy", 0.25},
              {"host", 0.5}}}};
  }
  void write(const char* name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  RunRecord read() { return read_run(folder_.string()); }
  std::string problem() {
    try {
      read();
    } catch (const Error& e) {
      return e.where + ": " + e.message;
    }
    return "";
  }

  fs::path folder_;
  std::string metrics_;
  json summary_;
};

TEST_F(Record, ReadsAFinishedRun) {
  const RunRecord r = read();
  EXPECT_EQ(r.model, "vit_micro");
  EXPECT_EQ(r.layout, "dp2 zero1");
  EXPECT_EQ(r.ranks, 2);
  EXPECT_EQ(r.hosts, 2);
  EXPECT_EQ(r.global_batch, 64);
  EXPECT_EQ(r.accumulate, 2);
  EXPECT_EQ(r.seed, 3);
  EXPECT_EQ(r.skipped, 1);
  EXPECT_EQ(r.step_ms.median, 51);  // the slow first two are warm-up
  EXPECT_EQ(r.step_ms.max, 52);
  EXPECT_DOUBLE_EQ(r.images_per_s, 64 / 51.0 * 1e3);
  EXPECT_EQ(r.epoch_seconds, 20);  // the first epoch is warm-up
  EXPECT_EQ(r.epochs.at(1).elapsed, 24);
  EXPECT_EQ(r.breakdown.compute, 42);
  EXPECT_EQ(r.breakdown.copy, 0.25);
  EXPECT_EQ(r.comm_bytes, 592204);
  EXPECT_EQ(r.test_top1, 0.62);
  EXPECT_EQ(r.best_top1, 0.7);  // an epoch had more than what the summary calls the best
  ASSERT_EQ(r.losses.size(), 200u);
  EXPECT_EQ(r.losses.front().first, 1);
  EXPECT_EQ(r.losses.back().first, 500);
  EXPECT_EQ(r.env["cores"], 2);
  EXPECT_EQ(r.warmup, 2);
  std::map<std::string, std::string> settings(r.settings.begin(), r.settings.end());
  EXPECT_EQ(settings["batch.global"], "64");
  EXPECT_EQ(settings["parallel.schedule"], "1f1b");
  EXPECT_FALSE(settings.contains("run.seed"));
}

// Few steps must not lean to one side: quantiles lie between the values, in proportion.
TEST_F(Record, MedianOfFewSteps) {
  const auto step = [](int s, double ms) {
    return fmt::format("{{\"kind\":\"step\",\"step\":{},\"loss\":1,\"step_ms\":{}}}\n", s, ms);
  };
  write("metrics.jsonl", step(1, 900) + step(2, 900) + step(3, 30) + step(4, 10));
  EXPECT_DOUBLE_EQ(read().step_ms.median, 20);
  EXPECT_DOUBLE_EQ(read().step_ms.p10, 12);
  EXPECT_DOUBLE_EQ(read().step_ms.p90, 28);
  EXPECT_DOUBLE_EQ(read().step_ms.mean, 20);
  write("metrics.jsonl", step(3, 30));
  EXPECT_DOUBLE_EQ(read().step_ms.median, 30);
  EXPECT_DOUBLE_EQ(read().step_ms.p90, 30);
}

// One rank has its sampled steps beyond the warm-up, several have what the summary has of all.
TEST_F(Record, BreakdownWithoutWarmUp) {
  const auto step = [](int s, double compute) {
    return json{{"kind", "step"},
                {"step", s},
                {"loss", 1.0},
                {"step_ms", 9.0},
                {"breakdown", {{"compute", compute}}}}
               .dump() +
           "\n";
  };
  write("metrics.jsonl", step(1, 900) + step(3, 10) + step(10, 20));
  EXPECT_EQ(read().breakdown.compute, 42);
  summary_["ranks"] = json::array({rank("a", 300)});
  write("summary.json", summary_.dump());
  EXPECT_EQ(read().breakdown.compute, 15);
  EXPECT_EQ(read().by_rank.at(0).breakdown.compute, 15);
  write("metrics.jsonl", step(1, 900));
  EXPECT_EQ(read().breakdown.compute, 300);
}

// The summary has of several ranks the mean and the first steps that are in it.
TEST_F(Record, BreakdownOfSeveralRanksWithoutWarmUp) {
  const auto early = [](int step, double compute) {
    return json{{"step", step}, {"breakdown", {{"compute", compute}, {"wait", 2.0}}}};
  };
  json one = rank("a", 25);  // of 4 steps: 60, 20, 10, 10
  one["breakdown"]["wait"] = 2.0;
  one["sampled"] = {{"steps", 4}, {"early", json::array({early(3, 60), early(10, 20)})}};
  summary_["ranks"] = json::array({one, one});
  write("summary.json", summary_.dump());
  EXPECT_DOUBLE_EQ(read().breakdown.compute, 25);  // warm-up of 2
  EXPECT_DOUBLE_EQ(read_run(folder_.string(), 3).breakdown.compute, 40.0 / 3);
  EXPECT_DOUBLE_EQ(read_run(folder_.string(), 19).by_rank.at(1).breakdown.compute, 10);
  EXPECT_DOUBLE_EQ(read_run(folder_.string(), 19).breakdown.wait, 2);
  for (json& r : summary_["ranks"]) r["sampled"]["steps"] = 2;
  write("summary.json", summary_.dump());
  EXPECT_DOUBLE_EQ(read_run(folder_.string(), 19).breakdown.compute, 25);  // nothing would be left
  summary_["ranks"][0]["sampled"]["early"] = {1};
  write("summary.json", summary_.dump());
  EXPECT_NE(problem().find("early: expected objects"), std::string::npos) << problem();
}

// The time of an epoch is that of whole ones, and of one that its warm-up does not lead.
TEST_F(Record, SecondsOfAnEpoch) {
  fs::remove(folder_ / "summary.json");
  const auto lines = [](int steps) {
    std::string out;
    for (int s = 1; s <= steps; ++s)
      out += fmt::format("{{\"kind\":\"step\",\"step\":{},\"loss\":1,\"step_ms\":10}}\n", s);
    return out;
  };
  const auto epoch = [](double seconds, bool whole) {
    return json{{"kind", "epoch"}, {"seconds", seconds}, {"whole", whole}}.dump() + "\n";
  };
  write("metrics.jsonl", lines(100) + epoch(5, false));
  EXPECT_TRUE(std::isnan(read().epoch_seconds));
  write("metrics.jsonl", lines(100) + epoch(5, true));
  EXPECT_EQ(read().epoch_seconds, 5);
  EXPECT_TRUE(std::isnan(read_run(folder_.string(), 6).epoch_seconds));
  write("metrics.jsonl",
        lines(100) + epoch(9, true) + epoch(5, true) + epoch(7, true) + epoch(1, false));
  EXPECT_EQ(read().epoch_seconds, 6);
  EXPECT_FALSE(read().epochs.at(3).whole);
  EXPECT_FALSE(run_from_json(json::parse(to_json(read()).dump()), "here").epochs.at(3).whole);
  write("metrics.jsonl", lines(100) + epoch(9, true) + epoch(1, false));
  EXPECT_EQ(read().epoch_seconds, 9);
}

TEST_F(Record, LongRunsAreThinnedWhileTheyAreRead) {
  std::string lines;
  for (int s = 1; s <= 9001; ++s)
    lines += fmt::format("{{\"kind\":\"step\",\"step\":{},\"loss\":1}}\n", s);
  write("metrics.jsonl", lines);
  const RunRecord r = read();
  ASSERT_EQ(r.losses.size(), 200u);
  EXPECT_EQ(r.losses.front().first, 1);
  EXPECT_EQ(r.losses.back().first, 9001);
  for (std::size_t i = 1; i < r.losses.size(); ++i) {
    EXPECT_GT(r.losses[i].first - r.losses[i - 1].first, 20) << i;
    EXPECT_LT(r.losses[i].first - r.losses[i - 1].first, 70) << i;
  }
}

TEST_F(Record, SettingsAreBounded) {
  std::string text =
      "[a]\nlong = \"" + std::string(5000, 'x') + "\"\n[run]\nout = \"here\"\nname = \"n\"\n[z]\n";
  for (int i = 0; i < 2000; ++i) text += fmt::format("k{} = {}\n", i, i);
  write("resolved.toml", text);
  const RunRecord r = read();
  EXPECT_EQ(r.settings.size(), 512u);
  for (const auto& [key, value] : r.settings)
    EXPECT_TRUE(value.size() < 410 && key != "run.out" && key != "run.name") << key;
  EXPECT_EQ(run_from_json(json::parse(to_json(r).dump()), "here").settings, r.settings);
  json many = {{"settings", json::array()}};
  for (int i = 0; i < 513; ++i) many["settings"].push_back({"a", "b"});
  EXPECT_THROW((void)run_from_json(many, "here"), Error);
  EXPECT_THROW((void)run_from_json(json::parse(R"({"settings": [["a", 1]]})"), "here"), Error);
  write("resolved.toml",
        "[model]\nname = \"kept\"\n[z]\nk = " + std::string(200000, '1') + "\nafter = 1\n");
  EXPECT_EQ(read().settings,
            (std::vector<std::pair<std::string, std::string>>{{"model.name", "kept"}}));
}

// Copying and printing recurse: what is nested deeper than anything we write is refused, not
// followed.
TEST_F(Record, DeepDocumentsAreRefused) {
  const std::string deep = "{\"a\": " + std::string(200000, '[') + std::string(200000, ']') + "}";
  write("env.json", deep);
  EXPECT_NE(problem().find("env.json: expected a JSON object of at most 32 levels"),
            std::string::npos)
      << problem();
  write("env.json", R"({"a": {"b": [1, {"c": 2}]}})");
  EXPECT_EQ(read().env["a"]["b"][1]["c"], 2);
}

TEST_F(Record, LinesOfAnyLengthAreNotHeld) {
  write("metrics.jsonl", metrics_ + "{\"kind\": \"" + std::string(5u << 20, 'x') + "\"}\n");
  EXPECT_NE(problem().find("longer than what a run writes"), std::string::npos) << problem();
}

TEST_F(Record, ReadsARunThatGoesOn) {
  fs::remove(folder_ / "summary.json");
  write("metrics.jsonl", metrics_.substr(0, metrics_.size() / 2));
  const RunRecord r = read();
  EXPECT_EQ(r.ranks, 2);
  EXPECT_EQ(r.global_batch, 64);
  EXPECT_EQ(r.threads, 1);
  EXPECT_EQ(r.data, "synthetic");
  EXPECT_EQ(r.layout, "dp2 zero1");
  EXPECT_GT(r.images_per_s, 0);
  EXPECT_TRUE(std::isnan(r.wall));
  for (const char* name : {"metrics.jsonl", "env.json"}) fs::remove(folder_ / name);
  EXPECT_EQ(read().model, "vit_micro");
  EXPECT_TRUE(std::isnan(read().loss));
}

TEST_F(Record, SaysWhatIsWrongAndWhere) {
  write("metrics.jsonl",
        "{\"kind\":\"step\",\"step\":1}\nnot json\n{\"kind\":\"step\",\"step\":2}\n");
  EXPECT_NE(problem().find("metrics.jsonl:2: expected a JSON object"), std::string::npos)
      << problem();
  write("metrics.jsonl", "{\"kind\":\"step\",\"step\":\"one\"}\n");
  EXPECT_NE(problem().find("metrics.jsonl:1: step: expected a whole number"), std::string::npos)
      << problem();
  write("metrics.jsonl", metrics_);
  write("summary.json", summary_.dump().substr(0, 100));
  EXPECT_NE(problem().find("summary.json: expected a JSON object"), std::string::npos) << problem();
  summary_["world"] = -3;
  write("summary.json", summary_.dump());
  EXPECT_NE(problem().find("world: expected a whole number from 0 to"), std::string::npos)
      << problem();
  summary_["world"] = 2;
  summary_["ranks"] = "two";
  write("summary.json", summary_.dump());
  EXPECT_NE(problem().find("ranks: expected a list"), std::string::npos) << problem();
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  EXPECT_NE(problem().find("expected a run folder"), std::string::npos) << problem();
}

TEST_F(Record, JsonAndBack) {
  for (RunRecord run : {sample_run(4, 64, 20, 0.05, 0.02), RunRecord{}, read()}) {
    run.parts = {{"msa", 0.5, kUnknown, 12}};
    const std::string text = to_json(run).dump();
    const RunRecord again = run_from_json(json::parse(text), "here");
    EXPECT_EQ(json::parse(to_json(again).dump()), json::parse(text));
    EXPECT_EQ(again.by_rank.size(), run.by_rank.size());
    EXPECT_EQ(again.losses, run.losses);
  }
  RunRecord odd;
  odd.folder = "bad \xff bytes";
  odd.loss = INFINITY;
  EXPECT_NO_THROW((void)to_json(odd).dump());
  EXPECT_THROW((void)run_from_json(json::parse(R"({"ranks": "two"})"), "here"), Error);
  EXPECT_THROW((void)run_from_json(json::parse(R"({"ranks": -1})"), "here"), Error);
  EXPECT_THROW((void)run_from_json(json::parse(R"({"epochs": {}})"), "here"), Error);
  EXPECT_THROW((void)run_from_json(json::parse(R"({"losses": [[1]]})"), "here"), Error);
  EXPECT_THROW((void)run_from_json(json::parse(R"([])"), "here"), Error);
}

// Bytes turned, cut and doubled: a record or an Error, nothing else.
TEST_F(Record, HostileFolders) {
  const char* asked = std::getenv("TESSERA_FUZZ_ITERATIONS");
  const int rounds = asked ? std::atoi(asked) : 300;
  std::mt19937 random(11);
  const auto pick = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::string good[] = {summary_.dump(), metrics_.substr(0, 3000),
                              R"({"cpu": "x", "cores": 2})"};
  const char* names[] = {"summary.json", "metrics.jsonl", "env.json"};
  int refused = 0;
  for (int i = 0; i < rounds; ++i) {
    for (int f = 0; f < 3; ++f) write(names[f], good[f]);
    const std::size_t which = pick(3);
    std::string text = good[which];
    for (std::size_t k = 0, n = 1 + pick(4); k < n; ++k) {
      const std::size_t at = pick(text.size());
      switch (pick(4)) {
        case 0:
          text[at] = static_cast<char>(pick(256));
          break;
        case 1:
          text.insert(at, "-1e999");
          break;
        case 2:
          text.erase(at, 1 + pick(20));
          break;
        default:
          text.insert(at, text.substr(pick(text.size()), 30));
      }
      if (text.empty()) text = "x";
    }
    write(names[which], text);
    try {
      const RunRecord r = read();
      EXPECT_LE(r.losses.size(), 200u);
      (void)to_json(r).dump(-1, ' ', false, json::error_handler_t::replace);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, rounds / 10);
}

}  // namespace records
}  // namespace tessera::report::test
