// A part that needs a device: where it is missing nothing is started, and list, table, page and
// document call it not run; where it is there the runs are made.
#include <gtest/gtest.h>

#include <fstream>

#include "files/scratch.h"
#include "files/text.h"
#include "page/verdict.h"
#include "study/study.h"
#include "study/table.h"
#include "study/view.h"

namespace tessera::study::needs_test {
namespace {

using test::error_of;
using test::Scratch;

constexpr const char* text = R"([study]
name = "cards"
[base]
model.name = "vit_micro"
[[part]]
name  = "gpu"
title = "On a card"
kind  = "layers"
needs = "cuda"
grid  = { "run.device" = ["cpu", "cuda"] }
)";

struct Fixture {
  explicit Fixture(const std::string& why) {
    std::ofstream(scratch / "cards.toml") << text;
    options.file = (scratch / "cards.toml").string();
    options.out = (scratch / "out").string();
    options.quiet = true;
    options.binary = "/bin/false";  // what is started fails
    options.missing = [why, this](const std::string& device) {
      EXPECT_EQ(device, "cuda");
      ++asked;
      return why;
    };
  }
  std::string run(int code) {
    testing::internal::CaptureStdout();
    EXPECT_EQ(study(options), code);
    return testing::internal::GetCapturedStdout();
  }
  const Scratch scratch;
  StudyOptions options;
  int asked = 0;
};

bool has(const std::string& all, const std::string& words) { return all.find(words) != all.npos; }

TEST(Needs, WithoutTheDeviceNothingIsStarted) {
  Fixture f("there is no driver");
  const std::string said = f.run(0);
  EXPECT_EQ(f.asked, 1);
  EXPECT_TRUE(has(said, "0/1 not run: no card")) << said;
  EXPECT_TRUE(has(said, "0 of 2 runs done, 2 not run")) << said;
  EXPECT_TRUE(has(said, "On a card: not run: no card (there is no driver).")) << said;
  EXPECT_FALSE(has(said, "failed")) << said;

  const std::string page = files::read_text(f.scratch / "out" / "report.html");
  EXPECT_TRUE(has(page, "Not run: no card (there is no driver).")) << page.substr(0, 3000);
  EXPECT_TRUE(has(page, "0 of 2, 2 not run"));
  EXPECT_FALSE(has(page, "still to come"));
  EXPECT_FALSE(has(page, "Nothing of this part is measured yet"));

  // Also where the page is made again from the folder alone.
  const report::Study kept = load_study(f.scratch / "out");
  EXPECT_EQ(report::tally(kept).not_run, 2);
  EXPECT_EQ(kept.remaining, 0);
  const auto document = document_of(kept, "out", "page");
  EXPECT_EQ(document["not_run"], 2);
  EXPECT_EQ(document["done"], 0);
  EXPECT_EQ(document["waiting"], 0);
  EXPECT_EQ(document["parts"][0]["points"][0]["runs"][0]["outcome"], "not run");
  EXPECT_EQ(document["parts"][0]["points"][0]["runs"][0]["reason"], "no card (there is no driver)");
}

TEST(Needs, WithTheDeviceTheRunsAreMade) {
  Fixture f("");
  const std::string said = f.run(1);  // started, and failed
  EXPECT_TRUE(has(said, "(1 failed)")) << said;
  EXPECT_FALSE(has(said, "not run")) << said;

  // A part that was not run on one machine is run on another.
  Fixture g("there is no driver");
  g.run(0);
  g.options.missing = [](const std::string&) { return std::string(); };
  EXPECT_TRUE(has(g.run(1), "(1 failed)"));
}

TEST(Needs, TheListSaysIt) {
  Fixture f("there is no driver");
  f.options.list = true;
  const std::string said = f.run(0);
  EXPECT_TRUE(has(said, "gpu run.device=cuda: not run: no card (there is no driver)")) << said;
  EXPECT_TRUE(has(said, "0 of 2 runs would be made, 2 need what is not here")) << said;
  f.options.json = true;
  const std::string json = f.run(0);
  EXPECT_TRUE(has(json, "\"not_run\": 2") && has(json, "\"would_run\": 0")) << json;
  Fixture there("");
  there.options.list = true;
  EXPECT_TRUE(has(there.run(0), "2 of 2 runs would be made\n"));
}

TEST(Needs, OnlyDevicesCanBeNeeded) {
  std::string file = text;
  file.replace(file.find("\"cuda\""), 6, "\"tpu\"");
  const Error error = error_of([&] { config::study_from_text(file, "cards.toml"); });
  EXPECT_TRUE(has(error.what(), "needs: expected cuda")) << error.what();
}

}  // namespace
}  // namespace tessera::study::needs_test
