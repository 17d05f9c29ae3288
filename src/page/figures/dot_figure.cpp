// Values side by side, a row each: a dot with its spread, on a scale that may be logarithmic.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/figures/figure.h"
#include "report/html.h"

namespace tessera::report {
namespace {

constexpr double dots_width = 560;
constexpr std::size_t dots_name = 26;

bool drawable(const DotFigure& f, double v) {
  return std::isfinite(v) && std::abs(v) < 1e300 && (f.log10 ? v > 0 : true);
}

// Where values lie, and the ticks of their axis.
struct DotScale {
  bool log10 = false;
  double low = 0, high = 1, left = 0, right = 0;
  std::vector<std::pair<double, std::string>> marks;

  double x(double v) const {
    const double at = log10 ? std::log10(v) : v;
    return left + (at - low) / (high - low) * (right - left);
  }
};

DotScale scale_of(const DotFigure& f, double left, double right) {
  DotScale s{.log10 = f.log10, .left = left, .right = right, .marks = {}};
  double low = f.log10 ? 1e308 : 0, high = -1e308;
  const auto see = [&](double v) {
    if (drawable(f, v)) {
      low = std::min(low, v);
      high = std::max(high, v);
    }
  };
  for (const DotRow& row : f.rows)
    for (const double v : {row.mark.y, row.mark.low, row.mark.high, row.ideal}) see(v);
  see(f.reference);
  if (high < low) return s;
  if (!f.log10) {
    const Ticks t = ticks(low, high, 5, f.percent);
    s.low = t.first;
    s.high = t.last;
    for (const double v : t.at()) s.marks.emplace_back(v, t.label(v, f.percent));
    return s;
  }
  s.low = std::floor(std::log10(low));
  s.high = std::ceil(std::log10(high));
  if (s.high <= s.low) s.high = s.low + 1;
  const int every = std::max(1, static_cast<int>(std::ceil((s.high - s.low) / 6)));
  for (double e = s.low; e <= s.high + 1e-9; e += every)
    s.marks.emplace_back(std::pow(10, e), fmt::format("1e{:+03d}", static_cast<int>(e)));
  return s;
}

std::string tip_of(const DotFigure& f, const DotRow& row) {
  const auto words = [&](double v) { return f.percent ? accuracy_text(v) : three(v); };
  std::string tip = fmt::format("{}{}{}: {}", row.group, row.group.empty() ? "" : ", ", row.name,
                                row.value.empty() ? words(row.mark.y) : row.value);
  if (std::isfinite(row.mark.low) && row.mark.high > row.mark.low)
    tip += fmt::format(", from {} to {}", words(row.mark.low), words(row.mark.high));
  if (!row.mark.note.empty()) tip += "; " + row.mark.note;
  return tip;
}

void draw_row(Canvas& canvas, const DotFigure& f, const DotScale& s, const DotRow& row, double y) {
  const std::string name = shorten(row.name, dots_name);
  canvas.text(s.left - 12, y + 15, "fg-text", name, "end", name == row.name ? "" : row.name);
  canvas.line(s.left, y + 11, s.right, y + 11, "fg-grid");
  if (drawable(f, row.ideal))
    canvas.path(fmt::format("M{0:.1f} {1:.1f}V{2:.1f}", s.x(row.ideal), y + 3, y + 19), "fg-tickm");
  const Mark& m = row.mark;
  if (drawable(f, m.low) && drawable(f, m.high) && m.high > m.low)
    canvas.path(
        fmt::format("M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} {3:.1f}V{4:.1f}M{1:.1f} {3:.1f}V{4:.1f}",
                    s.x(m.low), s.x(m.high), y + 11, y + 7, y + 15),
        "fg-range");
  if (drawable(f, m.y)) canvas.marker(s.x(m.y), y + 11, row.colour, tip_of(f, row));
  if (!row.value.empty())
    canvas.text(dots_width - 12, y + 15, "fg-text", shorten(row.value, 24), "end");
}

}  // namespace

std::string dot_figure(const DotFigure& f) {
  Canvas canvas(dots_width, f.title, f.caption);
  double label = 0, value = 0, rows = 0;
  std::string group;
  for (const DotRow& row : f.rows) {
    label = std::max(label, columns_of(shorten(row.name, dots_name)));
    value = std::max(value, columns_of(shorten(row.value, 24)));
    rows += 24 + (row.group != group ? 22 : 0);
    group = row.group;
  }
  if (f.rows.empty()) {
    canvas.text(dots_width / 2, canvas.y() + 50, "fg-soft", "nothing measured yet", "middle");
    return canvas.finish(canvas.y() + 100);
  }
  std::vector<Canvas::Key> keys;
  const bool reference = drawable(f, f.reference);
  if (reference)
    keys.push_back({.name = f.reference_name, .classes = "fg-ideal", .colour = -1, .stroke = true});
  if (std::any_of(f.rows.begin(), f.rows.end(),
                  [&](const DotRow& r) { return drawable(f, r.ideal); }))
    keys.push_back({.name = f.ideal_name.empty() ? "ideal" : f.ideal_name,
                    .classes = "fg-tickm",
                    .colour = -1,
                    .stroke = true});
  canvas.legend(keys, 12);
  const DotScale s = scale_of(f, 28 + kLetter * std::min(label, 26.0),
                              dots_width - 34 - kLetter * std::min(value, 24.0));
  canvas.down(8);
  const double top = canvas.y();
  double free = -1e9;
  for (const auto& [v, said] : s.marks) {
    canvas.line(s.x(v), top, s.x(v), top + rows + 4, "fg-grid");
    const double half = kLetter * columns_of(said) / 2;
    if (s.x(v) - half < free) continue;
    canvas.text(s.x(v), top + rows + 20, "fg-soft fg-tick", said, "middle");
    free = s.x(v) + half + 6;
  }
  if (reference) canvas.line(s.x(f.reference), top, s.x(f.reference), top + rows + 4, "fg-ideal");
  double y = top;
  group.clear();
  for (const DotRow& row : f.rows) {
    if (row.group != group) {
      canvas.text(12, y + 15, "fg-text fg-head fg-over", shorten(row.group, 60), "start",
                  row.group);
      y += 22;
    }
    group = row.group;
    draw_row(canvas, f, s, row, y);
    y += 24;
  }
  canvas.text((s.left + s.right) / 2, top + rows + 38, "fg-soft", f.x_label, "middle");
  return canvas.finish(top + rows + 48);
}

}  // namespace tessera::report
