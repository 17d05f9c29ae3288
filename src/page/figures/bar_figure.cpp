// Where time goes: rows of stacked bars; what goes on at the same time is an outline below its row.
// A total with a spread has an error bar.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/figures/figure.h"
#include "report/html.h"

namespace tessera::report {
namespace {

constexpr double bar_width = 560;

// The parts of a step have colours of their own, everywhere the same.
std::string part_class(const std::string& part, std::size_t index) {
  for (const char* known : {"compute", "exposed", "wait", "data", "host"})
    if (part.starts_with(known)) return fmt::format("fg-bar fg-{}", known);
  return fmt::format("fg-bar fg-f{}", index % kColours);
}

double finite(double v) { return std::isfinite(v) && v > 0 ? v : 0; }

bool has_spread(const BarRow& row) { return finite(row.low) > 0 && finite(row.high) > row.low; }

}  // namespace

std::string bar_figure(const BarFigure& f) {
  Canvas canvas(bar_width, f.title, f.caption);
  std::vector<Canvas::Key> keys;
  for (std::size_t i = 0; i < f.parts.size(); ++i)
    keys.push_back({f.parts[i], part_class(f.parts[i], i)});
  if (!f.beside.empty()) keys.push_back({f.beside, "fg-beside"});
  if (keys.size() > 1) canvas.legend(keys, 12);
  double most = 0, label = 0, total = 0;
  for (const BarRow& row : f.rows) {
    double sum = 0;
    for (const double v : row.values) sum += finite(v);
    most = std::max({most, sum, finite(row.beside), has_spread(row) ? row.high : 0});
    label = std::max(label, columns_of(shorten(row.name, 26)));
    total = std::max(total, columns_of(row.total));
  }
  if (most <= 0) {
    canvas.text(bar_width / 2, canvas.y() + 50, "fg-soft", "nothing measured yet", "middle");
    return canvas.finish(canvas.y() + 100);
  }
  const double left = 20 + kLetter * std::min(label, 26.0),
               right = bar_width - 20 - kLetter * std::min(total, 14.0);
  const Ticks axis = ticks(0, most, 5);
  const auto x = [&](double v) { return left + v / axis.last * (right - left); };
  canvas.down(6);
  const double top = canvas.y();
  // The grid is below the bars, so its height is counted first.
  double high = 0;
  std::string group;
  for (const BarRow& row : f.rows) {
    high += (row.group != group ? 22 : 0) + 24 + (finite(row.beside) > 0 ? 7 : 0);
    group = row.group;
  }
  for (const double t : axis.at()) {
    if (x(t) > right + 1) continue;
    canvas.line(x(t), top, x(t), top + high + 4, t == 0 ? "fg-axis" : "fg-grid");
    canvas.text(x(t), top + high + 20, "fg-soft fg-tick", axis.label(t, false), "middle");
  }
  canvas.text((left + right) / 2, top + high + 38, "fg-soft", f.x_label, "middle");
  double y = top;
  group.clear();
  for (const BarRow& row : f.rows) {
    if (row.group != group) {
      canvas.text(12, y + 15, "fg-text fg-head fg-over", shorten(row.group, 60), "start",
                  row.group);
      y += 22;
    }
    group = row.group;
    const std::string name = shorten(row.name, 26);
    canvas.text(left - 8, y + 15, "fg-text", name, "end", name == row.name ? "" : row.name);
    double sum = 0, all = 0;
    for (const double v : row.values) all += finite(v);
    const std::string spread =
        has_spread(row) ? fmt::format(", from {} to {}", three(row.low), three(row.high)) : "";
    for (std::size_t i = 0; i < row.values.size() && i < f.parts.size(); ++i) {
      const double v = finite(row.values[i]);
      if (v <= 0) continue;
      canvas.rect(x(sum), y + 2, x(sum + v) - x(sum), 18, part_class(f.parts[i], i),
                  fmt::format("{}: {} {} ({} of {}{})", row.name, f.parts[i], three(v),
                              percent(v / all), three(all), spread));
      sum += v;
    }
    double end = sum;
    if (has_spread(row)) {
      canvas.path(
          fmt::format("M{0:.1f} {2:.1f}H{1:.1f}M{0:.1f} {3:.1f}V{4:.1f}M{1:.1f} {3:.1f}V{4:.1f}",
                      x(row.low), x(row.high), y + 11, y + 7, y + 15),
          "fg-range");
      end = std::max(end, row.high);
    }
    if (!row.total.empty()) canvas.text(x(end) + 7, y + 15, "fg-text", row.total);
    y += 24;
    if (const double beside = finite(row.beside); beside > 0) {
      canvas.rect(x(0), y - 3, x(beside) - x(0), 6, "fg-beside",
                  fmt::format("{}: {} {}", row.name, f.beside, three(beside)));
      y += 7;
    }
  }
  return canvas.finish(top + high + 48);
}

}  // namespace tessera::report
