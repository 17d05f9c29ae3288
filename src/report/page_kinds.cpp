// The table of techniques, and accuracy over seeds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/figure.h"
#include "report/page.h"
#include "report/table.h"

namespace tessera::report {
namespace {

std::string speed_words(double v) { return three(v); }

struct TechniqueColumn {
  const char* name;
  Measure of;
  Words words;
  int best;  // -1: the least, 1: the greatest, 0: neither
};

void technique_table(PageBuilder& page, const Part& part) {
  const TimeMeasure time = time_of(part);
  const std::string time_name = "time of " + time.what;
  const std::vector<TechniqueColumn> all = {{time_name.c_str(), time.of, seconds_text, -1},
                                            {"images/s", measures::images_per_s, speed_words, 1},
                                            {"top-1", measures::top1, accuracy_text, 1},
                                            {"memory", measures::measured, byte_text, -1},
                                            {"sent a step", measures::comm_bytes, byte_text, 0},
                                            {"by rings", measures::ring_bytes, byte_text, 0},
                                            {"bubble", measures::bubble, [](double v) { return fmt::format("{:.1f}%", 100 * v); }, 0},
                                            {"final loss", measures::loss, [](double v) { return fmt::format("{:.4f}", v); }, 0}};
  Table t;
  t.columns = {{"technique", true}, {"ranks"}};
  for (const Point& p : part.points) {
    const std::string named = point_name(part, p);
    const std::vector<const RunRecord*> runs = records_of(p);
    t.rows.push_back({{named.empty() ? "run" : named, runs.empty() ? "no run is done" : runs.front()->layout, runs.empty() ? "bad" : ""},
                      {runs.empty() ? "–" : std::to_string(ranks_of(p))}});
  }
  for (const TechniqueColumn& c : all) {
    std::vector<Spread> values;
    for (const Point& p : part.points) values.push_back(spread_of(p, c.of));
    if (std::none_of(values.begin(), values.end(), [](const Spread& s) { return s.known(); })) continue;
    t.columns.push_back({c.name});
    for (std::size_t i = 0; i < values.size(); ++i) t.rows[i].push_back(spread_cell(values[i], c.words));
    if (c.best != 0) mark_best(t, t.columns.size() - 1, values, c.best < 0);
  }
  // Repeat by repeat with the first technique: both have the same seed.
  t.columns.push_back({"loss − first's"});
  for (std::size_t i = 0; i < part.points.size(); ++i) {
    std::vector<double> apart;
    for (const Repeat& a : part.points[i].repeats)
      for (const Repeat& b : part.points.front().repeats)
        if (a.number == b.number && a.record && b.record && a.outcome == Outcome::done && b.outcome == Outcome::done)
          apart.push_back(a.record->loss - b.record->loss);
    const Spread s = spread_of(apart);
    t.rows[i].push_back(i == 0 ? Cell{"–"}
                               : spread_cell(s, [](double v) { return v == 0 ? std::string("0") : fmt::format("{:+.2e}", v); }));
  }
  t.caption =
      "★ the best of a column, and what the spread does not tell from it. Medians over repeats, below them the least and the greatest. "
      "Sent: what a rank hands over; by rings: what its ring messages had, round all hops, as they travelled. "
      "Loss − first's: of the last step, repeat by repeat with the same seed.";
  page.close_figures();
  page.html(html_table(t));
}

}  // namespace

void technique_figures(PageBuilder& page, const Part& part) {
  technique_table(page, part);
  breakdown_figure(page, part);
  const TimeMeasure time = time_of(part);
  BarFigure f;
  f.title = "Time of " + time.what, f.x_label = time.label, f.parts = {time.label};
  for (const Point& p : part.points)
    if (const Spread s = spread_of(p, time.of); s.known() && f.rows.size() < 48) {
      BarRow row;
      row.name = point_name(part, p), row.values = {s.median}, row.total = seconds_text(s.median);
      if (row.name.empty()) row.name = "run";
      f.rows.push_back(std::move(row));
    }
  f.caption = "Medians over repeats; their spread is in the table.";
  if (!f.rows.empty()) page.figure(slug(part.name) + "-time", bar_figure(f), f.caption);
  curve_figures(page, part);
  memory_figure(page, part);
}

void accuracy_figures(PageBuilder& page, const Part& part) {
  curve_figures(page, part);
  const bool numeric = !part.axis.empty() && !series_of(part).empty();
  if (numeric) {
    LineFigure f;
    f.title = "Accuracy", f.x_label = axis_label(part.axis), f.y_label = "test top-1 after the last epoch", f.percent_y = true,
    f.from_zero = false;
    f.marks_are_x = true;
    double least = 1e308, most = 0;
    for (const PointSeries& s : series_of(part)) {
      Line line{s.name, {}};
      for (const auto& [x, p] : s.points)
        if (const Spread v = spread_of(*p, measures::top1); v.known()) {
          line.marks.push_back({x, v.mean, v.n > 1 ? v.low : kUnknown, v.n > 1 ? v.high : kUnknown, fmt::format("{} seeds", v.n)});
          least = std::min(least, x), most = std::max(most, x);
        }
      if (!line.marks.empty()) f.lines.push_back(std::move(line));
    }
    f.log2_x = least > 0 && most / least >= 4;
    f.caption = "Mean over seeds; bars from the worst to the best.";
    if (!f.lines.empty()) page.figure(slug(part.name) + "-top1", line_figure(f), f.caption);
  }
  Table t{{{"", true}, {"seeds"}, {"top-1, mean"}, {"best epoch"}, {"test loss"}, {"final loss"}, {"time of an epoch"}},
          {},
          "Accuracy after the last epoch; below it from the worst to the best seed."};
  std::vector<Spread> tops;
  for (const Point& p : part.points) {
    const Spread top = spread_of(p, measures::top1);
    tops.push_back(top);
    Cell mean = spread_cell(top, accuracy_text);
    if (top.known()) mean.text = accuracy_text(top.mean);
    const std::string named = point_name(part, p);
    t.rows.push_back({{named.empty() ? "run" : named},
                      {std::to_string(top.n)},
                      mean,
                      spread_cell(spread_of(p, measures::best_top1), accuracy_text),
                      spread_cell(spread_of(p, measures::test_loss), three),
                      spread_cell(spread_of(p, measures::loss), three),
                      spread_cell(spread_of(p, measures::epoch_seconds), seconds_text)});
  }
  mark_best(t, 2, tops, false);
  page.close_figures();
  page.html(html_table(t));
}

}  // namespace tessera::report
