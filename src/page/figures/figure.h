// Figures: pure functions from numbers to SVG text that stands alone as a file and is put into a
// page as it is. Convention: sizes are pixels of a picture that scales; colours are those of Okabe
// and Ito, in a fixed order, each with its own marker and dash, so that none is told by colour
// alone; names that a style sheet could meet begin with fg-. What is not finite is not drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "record/record.h"

namespace tessera::report {

struct Mark {  // a value with its spread
  double x = 0, y = kUnknown;
  double low = kUnknown, high = kUnknown;  // error bar; not finite: none
  std::string note = {};                   // in the tooltip, after the numbers
};

enum class LineLook : unsigned char {
  measured,
  ideal,
  fitted,
  plain
};  // plain: curves of many points, tooltips without markers

struct Line {
  std::string name;
  std::vector<Mark> marks;  // in the order of x
  LineLook look = LineLook::measured;
  int colour = -1;  // -1: by its place among the measured ones
};

struct LineFigure {
  std::string title, caption, x_label, y_label;
  std::vector<Line> lines;
  bool log2_x = false;        // ranks, batch sizes: equal steps for equal factors
  bool from_zero = true;      // y begins at 0
  bool from_zero_x = false;   // and x
  bool percent_y = false;     // values are shares
  bool marks_are_x = false;   // ticks of x are the values that there are
  bool log10_y = false;       // equal steps for equal factors; what is not above 0 is not drawn
  bool few_are_dots = false;  // two values of x have nothing between them: dot_figure() instead
};
std::string line_figure(const LineFigure& figure);

// Rows with a dot each, from left to right; a row of a new group has its heading above it.
struct DotRow {
  std::string group, name;
  Mark mark;                // y is the value, x is not used
  double ideal = kUnknown;  // a tick beside the dot
  std::string value;        // at the end of the row, in words
  int colour = 0;
};
struct DotFigure {
  std::string title, caption, x_label;
  std::vector<DotRow> rows;
  bool log10 = false;  // values that are not above 0 have no dot, only their words
  bool percent = false;
  double reference = kUnknown;  // a line from top to bottom
  std::string reference_name, ideal_name;
};
std::string dot_figure(const DotFigure& figure);

// Points by two values, each with its name beside it.
struct ScatterPoint {
  std::string name;
  double x = kUnknown, y = kUnknown;
  std::string tip = {};
  bool marked = false;  // the one that others are compared with
};
struct ScatterFigure {
  std::string title, caption, x_label, y_label;
  std::vector<ScatterPoint> points;
};
std::string scatter_figure(const ScatterFigure& figure);

// Shares as shades: rows are what is true, columns what was said. Row-major counts.
struct MatrixFigure {
  std::string title, caption, row_label, column_label;
  std::vector<std::string> names;
  std::vector<std::int64_t> counts;
};
std::string matrix_figure(const MatrixFigure& figure);

// Rows of stacked bars, from left to right; a row of a new group has its heading above it.
struct BarRow {
  std::string group, name;
  std::vector<double> values;  // by part
  double beside =
      0;  // what goes on at the same time (hidden communication): a dashed outline below the bar
  std::string total;                       // at the end of the bar, in words
  double low = kUnknown, high = kUnknown;  // error bar; not finite: none
};
struct BarFigure {
  std::string title, caption, x_label;
  std::vector<std::string> parts;
  std::string beside;  // its name in the legend; "": none
  std::vector<BarRow> rows;
};
std::string bar_figure(const BarFigure& figure);

// The machines of a run and what works on each: hosts as boxes, in them devices and the ranks on
// them.
struct TopologyRank {
  std::string host, device;
  int threads = 0;
  double share = kUnknown;  // of the step in which it computes
};
std::string topology_figure(const std::string& title, const std::vector<TopologyRank>& ranks,
                            int cores);

// One step of every rank, what it does from left to right and messages under way below; see
// timeline.h for where it comes from.
struct TimelineBar {
  std::string name, category;
  double start = 0, end = 0;  // ms from the step's start
  int lane = 0;               // 0: what the rank does; 1...: messages
};
std::string timeline_figure(const std::string& title, const std::string& caption,
                            const std::vector<std::vector<TimelineBar>>& ranks);

// ---- what figures are made of

inline constexpr double kLetter = 6.9;  // about the width of a character of 12 pixels

class Canvas {
 public:
  Canvas(double width, std::string title, std::string caption);
  void text(double x, double y, const std::string& classes, const std::string& what,
            const char* anchor = "start", const std::string& tip = "");
  void line(double x1, double y1, double x2, double y2, const std::string& classes);
  void rect(double x, double y, double w, double h, const std::string& classes,
            const std::string& tip = "", double round = 0);
  void marker(double x, double y, int colour, const std::string& tip);  // a shape for each colour
  void spot(double x, double y, int colour,
            const std::string& tip);  // a tooltip; seen where it is pointed at
  void path(const std::string& d, const std::string& classes);
  void raw(const std::string& svg) { out_ += svg; }
  // Entries beside each other, as many rows as they need; moves y() below them.
  struct Key {
    std::string name, classes;
    int colour = -1;  // with a marker, else: a box with `classes`, or a stroke where `stroke`
    bool stroke = false;
  };
  void legend(const std::vector<Key>& keys, double left);
  double y() const { return y_; }
  void down(double by) { y_ += by; }
  double width() const { return width_; }
  std::string finish(double height) const;

 private:
  double width_, y_ = 0;
  std::string title_, caption_, out_;
};

// From 1, 2, 5 x 10^k: about `most` of them, covering low to high.
struct Ticks {
  double first = 0, step = 1, last = 1;
  int decimals = 0;
  std::vector<double> at() const;
  std::string label(double value, bool percent) const;
};
Ticks ticks(double low, double high, int most, bool percent = false);

inline constexpr int kColours = 8;

}  // namespace tessera::report
