// Figures and the numbers in them: labels do not touch, and a figure of nothing is still one.
#include "page/figures/figure.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "page/table.h"
#include "report/html.h"
#include "report/sample.h"

namespace tessera::report::test {
namespace figures {

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Numbers, HaveThreeDigits) {
  EXPECT_EQ(percent(0.1234), "12.3%");
  EXPECT_EQ(percent(1.6e-16), "0%");
  for (const auto& [value, text] :
       std::vector<std::pair<double, const char*>>{{1.2345, "1.23"},
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
    const double w = kLetter * columns_of(e.text), left = anchor == "middle" ? x - w / 2
                                                          : anchor == "end"  ? x - w
                                                                             : x;
    for (const auto& [other_y, l, r] : boxes)
      EXPECT_TRUE(std::abs(other_y - y) > 10 || left > r + gap || left + w < l - gap)
          << e.text << " at " << x << ", " << y;
    boxes.push_back({y, left, left + w});
    EXPECT_GE(left, 0) << e.text;
    EXPECT_LE(left + w, 962) << e.text;
  }
  EXPECT_FALSE(boxes.empty());
}

TEST(Figures, LabelsDoNotTouch) {
  LineFigure f;
  f.title =
      "A title that is longer than the figure is wide, and goes on for quite a while after that";
  f.x_label = "ranks";
  f.y_label = "seconds";
  f.log2_x = f.marks_are_x = true;
  for (int s = 0; s < 8; ++s) {
    Line line{fmt::format("series {} of a grid with a rather long name", s), {}};
    for (int x = 0; x < 12; ++x)
      line.marks.push_back({std::pow(2, x) + (x > 5 ? 1 : 0), 1.0 / (x + 1) + s, 0.5 / (x + 1) + s,
                            2.0 / (x + 1) + s});
    f.lines.push_back(line);
  }
  expect_apart(line_figure(f), "fg-legend", 2);
  expect_apart(line_figure(f), "fg-tick", 2);
  f.log2_x = false;
  expect_apart(line_figure(f), "fg-tick", 2);
  BarFigure b;
  b.title = "bars";
  b.x_label = "ms";
  b.parts = {"compute", "exposed communication", "wait for others", "data", "host"};
  b.beside = "hidden";
  for (int i = 0; i < 12; ++i) {
    BarRow row;
    row.group = i < 6 ? "first group" : "second group with a longer name";
    row.name = fmt::format("technique number {} that has a long name", i);
    row.values = {1.0 * i, 2, 3, kUnknown, -1};
    row.beside = i % 2;
    row.total = "12.3 ms";
    b.rows.push_back(row);
  }
  expect_apart(bar_figure(b), "fg-legend", 2);
  expect_apart(bar_figure(b), "fg-tick", 2);
}

TEST(Figures, StandAloneAndSurviveNothing) {
  for (const std::string& svg :
       {line_figure({}), bar_figure({}), timeline_figure("", "", {}), topology_figure("", {}, 0)}) {
    const std::vector<Element> elements = parse_xml(svg);
    EXPECT_EQ(elements.front().name, "svg");
    EXPECT_EQ(elements[1].name, "title");
    EXPECT_EQ(elements[2].name, "desc");
    EXPECT_EQ(elements[3].name, "style");
    EXPECT_FALSE(has(svg, "nan") || has(svg, "\"inf"));
  }
}

}  // namespace figures
}  // namespace tessera::report::test
