// This tests what a person sees of a study, and the records that are made of what benchmarks print.
#include "study/table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

#include "base/say.h"
#include "files/scratch.h"
#include "study/collect.h"
#include "study/view.h"

namespace tessera::study::table_test {
namespace {

report::Repeat done(int number, double speed, double wall) {
  report::Repeat r;
  r.number = number;
  r.outcome = report::Outcome::done;
  r.wall = wall;
  r.record.emplace();
  r.record->images_per_s = speed;
  r.record->epoch_seconds = 100 / speed;
  r.record->test_top1 = 0.5;
  return r;
}

report::Study sample() {
  report::Study study;
  report::Part part;
  part.name = "strong";
  part.kind = report::PartKind::strong;
  part.axis = "run.np";
  part.points.push_back({"", {{"run.np", "1"}}, {}, {done(0, 10, 2), done(1, 12, 4)}});
  part.points.push_back({"", {{"run.np", "2"}}, {}, {done(0, 22, 1), {}}});
  report::Repeat failed;
  failed.outcome = report::Outcome::failed;
  failed.reason = "why\033[0m";
  failed.wall = 1;
  part.points.push_back({"\033[31m\u202e", {{"run.np", "4\n"}}, {}, {failed, {}}});
  study.parts.push_back(part);
  return study;
}

TEST(Table, MediansSpreadAndSpeedUp) {
  report::Study study = sample();
  const std::vector<std::string> lines = table_lines(study, 0);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[1].substr(0, 14), "strong  run.np");
  EXPECT_NE(lines[1].find("2/2"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("11.0 +-1.0"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("1.00x"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("50.00"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("2.02x"), std::string::npos)
      << lines[2];  // of the time of an epoch, as the verdict has it
  EXPECT_NE(lines[3].find("0/2 (1 failed)"), std::string::npos) << lines[3];
  for (const std::string& line : lines)
    EXPECT_EQ(line.find_first_of("\033\n"), std::string::npos) << line;
  for (const std::string& line : table_lines(study, 30)) EXPECT_LE(line.size(), 40u);
  EXPECT_EQ(run_line(study.parts[0], study.parts[0].points[2], study.parts[0].points[2].repeats[0]),
            "strong \\x1b[31m\\u202e run.np=4\\n, repeat 1 of 2: failed: why\\x1b[0m");
}

TEST(Table, SpeedUpsAreThoseOfTheVerdict) {
  report::Study study = sample();
  report::Part& part = study.parts[0];
  part.axis = "run.np";
  part.points.pop_back();
  part.kind = report::PartKind::weak;  // twice the work
  EXPECT_NE(table_lines(study, 0)[2].find("4.03x"), std::string::npos) << table_lines(study, 0)[2];
  part.kind = report::PartKind::batch;  // images per second
  EXPECT_NE(table_lines(study, 0)[2].find("2.00x"), std::string::npos) << table_lines(study, 0)[2];
  for (const auto kind : {report::PartKind::accuracy, report::PartKind::layers}) {
    part.kind = kind;
    EXPECT_EQ(table_lines(study, 0)[2].find("0x"), std::string::npos) << table_lines(study, 0)[2];
  }
}

// Not against the part's first point, which does other work.
TEST(Table, SpeedUpsOfTechniquesAreAtEqualAxes) {
  report::Study study;
  report::Part part;
  part.name = "techniques";
  part.kind = report::PartKind::techniques;
  const auto at = [](const char* image) {
    return decltype(report::Point::axes){{"model.image", image}};
  };
  part.points.push_back({"t0", at("16"), {}, {done(0, 100, 1)}});
  part.points.push_back({"t0", at("32"), {}, {done(0, 20, 1)}});
  part.points.push_back({"t1", at("16"), {}, {done(0, 150, 1)}});
  part.points.push_back({"t1", at("32"), {}, {done(0, 50, 1)}});
  part.points.push_back({"t1", at("64"), {}, {done(0, 5, 1)}});  // t0 has none
  study.parts.push_back(part);
  const std::vector<std::string> lines = table_lines(study, 0);
  ASSERT_EQ(lines.size(), 6u);
  for (const auto& [line, speedup] : std::vector<std::pair<int, const char*>>{
           {1, "1.00x"}, {2, "1.00x"}, {3, "1.50x"}, {4, "2.50x"}})
    EXPECT_NE(lines[static_cast<std::size_t>(line)].find(speedup), std::string::npos)
        << lines[static_cast<std::size_t>(line)];
  EXPECT_EQ(lines[5].find("0x"), std::string::npos) << lines[5];
  study.parts[0].verb = "infer";  // by images per second
  EXPECT_NE(table_lines(study, 0)[4].find("2.50x"), std::string::npos) << table_lines(study, 0)[4];
}

// A terminal that was closed, or a full disk under 2>log.
TEST(Table, WhatCannotBeSaidStopsNothing) {
  const int before = ::dup(STDERR_FILENO), full = ::open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  ::dup2(full, STDERR_FILENO);
  LiveTable table(false);
  EXPECT_NO_THROW(table.line("x"));
  EXPECT_NO_THROW(say_lines(stderr, "y\n"));
  ::dup2(before, STDERR_FILENO);
  std::clearerr(stderr);
  ::close(before);
  ::close(full);
}

TEST(Table, PeopleCountFromOne) {
  EXPECT_EQ(repeat_words(0, 3), ", repeat 1 of 3");
  EXPECT_EQ(repeat_words(0, 1), "");
}

TEST(Table, WhatRemainsIsEstimatedFromItsLike) {
  report::Study study = sample();
  estimate(study);
  EXPECT_DOUBLE_EQ(study.elapsed, 8);
  EXPECT_DOUBLE_EQ(study.remaining, 1 + 2);  // as the other repeat; as the median of the part
  EXPECT_EQ(progress_line(study),
            "3 of 6 runs done, 1 failed, 8.0 s of runs so far, about 3.0 s to go");
  estimate(study, {"another"});
  EXPECT_EQ(study.remaining, 0);
  EXPECT_EQ(progress_line(study), "3 of 6 runs done, 1 failed, 8.0 s of runs so far");
  report::Study none;
  none.parts.push_back({});
  none.parts[0].points.push_back({"", {}, {}, {{}}});
  estimate(none);
  EXPECT_TRUE(std::isnan(none.remaining));
}

TEST(Collect, WhatBenchmarksPrint) {
  const auto infer = nlohmann::json::parse(
      R"({"model":"vit_micro","batch":8,"dtype":"f32","threads":2,"layout":{"dp":2,"tp":1,"pp":2,"ranks":4},"runs":9,
    "ms":{"median":4.0,"min":3.0,"max":6.0},"images_per_s":2000,"gflops":10,"peak_gflops":40,"peak_bytes":1000,"comm_bytes":{"total":64},
    "ops":[{"name":"a","group":"msa","ms":1.0,"share":0.25},{"name":"b","group":"mlp","ms":2.0,"share":0.5},{"name":"c","group":"msa","ms":1.0,"share":0.25}]})");
  const report::RunRecord r = record_of_infer(infer, "x");
  EXPECT_EQ(r.verb, "infer");
  EXPECT_EQ(r.layout, "pp2 x dp2");
  EXPECT_EQ(r.ranks, 4);
  EXPECT_EQ(r.planned, 1000);
  EXPECT_EQ(r.measured, 0);
  EXPECT_EQ(r.latency_ms, 4);
  EXPECT_EQ(r.mfu, 0.25);
  EXPECT_EQ(r.comm_bytes, 64);
  ASSERT_EQ(r.parts.size(), 2u);
  EXPECT_EQ(r.parts[0].name, "msa");
  EXPECT_DOUBLE_EQ(r.parts[0].seconds, 0.002);
  EXPECT_DOUBLE_EQ(r.parts[0].share, 0.5);
  EXPECT_EQ(r.parts[0].count, 1);  // the seconds are of all its equations
  const auto layers = nlohmann::json::parse(
      R"({"model":"vit_b_16","batch":2,"threads":4,"fused":false,"total_s":0.5,"parts":[{"name":"msa","seconds":0.2,"share":0.4,"count":12,"busy":[0.9,0.7,0.8]}]})");
  const report::RunRecord l = record_of_layers(layers, "x");
  EXPECT_EQ(l.images_per_s, 4);
  EXPECT_EQ(l.parts[0].count, 12);
  EXPECT_EQ(l.parts[0].busy, 0.7);
  for (const char* text : {"[]", "{}", "1", R"({"ms":{}})", R"({"ms":{"median":"x"}})"}) {
    EXPECT_EQ(test::error_of([&] { record_of_infer(nlohmann::json::parse(text), "x"); }).kind,
              ErrorKind::data)
        << text;
    EXPECT_EQ(test::error_of([&] { record_of_layers(nlohmann::json::parse(text), "x"); }).kind,
              ErrorKind::data)
        << text;
  }
}

}  // namespace
}  // namespace tessera::study::table_test
