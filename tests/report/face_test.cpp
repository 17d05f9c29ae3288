// These are seen first: tiles, numbered figures, the page of a run, runs beside each other,
// Markdown.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/check.h"
#include "page/compare_runs.h"
#include "page/figures/figure.h"
#include "page/page.h"
#include "page/tiles.h"
#include "record/read_predictions.h"
#include "report/console.h"
#include "report/html.h"
#include "report/sample.h"

namespace tessera::report::test {
namespace face {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }
int times(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

class Face : public testing::Test {
 protected:
  fs::path folder_ = fs::temp_directory_path() / fmt::format("tessera-face-{}", ::getpid());
  void TearDown() override { fs::remove_all(folder_); }
};

std::string told(const Study& study) {
  std::string out;
  for (const Tile& t : tiles(study)) out += t.label + ": " + t.value + " (" + t.what + ")\n";
  return out;
}

TEST_F(Face, TilesSayWhoLeadsWhoTiesAndHowOften) {
  Study study;
  study.parts = {technique_part(3, 0.001)};
  std::string text = told(study);
  EXPECT_TRUE(has(text, "Fastest: ")) << text;
  EXPECT_TRUE(has(text, "x (data parallel against one rank, n = 3)")) << text;
  EXPECT_TRUE(has(text, "Least memory: ") && has(text, "% (ZeRO 3: 5.2 MB a rank;")) << text;
  EXPECT_TRUE(has(text, "Same loss: ")) << text;
  study.parts = {technique_part(3, 0.3)};
  EXPECT_TRUE(has(told(study), "; ties with ")) << told(study);
  study.parts = {scaling_part(
      PartKind::strong, {1, 2, 4}, [](int n) { return n == 1 ? 1.0 : 0.9; }, 3, 0)};
  text = told(study);
  EXPECT_TRUE(has(text, "Strong scaling: 3.6x (4 ranks: 90% of ideal, n = 3)")) << text;
  EXPECT_LE(tiles(sample_study()).size(), 4u);
  EXPECT_EQ(tiles(Study{}).size(), 0u);
  study.parts = {accuracy_part(1, 0)};
  study.parts[0].points.resize(1);
  study.parts[0].points[0].repeats = {failed(0, "no memory")};
  EXPECT_EQ(tiles(study).size(), 0u) << "the only run failed";
  for (const auto& [value, words] : std::vector<std::pair<double, const char*>>{{1.94, "1.9"},
                                                                                {0.996, "1.0"},
                                                                                {12.4, "12"},
                                                                                {1234, "1,200"},
                                                                                {0.0523, "0.052"},
                                                                                {0, "0"}})
    EXPECT_EQ(two(value), words) << value;
}

TEST_F(Face, NoSentenceIsTwiceAndFiguresAreNumbered) {
  Study study = sample_study();
  const std::string page = text_of(write_page(study, folder_.string()));
  for (const Part& part : study.parts)
    for (const std::string& s : verdict(part))
      EXPECT_LE(times(page, escape(without_title(part, s))), 1) << s;
  const int figures = times(page, "<figure");
  for (int i = 1; i <= figures; ++i)
    EXPECT_EQ(times(page, fmt::format("<strong>Figure {}.</strong>", i)), 1) << i;
  for (const Part& part : study.parts)
    EXPECT_TRUE(has(page, ">" + escape(part_title(part), 60) + "</a></li>")) << part.name;
  for (const char* fact : {"model", "parameters", "data", "batch", "learning rate", "dtype",
                           "seeds", "repeats", "date"})
    EXPECT_TRUE(has(page, fmt::format("<dt>{}</dt>", fact))) << fact;
  EXPECT_TRUE(has(page, "tessera study studies/sample.toml")) << "the command";
  // Equal losses are told, others drawn on a logarithmic axis.
  const std::string apart = text_of(folder_ / "figures/techniques-loss-apart.svg");
  EXPECT_TRUE(has(apart, "logarithmic") || has(page, "Losses are equal at every step")) << apart;
  EXPECT_TRUE(has(text_of(folder_ / "figures/techniques-time-memory.svg"), "MB"));
}

TEST_F(Face, TwoValuesAreDots) {
  LineFigure f;
  f.title = "Time";
  f.x_label = "ranks";
  f.y_label = "seconds";
  f.few_are_dots = true;
  f.lines = {{"ideal", {{1, 4}, {2, 2}}, LineLook::ideal},
             {"batch 64", {{1, 4, 3.9, 4.1}, {2, 2.5}}}};
  const std::string dots = line_figure(f);
  EXPECT_TRUE(has(dots, "2 ranks") && has(dots, "fg-tickm") && !has(dots, "class=\"fg-line"))
      << dots;
  EXPECT_TRUE(has(dots, "1 rank: 4.00, from 3.90 to 4.10")) << dots;
  f.lines[1].marks.push_back({4, 1.5});
  EXPECT_TRUE(has(line_figure(f), "class=\"fg-line"));
}

TEST_F(Face, TechniquesStandByTheirTimeBesideTheLineOfOneRank) {
  Study study;
  study.parts = {technique_part(3, 0.001)};
  write_page(study, folder_.string());
  const std::string svg = text_of(folder_ / "figures/techniques-time.svg");
  EXPECT_TRUE(has(svg, "class=\"fg-ideal")) << "the line of one rank";
  std::vector<std::pair<double, std::size_t>> rows;  // median time, place in the picture
  for (const Point& point : study.parts[0].points)
    rows.emplace_back(spread_of(point, time_of(study.parts[0]).of).median,
                      svg.rfind(">" + escape(point_name(study.parts[0], point)) + "</text>"));
  std::sort(rows.begin(), rows.end());
  ASSERT_GE(rows.size(), 3u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_NE(rows[i].second, svg.npos) << "row " << i << "\n" << svg;
    if (i > 0) {
      EXPECT_GT(rows[i].second, rows[i - 1].second) << "row " << i << "\n" << svg;
    }
  }
}

TEST_F(Face, LogarithmicAxesAndEmptyFigures) {
  LineFigure f;
  f.title = "Loss";
  f.x_label = "step";
  f.log10_y = true;
  f.lines = {{"a", {{1, 1e-9}, {2, 0}, {3, 1e-3}}, LineLook::plain}};
  const std::string svg = line_figure(f);
  EXPECT_TRUE(has(svg, "1e-09") || has(svg, "1e-08")) << svg;
  EXPECT_FALSE(has(svg, "nan") || has(svg, "inf"));
  DotFigure dots;
  dots.log10 = true;
  dots.rows = {{"", "equal", {.y = 0}, kUnknown, "0"}, {"", "b", {.y = 1e-7}, kUnknown, "1e-07"}};
  EXPECT_FALSE(has(dot_figure(dots), "inf"));
  for (const std::string& empty : {dot_figure({}), scatter_figure({}), matrix_figure({})}) {
    EXPECT_NO_THROW(parse_xml(empty));
    EXPECT_TRUE(has(empty, "nothing measured yet"));
  }
}

TEST_F(Face, LinesAreCutBetweenWordsAndSpeedsHaveDigits) {
  EXPECT_EQ(wrapped("short", 80), "short");
  // The longest bar there is, in every terminal: a column stays free, and the percentage is there.
  for (const int columns : {40, 60, 79, 80, 81, 200}) {
    const std::string bar = bar_text(0.5, 360'000, 360'000, "eval 100%", columns);
    EXPECT_LT(bar.size(), static_cast<std::size_t>(columns)) << bar;
    EXPECT_NE(bar.find("]  50%"), bar.npos) << bar;
  }
  EXPECT_EQ(bar_text(0.25, 61, 3723, "eval 9%", 80),
            "[########------------------------]  25%  eta 1 h 2 m   1:01 elapsed  eval 9%");
  EXPECT_EQ(wrapped("step 1 | loss 2.303 | top1 12.5% | lr 7.8e-06", 36),
            "step 1 | loss 2.303 | top1 12.5%\n    lr 7.8e-06");
  EXPECT_EQ(wrapped(std::string(30, 'x') + " y", 20), std::string(30, 'x') + " y");
  for (const auto& [value, words] : std::vector<std::pair<double, const char*>>{
           {1234.6, "1,235"}, {56.78, "56.8"}, {0.01234, "0.0123"}, {3.14159, "3.14"}})
    EXPECT_EQ(per_second(value), words);
}

TEST_F(Face, NamesOfAScatterDoNotTouch) {
  ScatterFigure f;
  f.title = "Time against memory";
  for (int i = 0; i < 9; ++i)
    f.points.push_back({fmt::format("technique {}", i), 1 + 0.01 * i, 5 + 0.02 * (i % 3)});
  std::vector<std::array<double, 3>> boxes;
  int named = 0;
  for (const Element& e : parse_xml(scatter_figure(f))) {
    double x = 0, y = 0;
    std::string kind, anchor;
    for (const auto& [name, value] : e.attributes) {
      if (name == "x") x = std::stod(value);
      if (name == "y") y = std::stod(value);
      if (name == "class") kind = value;
      if (name == "text-anchor") anchor = value;
    }
    if (e.name != "text" || !has(kind, "fg-name")) continue;
    ++named;
    const double w = kLetter * columns_of(e.text), left = x - (anchor == "end"      ? w
                                                               : anchor == "middle" ? w / 2
                                                                                    : 0);
    for (const auto& [other, l, r] : boxes)
      EXPECT_TRUE(std::abs(other - y) > 10 || left >= r || left + w <= l) << e.text;
    boxes.push_back({y, left, left + w});
  }
  EXPECT_GE(named, 5);
}

// A run of three steps and two epochs in a folder.
void write_run(const fs::path& folder, double lr, const std::string& predictions = "") {
  fs::create_directories(folder);
  std::ofstream(folder / "resolved.toml")
      << "[model]\nname = \"vit_micro\"\n[optim]\nlr = " << lr << "\n[batch]\nglobal = 64\n";
  std::ofstream metrics(folder / "metrics.jsonl");
  for (int i = 1; i <= 4; ++i) {
    metrics << fmt::format(
        R"({{"kind":"step","step":{},"loss":{},"lr":{},"grad_norm":1.5,"images_per_s":900,"step_ms":10}})"
        "\n",
        i, 2.0 / i, lr);
    if (i % 2 == 0)
      metrics << fmt::format(
          R"({{"kind":"epoch","epoch":{},"loss":1,"train_top1":0.4,"seconds":2,"test_loss":1.1,"test_top1":0.5,"elapsed_s":{}}})"
          "\n",
          i / 2, i);
  }
  if (!predictions.empty()) std::ofstream(folder / "predictions.json") << predictions;
}

Study study_of(const fs::path& folder) {
  Study out;
  out.name = out.title = folder.filename().string();
  out.file = folder.string();
  Part part;
  part.name = part.title = "run";
  part.kind = PartKind::accuracy;
  Repeat repeat;
  repeat.record = read_run(folder.string());
  repeat.outcome = Outcome::done;
  repeat.folder = ".";
  part.points.push_back({"", {}, {}, {std::move(repeat)}});
  out.parts.push_back(std::move(part));
  return out;
}

TEST_F(Face, ThePageOfARunHasItsCurvesClassesAndPredictions) {
  const std::uint8_t pixels[12] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9};
  Predictions p{.classes = {"cat", "dog <b>"},
                .images = {3, 1},
                .correct = {2, 1},
                .confusion = {2, 1, 0, 1},
                .samples = {{"a.png", 0, 1, 0.75, base64(small_png(pixels, 2, 2, 3, 64))}}};
  write_run(folder_ / "run", 0.001, to_json(p).dump());
  const Study study = study_of(folder_ / "run");
  const std::string page =
      text_of(write_page(study, (folder_ / "out").string(), (folder_ / "run").string()));
  EXPECT_NO_THROW(parse_xml(page));
  for (const char* figure : {"run-loss", "run-lr", "run-grad-norm", "run-speed", "run-top1",
                             "run-test-loss", "run-classes", "run-confusion"})
    EXPECT_TRUE(has(page, fmt::format("id=\"figure-{}\"", figure))) << figure;
  EXPECT_TRUE(has(page, ">epoch 1<") && has(page, ">epoch 2<")) << "two epochs are dots";
  EXPECT_TRUE(has(page, "data:image/png;base64,iVBORw0KGgo")) << "a PNG";
  EXPECT_TRUE(has(page, "dog &lt;b&gt;") && !has(page, "dog <b>"));
  EXPECT_TRUE(has(page, "/resolved.toml --out NEW") && has(page, "optim.lr"));
  // Damaged files are said to be, and nothing of them is shown.
  for (const char* bad : {"{\"classes\":[\"a\"],\"samples\":[{\"label\":3,\"png\":\"\"}]}",
                          "{\"classes\":[\"a\"],\"images\":[1,2]}",
                          "{\"classes\":[\"a\"],\"samples\":[{\"png\":\"\\\"onload=1\"}]}"}) {
    write_run(folder_ / "bad", 0.001, bad);
    EXPECT_TRUE(has(text_of(write_page(study_of(folder_ / "bad"), (folder_ / "out").string(),
                                       (folder_ / "bad").string())),
                    "Its predictions could not be read"))
        << bad;
  }
}

TEST_F(Face, AnyNumberOfRunsStandBesideEachOther) {
  std::vector<Study> runs;
  for (const double lr : {0.001, 0.002, 0.004}) {
    write_run(folder_ / fmt::format("lr{}", lr), lr);
    runs.push_back(study_of(folder_ / fmt::format("lr{}", lr)));
  }
  const std::string page = text_of(write_runs_beside(runs, (folder_ / "out").string()));
  EXPECT_NO_THROW(parse_xml(page));
  EXPECT_TRUE(has(page, "3 runs beside each other") && has(page, "compare-loss"));
  EXPECT_TRUE(has(page, ">0.002<") && has(page, "optim.lr"));
  EXPECT_TRUE(has(page, ">epoch 1<") && has(page, ">epoch 2<")) << "two epochs are dots";
  for (const char* causal : {"because", "that did", "leads to", "makes it"})
    EXPECT_FALSE(has(page, causal)) << causal;
  EXPECT_TRUE(has(page, "<dt>model</dt>")) << "what all of them trained";
  runs[1].parts[0].points[0].repeats[0].record->seed = 4711;  // which no other key tells
  EXPECT_TRUE(has(text_of(write_runs_beside(runs, (folder_ / "out").string())), "4711"));
  std::string lines;
  for (const std::string& line : runs_beside(runs)) lines += line + "\n";
  EXPECT_TRUE(has(lines, "differs: optim.lr: 0.001 | 0.002 | 0.004")) << lines;
  EXPECT_TRUE(has(lines, "top-1 after the last epoch: 50.00% | 50.00% | 50.00%")) << lines;
  EXPECT_TRUE(fs::exists(folder_ / "out/data/comparison.csv"));
}

// Folders without --out are named after what was asked for, so that they begin alike.
TEST_F(Face, RunsWithLongNamesCanBeToldApart) {
  std::vector<Study> runs;
  const std::string before = "vit_micro-synthetic-train_size4096-test_size1024-";
  for (const char* name : {"accumulate4-pp2-np2", "dp2-tp2-np4", "dp2-np2-é"}) {
    write_run(folder_ / (before + name), 0.001);
    runs.push_back(study_of(folder_ / (before + name)));
    RunRecord& r = *runs.back().parts[0].points[0].repeats[0].record;
    const bool pipeline = has(name, "pp2");
    r.layout = pipeline ? "pp2 1f1b" : "dp2";
    r.settings.insert(r.settings.end(), {{"parallel.pp", pipeline ? "2" : "1"},
                                         {"parallel.schedule", "1f1b"},
                                         {"parallel.segments", "1"}});
  }
  const std::string page = text_of(write_runs_beside(runs, (folder_ / "out").string()));
  std::set<std::string> legend;
  for (const Element& e : parse_xml(text_of((folder_ / "out/figures/compare-loss.svg").string())))
    for (const auto& [name, value] : e.attributes)
      if (name == "class" && has(value, "fg-legend"))
        legend.insert(e.text.substr(e.text.rfind('-', e.text.size() - 5)));
  EXPECT_EQ(legend, (std::set<std::string>{"-pp2-np2", "-tp2-np4", "-np2-é"}));
  EXPECT_TRUE(has(page, "layout") && !has(page, "parallel.schedule"))
      << "the schedule of a run without a pipeline is no difference";
}

TEST_F(Face, MarkdownHasTheTilesTheTablesAndTheFigures) {
  Study study = sample_study();
  study.title = "a | b <script>";
  const std::string path = write_page(study, folder_.string(), "", PageFormat::markdown);
  EXPECT_TRUE(path.ends_with("report.md"));
  const std::string text = text_of(path);
  EXPECT_TRUE(has(text, "# a \\| b &lt;script&gt;\n")) << text.substr(0, 200);
  EXPECT_TRUE(has(text, "](figures/strong-time.svg)") && has(text, "](data/runs.csv)"));
  EXPECT_TRUE(has(text, "| technique | ranks |"));
  EXPECT_FALSE(has(text, "<script"));
  EXPECT_TRUE(fs::exists(folder_ / "figures/strong-time.svg"));
}

}  // namespace face
}  // namespace tessera::report::test
