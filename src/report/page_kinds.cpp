// The table of techniques, accuracy over seeds, and the parts of a model beside published numbers.
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
      "Loss − first's: of the last step, repeat by repeat with the same seed.";
  page.close_figures();
  page.html(html_table(t));
}

// Sum of a named row over a run's parts.
double row_seconds(const RunRecord& r, const std::string& row) {
  double sum = 0;
  bool found = false;
  for (const PartRecord& p : r.parts)
    if (p.name == row) sum += p.seconds, found = true;
  return found ? sum : kUnknown;
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

void layers_figures(PageBuilder& page, const Part& part) {
  std::vector<std::string> rows;
  for (const Point& p : part.points)
    for (const RunRecord* r : records_of(p))
      for (const PartRecord& row : r->parts)
        if (std::find(rows.begin(), rows.end(), row.name) == rows.end() && rows.size() < 200) rows.push_back(row.name);
  for (const auto& [row, value] : part.published)
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  if (rows.empty()) {
    page.paragraph("The runs recorded no times of parts.", "soft");
    return;
  }
  BarFigure f;
  f.title = "Shares of the parts", f.x_label = "share of the time, %",
  f.caption = "Each row is one point; parts in the order of the model.";
  f.parts = rows;
  Table t;
  t.columns.push_back({"part", true});
  for (const std::string& row : rows) t.rows.push_back({{row}});
  t.rows.push_back({{"together"}});
  std::size_t shown = 0;
  for (const Point& p : part.points) {
    const std::vector<const RunRecord*> runs = records_of(p);
    if (runs.empty() || ++shown > 12) continue;
    const std::string named = point_name(part, p).empty() ? "measured" : point_name(part, p);
    t.columns.push_back({named}), t.columns.push_back({"share"});
    const auto over_runs = [&](const auto& value) {
      std::vector<double> v;
      for (const RunRecord* r : runs) v.push_back(value(*r));
      return spread_of(v);
    };
    const Spread all = over_runs(measures::parts_seconds);
    BarRow bar;
    bar.name = named, bar.total = seconds_text(all.median);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Spread s = over_runs([&](const RunRecord& r) { return row_seconds(r, rows[i]); });
      const Spread share = over_runs([&](const RunRecord& r) { return row_seconds(r, rows[i]) / measures::parts_seconds(r); });
      t.rows[i].push_back(spread_cell(s, seconds_text));
      t.rows[i].push_back({percent(share.median)});
      bar.values.push_back(share.known() ? 100 * share.median : 0);
    }
    t.rows.back().push_back(spread_cell(all, seconds_text)), t.rows.back().push_back({all.known() ? "100%" : "–"});
    f.rows.push_back(std::move(bar));
  }
  if (!part.published.empty()) {
    double sum = 0;
    for (const auto& [row, value] : part.published) sum += std::isfinite(value) && value > 0 ? value : 0;
    const std::string by = part.published_by.empty() ? "published" : part.published_by;
    t.columns.push_back({by}), t.columns.push_back({"share"});
    BarRow bar;
    bar.name = by, bar.total = "published";
    for (std::size_t i = 0; i < rows.size(); ++i) {
      double value = kUnknown;
      for (const auto& [row, v] : part.published)
        if (row == rows[i]) value = v;
      t.rows[i].push_back({three(value)}), t.rows[i].push_back({percent(sum > 0 ? value / sum : kUnknown)});
      bar.values.push_back(sum > 0 && std::isfinite(value) ? 100 * value / sum : 0);
    }
    t.rows.back().push_back({three(sum)}), t.rows.back().push_back({"100%"});
    f.rows.push_back(std::move(bar));
    t.caption = "Published numbers are as printed, in the publication's own unit; compare shares.";
  }
  page.figure(slug(part.name) + "-shares", bar_figure(f), f.caption);
  page.close_figures();
  page.html(html_table(t));
}

}  // namespace tessera::report
