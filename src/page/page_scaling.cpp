// Strong and weak scaling, batch sizes and accumulation: figures along a numeric axis, and the
// table of their points.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/figures/figure.h"
#include "page/page.h"
#include "page/scaling.h"
#include "page/table.h"

namespace tessera::report {
namespace {

Mark mark_of(double x, const Spread& s) {
  return {.x = x,
          .y = s.median,
          .low = s.n > 1 ? s.low : kUnknown,
          .high = s.n > 1 ? s.high : kUnknown,
          .note = s.n > 1 ? fmt::format("{} runs", s.n) : "one run"};
}

// A measure of every series along the part's axis.
LineFigure along_axis(const Part& part, const std::string& title, const std::string& y_label,
                      Measure measure) {
  LineFigure f;
  f.title = title;
  f.x_label = axis_label(part.axis);
  f.y_label = y_label;
  f.log2_x = f.marks_are_x = f.few_are_dots = true;
  for (const PointSeries& s : series_of(part)) {
    Line line{s.name, {}};
    for (const auto& [x, point] : s.points)
      if (const Spread v = spread_of(*point, measure); v.known()) {
        line.marks.push_back(mark_of(x, v));
        f.log2_x &= x > 0;
      }
    if (!line.marks.empty()) f.lines.push_back(std::move(line));
  }
  return f;
}

std::vector<double> all_ranks(const std::vector<Scaling>& all) {
  std::vector<double> out;
  for (const Scaling& s : all)
    for (const ScalingPoint& p : s.points) out.push_back(p.ideal);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

LineFigure speedup_figure(const Part& part, const std::vector<Scaling>& all) {
  LineFigure f;
  f.title = part.kind == PartKind::weak ? "Scaled speed-up" : "Speed-up";
  f.x_label = axis_label(part.axis);
  f.y_label = "times as fast as the fewest " + axis_label(part.axis);
  f.log2_x = f.marks_are_x = f.few_are_dots = true;
  const double base =
      all.empty() || all.front().points.empty() ? 1 : all.front().points.front().ranks;
  Line ideal{"ideal", {}, LineLook::ideal};
  for (const double n : all_ranks(all)) ideal.marks.push_back({n * base, n});
  f.lines.push_back(ideal);
  int colour = 0;
  for (const Scaling& s : all) {
    Line line{.name = s.name.empty() ? "measured" : s.name,
              .marks = {},
              .look = LineLook::measured,
              .colour = colour};
    for (const ScalingPoint& p : s.points)
      line.marks.push_back({.x = p.ranks,
                            .y = p.speedup,
                            .low = p.time.n > 1 ? p.low : kUnknown,
                            .high = p.time.n > 1 ? p.high : kUnknown,
                            .note = fmt::format("efficiency {}", percent(p.efficiency))});
    f.lines.push_back(line);
    if (!s.weak && std::isfinite(s.serial) && s.fitted > 1) {
      Line fit{.name = s.name.empty() ? fmt::format("Amdahl, {} serial", percent(s.serial)) : "",
               .marks = {},
               .look = LineLook::fitted,
               .colour = colour};
      const double most = s.points.back().ideal;
      for (int i = 0; i <= 24; ++i) {
        const double n = std::pow(most, i / 24.0);
        fit.marks.push_back({n * s.points.front().ranks, amdahl_speedup(s.serial, n)});
      }
      f.lines.push_back(fit);
    }
    ++colour;
  }
  return f;
}

LineFigure efficiency_figure(const Part& part, const std::vector<Scaling>& all) {
  LineFigure f;
  f.title = "Efficiency";
  f.x_label = axis_label(part.axis);
  f.y_label = "share of the ideal speed-up";
  f.log2_x = f.marks_are_x = f.percent_y = f.few_are_dots = true;
  Line ideal{"ideal", {}, LineLook::ideal};
  int colour = 0;
  for (const Scaling& s : all) {
    Line line{.name = s.name.empty() ? "measured" : s.name,
              .marks = {},
              .look = LineLook::measured,
              .colour = colour++};
    for (const ScalingPoint& p : s.points)
      line.marks.push_back({.x = p.ranks,
                            .y = p.efficiency,
                            .low = p.time.n > 1 ? p.low / p.ideal : kUnknown,
                            .high = p.time.n > 1 ? p.high / p.ideal : kUnknown,
                            .note = ""});
    f.lines.push_back(line);
  }
  const double base =
      all.empty() || all.front().points.empty() ? 1 : all.front().points.front().ranks;
  for (const double n : all_ranks(all)) ideal.marks.push_back({n * base, 1});
  f.lines.insert(f.lines.begin(), ideal);
  return f;
}

void scaling_table(PageBuilder& page, const Part& part, const std::vector<Scaling>& all) {
  Table t;
  const bool named = all.size() > 1 || (!all.empty() && !all.front().name.empty());
  if (named) t.columns.push_back({"", true});
  const bool weak = !all.empty() && all.front().weak;
  for (const std::string& c :
       {axis_label(part.axis),
        all.empty() ? std::string("time") : "time of " + all.front().time.what,
        std::string("speed-up"), std::string("efficiency"), std::string("attainable"),
        std::string("by cores"), std::string("exposed"), std::string("wait"),
        std::string("slowest rank")})
    t.columns.push_back({c});
  // Inference has no losses.
  const auto trained = [](const Point& p) { return spread_of(p, measures::loss).known(); };
  const bool losses = !weak && std::any_of(part.points.begin(), part.points.end(), trained);
  if (losses) t.columns.push_back({"loss − first's"});
  for (const Scaling& s : all)
    for (const ScalingPoint& p : s.points) {
      std::vector<Cell> row;
      if (named) row.push_back({s.name});
      row.push_back({plain_number(p.ranks)});
      row.push_back(spread_cell(p.time, seconds_text));
      row.push_back(
          {three(p.speedup) + "x", p.time.n > 1 && std::isfinite(p.low)
                                       ? fmt::format("{}x to {}x", three(p.low), three(p.high))
                                       : ""});
      row.push_back({percent(p.efficiency)});
      row.push_back({std::isfinite(p.attainable) ? three(p.attainable) + "x" : "–"});
      row.push_back({std::isfinite(p.cores) ? three(p.cores) + "x" : "–"});
      for (const double share : {p.exposed, p.wait, p.slowest}) row.push_back({percent(share)});
      const bool first = &p == &s.points.front();
      if (losses)
        row.push_back(first
                          ? Cell{"–"}
                          : spread_cell(spread_of(losses_apart(*p.point, *s.points.front().point)),
                                        apart_words));
      t.rows.push_back(row);
    }
  t.caption = std::string(
                  "Attainable: the speed-up if only the computing of the slowest rank took time: "
                  "no communication, no waiting, no loading; it "
                  "falls short of the ideal where work is uneven or cores and memory are shared. "
                  "By cores: the ideal, or cores over threads "
                  "where there are fewer. Exposed and wait: of the step. Slowest rank: by how much "
                  "its computing exceeds the mean, of the step.") +
              (weak ? " Speed-up: scaled, the work grows with the " + axis_label(part.axis) + "."
               : losses ? " Loss − first's: of the last step, from that of the fewest " +
                              axis_label(part.axis) + ", repeat by repeat with the same seed."
                        : "");
  page.table(t);
}

}  // namespace

void scaling_figures(PageBuilder& page, const Part& part) {
  const std::vector<Scaling> all = scaling_of(part);
  if (all.empty()) return;
  const std::string id = slug(part.name);
  const TimeMeasure time = time_of(part);
  const std::string title = part.kind != PartKind::weak ? "Time"
                            : part.axis == "run.np"     ? "Time, work per rank the same"
                                                        : "Time, work growing alike";
  LineFigure times = along_axis(part, title, time.label, time.of);
  int colour = 0;
  for (const Scaling& s : all) {
    Line ideal{
        .name = colour == 0 ? "ideal" : "", .marks = {}, .look = LineLook::ideal, .colour = colour};
    for (const ScalingPoint& p : s.points)
      ideal.marks.push_back({p.ranks, s.points.front().time.median / (s.weak ? 1 : p.ideal)});
    times.lines.push_back(ideal);
    ++colour;
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    if (times.lines[i].name.empty()) times.lines[i].name = "measured";
  times.caption = "Medians over repeats; bars reach from the fastest to the slowest.";
  page.figure(id + "-time", line_figure(times), times.caption);
  LineFigure speed = speedup_figure(part, all);
  speed.caption = part.kind == PartKind::weak
                      ? "With n times the work on n " + axis_label(part.axis) + "."
                      : "Against the fewest " + axis_label(part.axis) + ".";
  if (std::any_of(speed.lines.begin(), speed.lines.end(),
                  [](const Line& line) { return line.look == LineLook::fitted; }))
    speed.caption += " Dotted: Amdahl's law fitted to the points that share no cores.";
  page.figure(id + "-speedup", line_figure(speed), speed.caption);
  LineFigure efficiency = efficiency_figure(part, all);
  efficiency.caption = "Speed-up over the ideal one.";
  page.figure(id + "-efficiency", line_figure(efficiency), efficiency.caption);
  breakdown_figure(page, part);
  scaling_table(page, part, all);
}

void batch_figures(PageBuilder& page, const Part& part) {
  const std::string id = slug(part.name);
  const TimeMeasure time = time_of(part);
  const auto add = [&](const char* file, LineFigure f, const std::string& caption) {
    if (f.lines.empty()) return;
    f.caption = caption;
    page.figure(id + "-" + file, line_figure(f), caption);
  };
  const std::string over = axis_label(part.axis);
  add("time", along_axis(part, "Time against " + over, time.label, time.of),
      "Median over repeats; bars reach from the fastest to the slowest.");
  add("speed", along_axis(part, "Images per second", "images per second", measures::images_per_s),
      "");
  breakdown_figure(page, part);
  LineFigure top = along_axis(part, "Accuracy against " + over, "test top-1 after the last epoch",
                              measures::top1);
  top.percent_y = true;
  top.from_zero = false;
  add("accuracy", top, "Median over seeds; bars reach from the worst to the best.");
  memory_figure(page, part);
}

}  // namespace tessera::report
