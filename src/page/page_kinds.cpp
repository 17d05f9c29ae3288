// The table of techniques, and accuracy over seeds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/figures/figure.h"
#include "page/page.h"
#include "page/table.h"

namespace tessera::report {
namespace {

constexpr std::size_t most_bars = 48;

std::string speed_words(double v) { return three(v); }

struct TechniqueColumn {
  const char* name;
  Measure of;
  Words words;
  int best;  // -1: the least, 1: the greatest, 0: neither
};

void technique_table(PageBuilder& page, const Part& part) {
  const TimeMeasure time = time_of(part);
  const MemoryMeasure memory = memory_of(part);
  const std::string time_name = "time of " + time.what;
  const std::vector<TechniqueColumn> all = {
      {time_name.c_str(), time.of, seconds_text, -1},
      {"images/s", measures::images_per_s, speed_words, 1},
      {"top-1", measures::top1, accuracy_text, 1},
      {memory.planned ? "planned memory" : "memory", memory.of, byte_text, -1},
      {"sent a step", measures::comm_bytes, byte_text, 0},
      {"by rings", measures::ring_bytes, byte_text, 0},
      {"bubble", measures::bubble, [](double v) { return fmt::format("{:.1f}%", 100 * v); }, 0},
      {"final loss", measures::loss, [](double v) { return fmt::format("{:.4f}", v); }, 0}};
  const std::vector<SameWork> groups = same_work(part);
  Table t;
  t.columns = {{"technique", true}, {"ranks"}};
  for (const Point& p : part.points) {
    const std::string named = point_name(part, p);
    const std::vector<const RunRecord*> runs = records_of(p);
    t.rows.push_back(
        {{named.empty() ? "run" : named, runs.empty() ? "no run is done" : runs.front()->layout,
          runs.empty() ? "bad" : ""},
         {runs.empty() ? "–" : std::to_string(ranks_of(p))}});
  }
  for (const TechniqueColumn& c : all) {
    std::vector<Spread> values;
    for (const Point& p : part.points) values.push_back(spread_of(p, c.of));
    if (std::none_of(values.begin(), values.end(), [](const Spread& s) { return s.known(); }))
      continue;
    t.columns.push_back({c.name});
    for (std::size_t i = 0; i < values.size(); ++i)
      t.rows[i].push_back(spread_cell(values[i], c.words));
    if (c.best == 0) continue;
    for (const SameWork& group : groups) {
      std::vector<Spread> own(values.size());  // of the others nothing is known
      for (const Point* p : group.points) {
        const auto i = static_cast<std::size_t>(p - part.points.data());
        own[i] = values[i];
      }
      mark_best(t, t.columns.size() - 1, own, c.best < 0);
    }
  }
  t.columns.push_back({"loss − first's"});
  for (std::size_t i = 0; i < part.points.size(); ++i) {
    const Point *point = &part.points[i], *first = baseline_of(part, *point);
    t.rows[i].push_back(!first || first == point
                            ? Cell{"–"}
                            : spread_cell(spread_of(losses_apart(*point, *first)), apart_words));
  }
  t.caption = "★ the best of a column" +
              std::string(groups.size() > 1 ? " among points with the same axes" : "") +
              ", and what the spread does not tell from it. Medians over repeats, below them the "
              "least and the greatest. "
              "Sent: what a rank hands over; by rings: what its ring messages had, round all hops, "
              "as they travelled. "
              "Loss − first's: of the last step, from that of the first technique with the same "
              "axes, repeat by repeat with the same seed.";
  page.table(t);
}

// Sorted by time within each group of equal work, with the time of one rank as a line.
void technique_times(PageBuilder& page, const Part& part) {
  const TimeMeasure time = time_of(part);
  const std::vector<SameWork> groups = same_work(part);
  DotFigure f;
  f.title = "Time of " + time.what;
  f.x_label = time.label;
  std::size_t left_out = 0;
  for (const SameWork& group : groups) {
    std::vector<DotRow> rows;
    for (const Point* p : group.points)
      if (const Spread s = spread_of(*p, time.of); s.known()) {
        DotRow row;
        row.group = groups.size() > 1 ? group.name : "";
        row.name = p->technique.empty() ? point_name(part, *p) : p->technique;
        if (row.name.empty()) row.name = "run";
        row.mark = {.y = s.median, .note = s.n > 1 ? fmt::format("n = {}", s.n) : ""};
        if (s.n > 1) {
          row.mark.low = s.low;
          row.mark.high = s.high;
        }
        row.value = seconds_text(s.median);
        row.colour = ranks_of(*p) == 1 ? 1 : 0;
        if (groups.size() == 1 && !std::isfinite(f.reference) && ranks_of(*p) == 1) {
          f.reference = s.median;
          f.reference_name = row.name;
        }
        rows.push_back(std::move(row));
      }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const DotRow& a, const DotRow& b) { return a.mark.y < b.mark.y; });
    for (DotRow& row : rows) {
      if (f.rows.size() == most_bars)
        ++left_out;
      else
        f.rows.push_back(std::move(row));
    }
  }
  f.caption =
      "Medians over repeats, the fastest first; lines reach from the fastest to the slowest "
      "repeat. Squares: one rank." +
      more_points(left_out);
  if (!f.rows.empty()) page.figure(slug(part.name) + "-time", dot_figure(f), f.caption);
}

void time_and_memory(PageBuilder& page, const Part& part) {
  const TimeMeasure time = time_of(part);
  const MemoryMeasure memory = memory_of(part);
  ScatterFigure f;
  f.title = "Time against memory";
  f.x_label = time.label;
  f.y_label = memory.planned ? "planned memory of the rank with most, MB"
                             : "memory of the rank with most, MB";
  std::size_t known = 0, left_out = 0;
  for (const Point& p : part.points) {
    const Spread t = spread_of(p, time.of), m = spread_of(p, memory.of);
    if (!t.known() || !m.known()) continue;
    if (++known > most_bars / 2) {
      ++left_out;
      continue;
    }
    f.points.push_back({.name = point_name(part, p),
                        .x = t.median,
                        .y = m.median * 1e-6,
                        .tip = seconds_text(t.median) + ", " + byte_text(m.median),
                        .marked = ranks_of(p) == 1});
  }
  if (f.points.size() < 2) return;
  f.caption = "Down is less memory, left is less time. Squares: one rank." + more_points(left_out);
  page.figure(slug(part.name) + "-time-memory", scatter_figure(f), f.caption);
}

}  // namespace

void technique_figures(PageBuilder& page, const Part& part) {
  technique_table(page, part);
  technique_times(page, part);
  time_and_memory(page, part);
  breakdown_figure(page, part);
  curve_figures(page, part);
  memory_figure(page, part);
}

void accuracy_figures(PageBuilder& page, const Part& part) {
  curve_figures(page, part);
  const bool numeric = !part.axis.empty() && !series_of(part).empty();
  if (numeric) {
    LineFigure f;
    f.title = "Accuracy";
    f.x_label = axis_label(part.axis);
    f.y_label = "test top-1 after the last epoch";
    f.percent_y = true;
    f.from_zero = false;
    f.marks_are_x = f.few_are_dots = true;
    double least = 1e308, most = 0;
    for (const PointSeries& s : series_of(part)) {
      Line line{s.name, {}};
      for (const auto& [x, p] : s.points)
        if (const Spread v = spread_of(*p, measures::top1); v.known()) {
          line.marks.push_back({.x = x,
                                .y = v.mean,
                                .low = v.n > 1 ? v.low : kUnknown,
                                .high = v.n > 1 ? v.high : kUnknown,
                                .note = fmt::format("{} seeds", v.n)});
          least = std::min(least, x);
          most = std::max(most, x);
        }
      if (!line.marks.empty()) f.lines.push_back(std::move(line));
    }
    f.log2_x = least > 0 && most / least >= 4;
    f.caption = "Mean over seeds; bars from the worst to the best.";
    if (!f.lines.empty()) page.figure(slug(part.name) + "-top1", line_figure(f), f.caption);
  }
  Table t{{{"", true},
           {"seeds"},
           {"top-1, mean"},
           {"best epoch"},
           {"test loss"},
           {"final loss"},
           {"time of an epoch"}},
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
  mark_best(t, 2, tops, false, &Spread::mean);
  page.table(t);
}

}  // namespace tessera::report
