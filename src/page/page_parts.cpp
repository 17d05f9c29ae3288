// A part's section, and the figures and tables that several kinds of parts share: where the time
// goes, memory, curves of a training.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "page/figures/figure.h"
#include "page/page.h"
#include "page/table.h"

namespace tessera::report {
namespace {

constexpr std::size_t most_curves = 8, most_rows_drawn = 48;

// The repeat whose accuracy (or loss) is in the middle: a curve of a run that was, not a mean of
// none.
const RunRecord* middle_run(const Point& point) {
  std::vector<const RunRecord*> runs = records_of(point);
  std::erase_if(runs, [](const RunRecord* r) { return r->epochs.empty(); });
  if (runs.empty()) return nullptr;
  std::stable_sort(runs.begin(), runs.end(), [](const RunRecord* a, const RunRecord* b) {
    const double x = std::isfinite(a->test_top1) ? a->test_top1 : 0,
                 y = std::isfinite(b->test_top1) ? b->test_top1 : 0;
    return x < y;
  });
  return runs[(runs.size() - 1) / 2];
}

using EpochValue = double (*)(const EpochRecord&);

// A line for every point: by epoch its mean over repeats with the spread, by time its middle run.
LineFigure curve(const Part& part, const char* title, const char* y_label, EpochValue value,
                 bool by_time) {
  LineFigure f;
  f.title = title;
  f.y_label = y_label;
  f.x_label = by_time ? "seconds since the start, with evaluations" : "epoch";
  f.from_zero = false;
  f.from_zero_x = by_time;
  f.marks_are_x = !by_time;
  for (const Point& point : part.points) {
    if (f.lines.size() == most_curves) break;
    const std::string named = point_name(part, point);
    Line line{named.empty() ? "measured" : named, {}};
    if (by_time) {
      if (const RunRecord* r = middle_run(point))
        for (const EpochRecord& e : r->epochs) line.marks.push_back({e.elapsed, value(e)});
    } else {
      std::vector<std::vector<double>> at;
      for (const RunRecord* r : records_of(point))
        for (std::size_t i = 0; i < r->epochs.size(); ++i) {
          at.resize(std::max(at.size(), i + 1));
          at[i].push_back(value(r->epochs[i]));
        }
      for (std::size_t i = 0; i < at.size(); ++i)
        if (const Spread s = spread_of(at[i]); s.known())
          line.marks.push_back({.x = static_cast<double>(i + 1),
                                .y = s.mean,
                                .low = s.n > 1 ? s.low : kUnknown,
                                .high = s.n > 1 ? s.high : kUnknown,
                                .note = s.n > 1 ? fmt::format("mean of {} seeds", s.n) : ""});
    }
    std::erase_if(line.marks,
                  [](const Mark& m) { return !std::isfinite(m.x) || !std::isfinite(m.y); });
    if (line.marks.size() > 30) line.look = LineLook::plain;
    if (!line.marks.empty()) f.lines.push_back(std::move(line));
  }
  return f;
}

LineFigure step_losses(const Part& part) {
  LineFigure f;
  f.title = "Training loss";
  f.y_label = "loss of the batch";
  f.x_label = "step";
  f.from_zero = false;
  for (const Point& point : part.points) {
    if (f.lines.size() == most_curves) break;
    const std::vector<const RunRecord*> runs = records_of(point);
    if (runs.empty() || runs.front()->losses.size() < 2) continue;
    const std::string named = point_name(part, point);
    Line line{named.empty() ? "measured" : named, {}, LineLook::plain};
    for (const auto& [step, loss] : runs.front()->losses)
      line.marks.push_back({static_cast<double>(step), loss});
    f.lines.push_back(std::move(line));
  }
  return f;
}

}  // namespace

std::string more_points(std::size_t left_out, const char* file) {
  if (left_out == 0) return "";
  return fmt::format(" {} more point{} in {}.", left_out, left_out == 1 ? " is" : "s are", file);
}

void part_section(PageBuilder& page, const Part& part) {
  page.section("part-" + slug(part.name), part_title(part));
  if (!part.what.empty()) page.paragraph(part.what, "lead");
  const Tally t = tally(part);
  if (t.not_run > 0)
    page.paragraph(fmt::format("Not run: {}. {} of its {} runs wait for a machine that has it.",
                               part.missing, t.not_run, t.runs),
                   "warn");
  if (t.done == 0) {
    if (t.not_run == t.runs && t.runs > 0) return;
    page.paragraph(t.runs == 0          ? "This part has no points."
                   : t.failed == t.runs ? "All runs of this part failed; the reasons are below."
                                        : "Nothing of this part is measured yet.",
                   t.failed == t.runs && t.runs > 0 ? "warn" : "soft");
    return;
  }
  if (t.failed > 0)
    page.paragraph(fmt::format("{} of its {} runs failed and {} left out; the reasons are below.",
                               t.failed, t.runs, t.failed == 1 ? "is" : "are"),
                   "warn");
  std::vector<std::string> sentences;
  for (const std::string& s : verdict(part)) sentences.push_back(without_title(part, s));
  page.list(sentences);
  switch (part.kind) {
    case PartKind::strong:
    case PartKind::weak:
      scaling_figures(page, part);
      memory_figure(page, part);
      curve_figures(page, part);
      break;
    case PartKind::batch:
    case PartKind::accumulation:
      batch_figures(page, part);
      curve_figures(page, part);
      break;
    case PartKind::techniques:
      technique_figures(page, part);
      break;
    case PartKind::accuracy:
      accuracy_figures(page, part);
      break;
    case PartKind::layers:
      layers_figures(page, part);
      break;
  }
  page.close_figures();
}

void breakdown_figure(PageBuilder& page, const Part& part) {
  BarFigure f;
  f.title = "Where a step goes";
  f.x_label = "ms a step, mean over ranks of the sampled steps";
  f.parts = {"compute", "exposed communication", "wait for others", "data", "host"};
  f.beside = "hidden communication, beside compute";
  f.caption =
      "Compute, communication that could not be hidden, waiting for other ranks, for data, and the "
      "rest add up to the step; hidden "
      "communication goes on during compute.";
  // Along an axis rows are grouped by series, so that a group reads as the axis does.
  std::vector<std::pair<std::string, const Point*>> rows;
  for (const PointSeries& s : series_of(part))
    for (const auto& [x, p] : s.points) rows.emplace_back(s.name, p);
  const bool grouped = !rows.empty() && rows.size() == part.points.size();
  if (!grouped) {
    rows.clear();
    for (const Point& p : part.points) rows.emplace_back("", &p);
  }
  std::size_t left_out = 0;
  std::vector<std::string> waited;  // of each point's first run
  for (const auto& [group, p] : rows) {
    const Breakdown b = breakdown_of(*p);
    if (step_of(b) <= 0) continue;
    if (f.rows.size() == most_rows_drawn) {
      ++left_out;
      continue;
    }
    BarRow row;
    row.group = group;
    row.name =
        grouped ? axis_words(part.axis, plain_number(axis_value(part, *p))) : point_name(part, *p);
    if (row.name.empty()) row.name = "step";
    row.values = {b.compute, b.comm_exposed, b.wait, b.data, b.host};
    row.beside = b.comm_hidden;
    row.total = three(step_of(b)) + " ms";
    for (const RunRecord* r : records_of(*p))
      if (const WaitedFor w = waited_for(*r); w.rank >= 0) {
        waited.push_back(
            fmt::format("{} for rank {} ({} ms a step)", row.name, w.rank, three(w.ms)));
        break;
      }
    f.rows.push_back(std::move(row));
  }
  if (f.rows.empty()) return;
  if (std::none_of(f.rows.begin(), f.rows.end(), [](const BarRow& r) { return r.beside > 0; }))
    f.beside.clear();
  f.caption += more_points(left_out);
  if (!waited.empty())
    f.caption +=
        fmt::format(" Ranks waited the most for one of them in {}.", fmt::join(waited, ", "));
  page.figure(slug(part.name) + "-breakdown", bar_figure(f), f.caption);
}

void memory_figure(PageBuilder& page, const Part& part) {
  Table t{{{"", true}, {"planned"}, {"measured"}, {"measured / planned"}},
          {},
          "Peak bytes of the rank that holds most: what the plan said before the run, and what was "
          "taken."};
  std::vector<std::string> unknown;
  for (const Point& p : part.points) {
    const Spread planned = spread_of(p, measures::planned),
                 measured = spread_of(p, measures::measured);
    const std::string named = point_name(part, p);
    if (!planned.known()) {
      unknown.push_back(named.empty() ? "run" : named);
      continue;
    }
    t.rows.push_back({{named.empty() ? "run" : named},
                      spread_cell(planned, byte_text),
                      spread_cell(measured, byte_text),
                      {measured.known() ? percent(measured.median / planned.median) : "–"}});
  }
  if (t.rows.empty()) return;
  if (!unknown.empty()) t.caption += " Not known of " + listed(unknown, 4) + ".";
  page.table(t, "Memory, planned and measured");
}

void curve_figures(PageBuilder& page, const Part& part) {
  const std::string id = slug(part.name);
  const bool several = tally(part).most_repeats > 1;  // else there is nothing to say of repeats
  const auto add = [&](const char* file, LineFigure f, bool shares, const char* caption) {
    std::size_t longest = 0;
    for (const Line& line : f.lines) longest = std::max(longest, line.marks.size());
    if (longest < 2) return;
    f.percent_y = shares;
    f.caption = several ? caption : "";
    if (part.points.size() > most_curves)
      f.caption += fmt::format("{}The first {} points of {}.", several ? " " : "", most_curves,
                               part.points.size());
    page.figure(id + "-" + file, line_figure(f), f.caption);
  };
  const EpochValue top1 = [](const EpochRecord&e) { return e.test_top1; },
                   loss = [](const EpochRecord&e) { return e.loss; };
  add("top1-epochs", curve(part, "Accuracy by epoch", "test top-1", top1, false), true,
      "Mean over seeds, bars from the worst to the best.");
  add("top1-time", curve(part, "Accuracy by time", "test top-1", top1, true), true,
      "Of each point the run in the middle.");
  bool few_epochs = true;
  for (const Point& p : part.points)
    for (const RunRecord* r : records_of(p)) few_epochs &= r->epochs.size() < 3;
  // Points that do the same work have curves on top of each other: one of them, and differences.
  if (part.kind == PartKind::techniques || part.kind == PartKind::strong) {
    Part first = part;
    first.points.resize(1);
    const std::string named = point_name(part, part.points.front());
    LineFigure one = step_losses(first);
    one.title = named.empty() ? "Training loss" : "Training loss, " + named;
    if (one.lines.size() == 1 && one.lines[0].marks.size() > 1)
      page.figure(id + "-loss-steps", line_figure(one),
                  "Loss of the batch, of the first repeat; the others beside it as differences.");
    loss_difference_figure(page, part);
    return;
  }
  add("loss-epochs", curve(part, "Loss by epoch", "training loss, mean of the epoch", loss, false),
      false, "Mean over seeds, bars from the least to the greatest.");
  add("loss-time", curve(part, "Loss by time", "training loss, mean of the epoch", loss, true),
      false, "Of each point the run in the middle.");
  if (few_epochs) add("loss-steps", step_losses(part), false, "Of the first repeat.");
}

}  // namespace tessera::report
