// Figures, fits and sentences: what is said follows from the numbers, and nothing that they do not hold is said.
#include "report/verdict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report/figure.h"
#include "report/html.h"
#include "report/sample.h"
#include "report/scaling.h"
#include "report/table.h"

namespace tessera::report::test {
namespace sentences {

std::string all_of(const std::vector<std::string>& sentences) {
  std::string out;
  for (const std::string& s : sentences) out += s + "\n";
  return out;
}
std::string said(const Part& part) { return all_of(verdict(part)); }
bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Amdahl, FindsTheSerialShare) {
  for (const double s : {0.0, 0.01, 0.05, 0.25, 1.0}) {
    std::vector<std::pair<double, double>> points;
    for (const double n : {1, 2, 4, 8, 32}) points.emplace_back(n, amdahl_speedup(s, n));
    EXPECT_NEAR(amdahl(points), s, 1e-12);
  }
  EXPECT_EQ(amdahl({{2, 2.5}, {4, 5.0}}), 0);  // faster than ideal: no less than none
  EXPECT_EQ(amdahl({{2, 0.5}, {4, 0.3}}), 1);
  EXPECT_TRUE(std::isnan(amdahl({})));
  EXPECT_TRUE(std::isnan(amdahl({{1, 1.0}})));
  // Noise of 1% on both sides moves it by less than that.
  std::vector<std::pair<double, double>> noisy;
  for (const double n : {2, 4, 8, 16}) noisy.emplace_back(n, amdahl_speedup(0.05, n) * (n == 4 ? 1.01 : 0.99));
  EXPECT_NEAR(amdahl(noisy), 0.05, 0.01);
}

TEST(Verdict, GoodScaling) {
  const Part part = scaling_part(
      PartKind::strong, {1, 2, 4, 8}, [](int n) { return n == 1 ? 1.0 : 0.91; }, 3, 0.005, 0.04);
  const std::string text = said(part);
  EXPECT_TRUE(has(text, "scales to 8 ranks at 9")) << text;
  EXPECT_TRUE(has(text, "communication is exposed from 4 ranks on (8.00% of the step, 12.0% at 8 ranks)")) << text;
  EXPECT_TRUE(has(text, "the slowest rank costs")) << text;
  EXPECT_TRUE(has(text, "Amdahl's law, fitted to 3 points")) << text;
}

TEST(Verdict, BadScaling) {
  const std::string slower = said(scaling_part(
      PartKind::strong, {1, 2, 4}, [](int n) { return n == 1 ? 1.0 : 0.9 / n; }, 2));
  EXPECT_TRUE(has(slower, "more ranks bring nothing")) << slower;
  EXPECT_FALSE(has(slower, "Amdahl")) << slower;
  const std::string poor = said(scaling_part(
      PartKind::strong, {1, 2, 4}, [](int n) { return n == 1 ? 1.0 : 0.6; }, 2));
  EXPECT_TRUE(has(poor, "scales poorly: 4 ranks reach 6")) << poor;
  const std::string part_way = said(scaling_part(
      PartKind::strong, {1, 2, 4, 8}, [](int n) { return n == 8 ? 0.4 : 0.95; }, 2));
  EXPECT_TRUE(has(part_way, "scales to 4 ranks at ")) << part_way;
  EXPECT_TRUE(has(part_way, "; 8 ranks reach 4")) << part_way;
}

TEST(Verdict, SharedCoresAreNamed) {
  Part part = scaling_part(
      PartKind::strong, {1, 2, 4}, [](int n) { return n <= 2 ? 0.95 : 0.48; }, 2);
  for (Point& p : part.points)
    for (Repeat& r : p.repeats) r.record->env["cores"] = 2;
  const std::string text = said(part);
  EXPECT_TRUE(has(text, "from 4 ranks on, ranks share cores: this machine allows a speed-up of 2.00x at most there")) << text;
}

TEST(Verdict, WeakScaling) {
  const std::string text = said(scaling_part(
      PartKind::weak, {1, 2, 4}, [](int n) { return 1.0 - 0.02 * (n - 1); }, 3, 0.001));
  EXPECT_TRUE(has(text, "4 ranks reach 94")) << text;
  EXPECT_FALSE(has(text, "Amdahl")) << text;
}

TEST(Verdict, OneNumberOfRanksIsNoScaling) {
  EXPECT_TRUE(has(said(scaling_part(
                      PartKind::strong, {2}, [](int) { return 1.0; }, 3)),
                  "no scaling to speak of"));
}

TEST(Verdict, NoiseIsNoDifference) {
  Part quiet = technique_part(3, 0.001), noisy = technique_part(3, 0.2), once = technique_part(1);
  EXPECT_TRUE(has(said(quiet), "the shortest time for an epoch is data parallel")) << said(quiet);
  EXPECT_FALSE(has(said(quiet), "no difference")) << said(quiet);
  EXPECT_TRUE(has(said(noisy), "no difference that the spread allows to tell")) << said(noisy);
  EXPECT_TRUE(has(said(once), "measured once, so chance is not ruled out")) << said(once);
  EXPECT_TRUE(has(said(quiet), "the least memory on a rank is ZeRO 3 with 5.20 MB")) << said(quiet);
  EXPECT_TRUE(has(said(quiet), "pipeline, 1F1B sends the fewest bytes: 65.5 kB")) << said(quiet);
  EXPECT_TRUE(has(said(quiet), "the final loss differs from that of one rank")) << said(quiet);
}

TEST(Verdict, AccuracyOverSeeds) {
  const std::string apart = said(accuracy_part(3, 0.003)), near = said(accuracy_part(3, 0.05)), one = said(accuracy_part(1, 0));
  EXPECT_TRUE(has(apart, "best is adamw with ")) << apart;
  EXPECT_TRUE(has(apart, "beyond the spread, against adamw: sgd (−2.00 points)")) << apart;
  EXPECT_TRUE(has(near, "no difference that the spread allows to tell")) << near;
  EXPECT_TRUE(has(near, "within the spread, against adamw: sgd")) << near;
  EXPECT_TRUE(has(one, "with one seed")) << one;
}

TEST(Verdict, Batch) {
  const std::string text = said(batch_part(3));
  EXPECT_TRUE(has(text, "2 ranks: most images per second at batch 256")) << text;
  EXPECT_TRUE(has(text, "takes 27.0% of the step at batch 16 and 3.56% at batch 256")) << text;
  EXPECT_TRUE(has(text, "1 rank: best accuracy at batch 64")) << text;
}

TEST(Verdict, FailuresAndOneRepeatAreSaid) {
  const std::string text = all_of(verdict(sample_study(1)));
  EXPECT_TRUE(has(text, "Every point was measured once")) << text;
  EXPECT_TRUE(has(text, "1 of 33 runs failed: Strong scaling, batch 64, 8 ranks (repeat 2: rank 5 was lost")) << text;
  EXPECT_TRUE(has(text, "Of 3 claims of publications, 1 holds here, 1 does not, 1 cannot be tested here")) << text;
  EXPECT_EQ(all_of(verdict(Study{})), "Nothing has been run yet.\n");
  Study failing;
  failing.parts.push_back(technique_part(2));
  for (Point& p : failing.parts[0].points)
    for (Repeat& r : p.repeats) r = failed(r.number, "no memory");
  const std::string all = all_of(verdict(failing));
  EXPECT_TRUE(has(all, "All 10 runs failed")) << all;
  EXPECT_TRUE(has(all, "and 5 more")) << all;
  EXPECT_FALSE(has(all, "fastest") || has(all, "shortest")) << all;
  for (Point& p : failing.parts[0].points)
    for (Repeat& r : p.repeats) r.outcome = Outcome::waiting;
  EXPECT_TRUE(has(all_of(verdict(failing)), "No run of 10 is finished yet"));
}

TEST(Numbers, HaveThreeDigits) {
  EXPECT_EQ(percent(0.1234), "12.3%");
  EXPECT_EQ(percent(1.6e-16), "0%");
  for (const auto& [value, text] : std::vector<std::pair<double, const char*>>{{1.2345, "1.23"},
                                                                               {12.345, "12.3"},
                                                                               {123.45, "123"},
                                                                               {9.999, "10.0"},
                                                                               {0.01234, "0.0123"},
                                                                               {0.9996, "1.00"},
                                                                               {99.96, "100"},
                                                                               {999.6, "1,000"},
                                                                               {12345.6, "12,346"},
                                                                               {0, "0"},
                                                                               {-1.5, "-1.50"},
                                                                               {kUnknown, "–"},
                                                                               {INFINITY, "–"},
                                                                               {6.6e-6, "6.60e-06"}})
    EXPECT_EQ(three(value), text) << value;
  EXPECT_EQ(byte_text(592204), "592 kB");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(seconds_text(3725), "1 h 2 m");
  EXPECT_EQ(base64("a"), "YQ==");
  EXPECT_EQ(base64("abc"), "YWJj");
}

// Texts of one class that share a line do not touch each other.
void expect_apart(const std::string& svg, const std::string& classes, double gap) {
  std::vector<std::array<double, 3>> boxes;  // y, left, right
  for (const Element& e : parse_xml(svg)) {
    double x = 0, y = 0;
    std::string anchor, kind;
    for (const auto& [name, value] : e.attributes) {
      if (name == "x") x = std::stod(value);
      if (name == "y") y = std::stod(value);
      if (name == "text-anchor") anchor = value;
      if (name == "class") kind = value;
    }
    if (e.name != "text" || !has(kind, classes)) continue;
    const double w = kLetter * columns_of(e.text), left = anchor == "middle" ? x - w / 2 : anchor == "end" ? x - w : x;
    for (const auto& [other_y, l, r] : boxes)
      EXPECT_TRUE(std::abs(other_y - y) > 10 || left > r + gap || left + w < l - gap) << e.text << " at " << x << ", " << y;
    boxes.push_back({y, left, left + w});
    EXPECT_GE(left, 0) << e.text;
    EXPECT_LE(left + w, 962) << e.text;
  }
  EXPECT_FALSE(boxes.empty());
}

TEST(Figures, LabelsDoNotTouch) {
  LineFigure f;
  f.title = "A title that is longer than the figure is wide, and goes on for quite a while after that", f.x_label = "ranks",
  f.y_label = "seconds", f.log2_x = f.marks_are_x = true;
  for (int s = 0; s < 8; ++s) {
    Line line{fmt::format("series {} of a grid with a rather long name", s), {}};
    for (int x = 0; x < 12; ++x)
      line.marks.push_back({std::pow(2, x) + (x > 5 ? 1 : 0), 1.0 / (x + 1) + s, 0.5 / (x + 1) + s, 2.0 / (x + 1) + s});
    f.lines.push_back(line);
  }
  expect_apart(line_figure(f), "fg-legend", 2);
  expect_apart(line_figure(f), "fg-tick", 2);
  f.log2_x = false;
  expect_apart(line_figure(f), "fg-tick", 2);
  BarFigure b;
  b.title = "bars", b.x_label = "ms", b.parts = {"compute", "exposed communication", "wait for others", "data", "host"},
  b.beside = "hidden";
  for (int i = 0; i < 12; ++i) {
    BarRow row;
    row.group = i < 6 ? "first group" : "second group with a longer name",
    row.name = fmt::format("technique number {} that has a long name", i);
    row.values = {1.0 * i, 2, 3, kUnknown, -1}, row.beside = i % 2, row.total = "12.3 ms";
    b.rows.push_back(row);
  }
  expect_apart(bar_figure(b), "fg-legend", 2);
  expect_apart(bar_figure(b), "fg-tick", 2);
}

TEST(Figures, StandAloneAndSurviveNothing) {
  for (const std::string& svg : {line_figure({}), bar_figure({}), timeline_figure("", "", {}), topology_figure("", {}, 0)}) {
    const std::vector<Element> elements = parse_xml(svg);
    EXPECT_EQ(elements.front().name, "svg");
    EXPECT_EQ(elements[1].name, "title");
    EXPECT_EQ(elements[2].name, "desc");
    EXPECT_EQ(elements[3].name, "style");
    EXPECT_FALSE(has(svg, "nan") || has(svg, "\"inf"));
  }
}

// Families and shares of one layer; what stands outside of the layers is in the whole pass only.
TEST(Verdict, OfTheLayersOfAModel) {
  Part part = layers_part();
  std::string text = said(part);
  EXPECT_TRUE(has(text, "of a layer mlp takes 61.4%, msa 35.1%; the whole pass takes 138 ms with 1 thread, 68.9 ms with 2 threads."))
      << text;
  EXPECT_TRUE(has(text, "published: of a layer mlp takes 64.5%, msa 33.3%.")) << text;
  // Two axes: a sentence for each value of the first, with the range over the other.
  for (Point& p : part.points) p.axes.insert(p.axes.begin(), {"run.fuse", "false"});
  for (Point p : layers_part().points) {
    p.axes.insert(p.axes.begin(), {"run.fuse", "true"});
    PartRecord& qkv = p.repeats[0].record->parts[1];
    if (p.axes[1].second == "2") qkv.seconds *= 2;
    part.points.push_back(p);
  }
  text = said(part);
  EXPECT_TRUE(has(text, "fuse false: of a layer mlp takes 61.4%, msa 35.1%;")) << text;
  EXPECT_TRUE(has(text, "fuse true: of a layer mlp takes 48.6% to 61.4%, msa 35.1% to 48.6%;")) << text;
}

}  // namespace sentences
}  // namespace tessera::report::test
