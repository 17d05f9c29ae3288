// The page as a whole: what is on it, and that its files appear whole.
#include "page/page.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "page/compare.h"
#include "page/figures/figure.h"
#include "report/sample.h"

namespace tessera::report::test {
namespace whole_page {

namespace fs = std::filesystem;

class Page : public testing::Test {
 protected:
  // TESSERA_PAGE_OUT: a folder that stays, to look at.
  void SetUp() override {
    const char* out = std::getenv("TESSERA_PAGE_OUT");
    stays_ = out != nullptr;
    folder_ = out ? fs::path(out)
                  : fs::temp_directory_path() / ("tessera-page-" + std::to_string(::getpid()));
  }
  void TearDown() override {
    if (!stays_) fs::remove_all(folder_);
  }
  std::string render(const Study& s) { return text_of(write_page(s, folder_.string())); }
  fs::path folder_;
  bool stays_ = false;
};

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST_F(Page, HasAllThatAStudyHolds) {
  const Study study = sample_study();
  const std::string page = render(study);
  const std::vector<Element> elements = parse_xml(page);
  const auto count = [&](const std::string& name) {
    return std::count_if(elements.begin(), elements.end(),
                         [&](const Element& e) { return e.name == name; });
  };
  EXPECT_EQ(count("script"), 0);
  EXPECT_EQ(count("h1"), 1);
  EXPECT_GE(count("svg"), 30);
  EXPECT_EQ(count("svg"), count("figure"));
  for (const char* id :
       {"verdict", "part-strong", "part-weak", "part-batch", "part-techniques", "part-accuracy",
        "part-layers", "claims", "method", "machine", "failures", "data"})
    EXPECT_TRUE(has(page, std::string("id=\"") + id + "\"")) << id;
  for (const char* figure :
       {"strong-time", "strong-speedup", "strong-efficiency", "strong-breakdown", "batch-accuracy",
        "techniques-time", "accuracy-top1-epochs", "accuracy-top1-time", "layers-shares",
        "layers-msa", "topology"}) {
    EXPECT_TRUE(has(page, std::string("id=\"figure-") + figure + "\"")) << figure;
    EXPECT_TRUE(fs::exists(folder_ / "figures" / (std::string(figure) + ".svg"))) << figure;
  }
  EXPECT_TRUE(has(page, "default-src &#39;none&#39;") ||
              has(page,
                  "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
                  "form-action 'none'"));
  EXPECT_FALSE(has(page, "refresh"));
  EXPECT_TRUE(has(page, "4.00 ms (35.1%)") && has(page, "0.310 (33.3%)")) << "msa, ours and theirs";
  EXPECT_TRUE(has(page, "rank 5 was lost after 12 steps"));
  EXPECT_TRUE(has(page, "from that of the fewest ranks, repeat by repeat with the same seed"))
      << "losses of strong scaling";
  EXPECT_TRUE(has(page, "tessera study studies/sample.toml"));
  EXPECT_FALSE(has(page, "nan") && has(page, "\"nan"));
  for (const Element& e : elements)
    for (const auto& [name, value] : e.attributes)
      EXPECT_FALSE(name != "href" && (has(value, "nan") || has(value, "inf")))
          << e.name << " " << name << " " << value;
  for (const char* csv :
       {"runs.csv", "epochs.csv", "ranks.csv", "losses.csv", "parts.csv", "claims.csv"})
    EXPECT_TRUE(fs::exists(folder_ / "data" / csv));
  // Every id once.
  std::vector<std::string> ids;
  for (const Element& e : elements)
    for (const auto& [name, value] : e.attributes)
      if (name == "id") ids.push_back(value);
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
}

TEST_F(Page, LooksForNewsOnlyWhileItRuns) {
  Study study = sample_study(1);
  study.running = true;
  study.remaining = 90;
  study.parts[0].points[1].repeats[0].outcome = Outcome::running;
  study.parts[0].points[1].repeats[0].record.reset();
  const std::string page = render(study);
  EXPECT_TRUE(has(page, "<meta http-equiv=\"refresh\" content=\"3\"/>"));
  EXPECT_TRUE(has(page, "about 1 m 30 s to go"));
  EXPECT_NO_THROW(parse_xml(page));
}

TEST_F(Page, EmptyAndFailedStudiesAreSaidToBe) {
  Study empty;
  empty.name = "none";
  EXPECT_TRUE(has(render(empty), "Nothing has been run yet."));
  Study failing = sample_study(2);
  for (Part& part : failing.parts)
    for (Point& p : part.points)
      for (Repeat& r : p.repeats) r = failed(r.number, "out of memory");
  const std::string page = render(failing);
  EXPECT_NO_THROW(parse_xml(page));
  EXPECT_TRUE(has(page, "runs failed: there is nothing to say"));
  EXPECT_TRUE(has(page, "All runs of this part failed"));
  // Points without repeats, parts without points.
  Study bare = sample_study(1);
  for (Part& part : bare.parts)
    for (Point& p : part.points) p.repeats.clear();
  EXPECT_NO_THROW(parse_xml(render(bare)));
  for (Part& part : bare.parts) part.points.clear();
  EXPECT_NO_THROW(parse_xml(render(bare)));
}

// Numbers that no run should write do not end in a picture.
TEST_F(Page, OddNumbersAreNotDrawn) {
  for (const double odd :
       {kUnknown, std::numeric_limits<double>::infinity(), -1.0, 0.0, 1e300, -1e300, 1e-300}) {
    Study study = sample_study(2);
    for (Part& part : study.parts)
      for (Point& p : part.points)
        for (Repeat& r : p.repeats) {
          if (!r.record) continue;
          RunRecord& run = *r.record;
          for (double* d : {&run.images_per_s, &run.mfu, &run.epoch_seconds, &run.latency_ms,
                            &run.step_ms.median, &run.breakdown.compute, &run.breakdown.comm_hidden,
                            &run.comm_bytes, &run.test_top1, &run.loss, &run.wall})
            *d = odd;
          for (EpochRecord& e : run.epochs) e.elapsed = e.test_top1 = e.loss = odd;
          for (RankRecord& k : run.by_rank) k.breakdown.compute = odd;
          for (auto& [step, loss] : run.losses) loss = odd;
          for (PartRecord& k : run.parts) k.seconds = odd;
          run.planned = run.measured = 0;
        }
    std::vector<Element> elements;
    ASSERT_NO_THROW(elements = parse_xml(render(study))) << odd;
    for (const Element& e : elements)
      for (const auto& [name, value] : e.attributes)
        EXPECT_FALSE((name == "x" || name == "y" || name == "d" || name == "width" ||
                      name == "viewBox" || name == "x1" || name == "y1") &&
                     (has(value, "nan") || has(value, "inf")))
            << odd << ": " << e.name << " " << name << "=" << value.substr(0, 80);
  }
}

TEST_F(Page, FilesAppearWholeOrNotAtAll) {
  render(sample_study(1));
  const std::string before = text_of(folder_ / "report.html");
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
  // A page that cannot be written leaves nothing behind, and says where.
  const fs::path blocked = folder_ / "blocked";
  std::ofstream(blocked) << "a file, not a folder";
  try {
    write_page(sample_study(1), blocked.string());
    FAIL() << "a file was taken for a folder";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind, ErrorKind::disk);
    EXPECT_TRUE(has(e.where, "blocked"));
  }
  EXPECT_EQ(text_of(blocked), "a file, not a folder");
  EXPECT_EQ(text_of(folder_ / "report.html"), before);
  fs::remove(blocked);
}

TEST_F(Page, TwoPartsOfOneNameHaveFilesOfTheirOwn) {
  Study study = sample_study(1);
  study.parts.push_back(study.parts[0]);
  const std::string page = render(study);
  EXPECT_TRUE(has(page, "id=\"part-strong-2\""));
  EXPECT_TRUE(fs::exists(folder_ / "figures/strong-time-2.svg"));
}

TEST_F(Page, Comparison) {
  Study a = sample_study(), b = sample_study();
  b.name = "after";
  for (Repeat& r : b.parts[3].points[1].repeats) {
    r.record->epoch_seconds *= 0.8;
    r.record->dtype = "bf16";
    r.record->env["commit"] = "ffff";
    r.record->test_top1 += 0.0005;
  }
  b.parts[3].points.pop_back();
  b.parts.pop_back();
  std::string all;
  for (const std::string& line : comparison(a, b)) all += line + "\n";
  EXPECT_TRUE(has(all, "dtype: f32, now bf16 (Techniques on two ranks, data parallel)")) << all;
  EXPECT_TRUE(has(all, "−20.0%, beyond the spread")) << all;
  EXPECT_TRUE(has(all, "+0.05 points, within the spread")) << all;
  EXPECT_TRUE(has(all, "the same to the last digit: 28 points")) << all;
  EXPECT_TRUE(has(all, "only in sample: Techniques on two ranks, pipeline, 1F1B")) << all;
  EXPECT_TRUE(has(all, "only in sample: Parts of a ViT layer, 1 thread")) << all;
  const std::string page = text_of(write_comparison(a, b, folder_.string()));
  EXPECT_NO_THROW(parse_xml(page));
  EXPECT_TRUE(has(page, "beyond the spread"));
  EXPECT_TRUE(fs::exists(folder_ / "data/comparison.csv"));
  EXPECT_TRUE(has(page, ">after <strong>against</strong> sample: 29 points in both."))
      << "one title, two names";
}

// Every setting counts, not only those that have a place in a record.
TEST_F(Page, ComparisonListsSettings) {
  Study a, b;
  for (Study* s : {&a, &b}) {
    s->name = s->title = "run";
    s->parts.push_back(accuracy_part(1, 0));
    s->parts[0].points.resize(1);
  }
  a.file = "out/first";
  b.file = "out/second";
  RunRecord &before = *a.parts[0].points[0].repeats[0].record,
            &after = *b.parts[0].points[0].repeats[0].record;
  after.settings[1].second = "0.01";
  after.settings.emplace_back("loss.label_smoothing", "0.1");
  after.loss = 0.7;
  after.global_batch = 128;
  after.settings[0].second = "128";
  const auto lines = [&] {
    std::string out;
    for (const std::string& line : comparison(a, b)) out += line + "\n";
    return out;
  };
  const std::string all = lines();
  EXPECT_TRUE(has(all, "out/second against out/first: 1 point in both\n")) << all;
  EXPECT_TRUE(has(all, "changed: optim.lr: 0.001, now 0.01\n")) << all;
  EXPECT_TRUE(has(all, "changed: loss.label_smoothing: not recorded, now 0.1\n")) << all;
  EXPECT_TRUE(has(all, "changed: global batch: 64, now 128\n")) << all;
  EXPECT_FALSE(has(all, "batch.global")) << all;
  EXPECT_TRUE(has(all, "final loss 1.20 -> 0.700 (−0.500")) << all;
  const std::string page = text_of(write_comparison(a, b, folder_.string()));
  EXPECT_TRUE(has(page, "<li>optim.lr: 0.001, now 0.01</li>"));
  EXPECT_TRUE(has(page, "out/second <strong>against</strong> out/first: 1 point in both."));
  before.settings.clear();  // of an older version
  EXPECT_FALSE(has(lines(), "optim.lr")) << lines();
  after.test_top1 -= 0.01;
  EXPECT_TRUE(has(lines(), "−1.00 points")) << lines();
  b.parts[0].name = "other";
  EXPECT_TRUE(has(
      lines(), "No point is in both: no part has the same name (first: accuracy; second: other)."))
      << lines();
  EXPECT_TRUE(has(text_of(write_comparison(a, b, folder_.string())),
                  "No point is in both: no part has the same name"));
}

TEST_F(Page, OfASingleRunSpeaksOfNoRepeats) {
  Study study;
  study.name = study.title = "run";
  study.warmup = 2;
  study.command = "tessera report run";
  Part part;
  part.name = part.title = "run";
  part.kind = PartKind::accuracy;
  part.points.push_back({"", {}, {}, {done(0, sample_run(2, 64, 27, 0.05, 0.02))}});
  study.parts.push_back(part);
  const std::string page = render(study);
  EXPECT_NO_THROW(parse_xml(page));
  EXPECT_TRUE(has(page, "id=\"figure-run-breakdown\"") &&
              has(page, "Memory, planned and measured"));
  EXPECT_TRUE(has(page, "an epoch takes") || has(page, "An epoch takes"));
  EXPECT_TRUE(has(page, "the first, the third and every tenth step"));
  EXPECT_TRUE(has(
      page, "count for no speed where there are others (the verdict says where there are none)"));
  const std::string read = page.substr(page.find("<main"));
  for (const char* word : {"seeds", "repeats", "spread"})
    EXPECT_FALSE(has(read, word)) << word << read.substr(read.find(word) - 60, 120);
}

// Nothing is left out in silence, and what is large is not called small.
TEST_F(Page, WhatIsCutIsSaid) {
  Study study;
  study.parts.push_back(technique_part(1));
  Part& part = study.parts[0];
  for (int i = 0; part.points.size() < 50; ++i) {
    part.points.push_back(part.points[1]);
    part.points.back().technique += std::to_string(i);
  }
  study.parts.push_back(layers_part());
  Part& layers = study.parts[1];
  std::vector<PartRecord> rows;
  for (int i = 0; i < 9; ++i) rows.push_back({"small" + std::to_string(i), 0.001, 0.02, 12});
  rows.push_back({"late", 0.009, 0.5, 12});
  for (Point& p : layers.points) p.repeats[0].record->parts = rows;
  layers.published = {{"late", 5}, {"small1", 1}};
  while (layers.points.size() < 26) {
    layers.points.push_back(layers.points[0]);
    layers.points.back().axes[0].second = std::to_string(layers.points.size());
  }
  const std::string page = render(study);
  EXPECT_TRUE(has(page, "2 more points are in data/runs.csv."));
  EXPECT_TRUE(has(page, "2 more points are in data/parts.csv.") &&
              has(page, "14 more points are in data/parts.csv."));
  const std::string shares = text_of(folder_ / "figures/layers-shares.svg");
  EXPECT_TRUE(has(shares, "late") && has(shares, "as printed") && has(shares, "smaller parts"));
  // Few families: nothing is left for "smaller parts", and the published bar is there all the same.
  rows.erase(rows.begin(), rows.begin() + 7);
  for (Point& p : layers.points) p.repeats[0].record->parts = rows;
  layers.published = {{"late", 5}, {"small8", 1}};
  render(study);
  const std::string few = text_of(folder_ / "figures/layers-shares.svg");
  EXPECT_TRUE(has(few, "as printed") && !has(few, "smaller parts"));
}

// An axis that begins at 0 keeps its first point; figures are named after the axis.
TEST_F(Page, BatchFiguresAlongAnyAxis) {
  Study study;
  study.parts.push_back(batch_part(1));
  Part& part = study.parts[0];
  part.points.resize(5);
  part.axis = "data.workers";
  for (int i = 0; i < 5; ++i)
    part.points[static_cast<std::size_t>(i)].axes = {{"data.workers", std::to_string(i)}};
  render(study);
  const std::string time = text_of(folder_ / "figures/batch-time.svg");
  EXPECT_TRUE(has(time, "Time against data.workers"));
  EXPECT_TRUE(has(time, "data.workers 0: "));
}

// One star for each image size, not for the smallest.
TEST_F(Page, StarsAreAmongPointsWithTheSameAxes) {
  Study study;
  study.parts.push_back(technique_grid({16, 32}, 2));
  const std::string page = render(study), best = "<td class=\"best\"><span class=\"value\">";
  for (const char* value : {"540 ms", "1.08 s", "5.20 MB", "10.4 MB"})
    EXPECT_TRUE(has(page, best + value)) << value;
  EXPECT_FALSE(has(page, best + "580 ms") || has(page, best + "1.16 s"));
  EXPECT_TRUE(has(page, "the best of a column among points with the same axes, and"));
  study.parts = {technique_part(2)};
  EXPECT_TRUE(has(render(study), "the best of a column, and"));
}

int times_in(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST_F(Page, BarsOfTechniquesHaveErrorBars) {
  Study study;
  study.parts = {technique_part(3)};
  render(study);
  const std::string several = text_of(folder_ / "figures/techniques-time.svg");
  EXPECT_EQ(times_in(several, "class=\"fg-range\""), 5);
  EXPECT_EQ(times_in(several, ", from "), 5) << several;
  study.parts = {technique_part(1)};
  render(study);
  EXPECT_EQ(times_in(text_of(folder_ / "figures/techniques-time.svg"), "class=\"fg-range\""), 0);
}

// A long curve has as many dots as one can point at, the first and the last among them.
TEST_F(Page, LongCurvesHaveTooltips) {
  LineFigure f;
  f.x_label = "step";
  for (const int count : {7, 200}) {
    Line line{"loss", {}, LineLook::plain};
    for (int i = 1; i <= count; ++i) line.marks.push_back({static_cast<double>(i), 1.0, 0.9, 1.1});
    f.lines = {line};
    const std::string svg = line_figure(f);
    EXPECT_EQ(times_in(svg, "class=\"fg-spot "), std::min(count, 30));
    EXPECT_TRUE(has(svg, "loss, step 1: 1.00 (from 0.900 to 1.10)")) << svg;
    EXPECT_TRUE(has(svg, "loss, step " + std::to_string(count) + ": 1.00")) << svg;
    EXPECT_NO_THROW(parse_xml(svg));
  }
}

TEST_F(Page, UnknownNumbersAreEmptyInSpreadsheets) {
  Study study;
  study.parts.push_back(accuracy_part(1, 0));
  study.parts[0].points.resize(1);
  RunRecord& r = *study.parts[0].points[0].repeats[0].record;
  r.step_ms.mean = 33.5;
  render(study);
  EXPECT_TRUE(has(text_of(folder_ / "data/runs.csv"), ",step_ms_median,step_ms_mean,step_ms_p10,"));
  EXPECT_TRUE(has(text_of(folder_ / "data/runs.csv"), ",27,33.5,"));
  r.measured = r.planned = 0;
  r.step_ms = {};
  r.breakdown = {};
  render(study);
  const std::string runs = text_of(folder_ / "data/runs.csv");
  EXPECT_TRUE(has(runs, ",0.31,,,,,0.54,")) << runs;  // mfu, then no quantiles
  EXPECT_TRUE(has(runs, ",,,,,,,,592204,,,,1.2,"))
      << runs;  // no breakdown, no bubble; no bytes of rings, planned, measured
}

}  // namespace whole_page
}  // namespace tessera::report::test
