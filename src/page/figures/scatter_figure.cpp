// Points by two values (time against memory) with names beside them, and shades of a matrix.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "page/figures/figure.h"
#include "report/html.h"

namespace tessera::report {
namespace {

constexpr double scatter_width = 560, scatter_plot = 300;
constexpr std::size_t scatter_name = 24;

struct LabelBox {
  double left, top, right, bottom;
  bool meets(const LabelBox& o) const {
    return left < o.right && o.left < right && top < o.bottom && o.top < bottom;
  }
};

struct PlacedLabel {
  double x = 0, y = 0;
  const char* anchor = "start";
  bool found = false;
};

// The first place beside the point that is free: right, left, above, below, and further away.
PlacedLabel place_label(double x, double y, const std::string& name, const LabelBox& frame,
                        std::vector<LabelBox>& taken) {
  const double w = kLetter * columns_of(name);
  for (const double away : {0.0, 14.0, 28.0})
    for (const auto& [dx, dy, anchor] :
         {std::tuple(9.0, 4.0 + away, "start"), std::tuple(-9.0, 4.0 + away, "end"),
          std::tuple(9.0, 4.0 - away, "start"), std::tuple(-9.0, 4.0 - away, "end"),
          std::tuple(0.0, -10.0 - away, "middle"), std::tuple(0.0, 20.0 + away, "middle")}) {
      const std::string_view side = anchor;
      const double left = x + dx - (side == "end" ? w : side == "middle" ? w / 2 : 0);
      const LabelBox box{left, y + dy - 11, left + w, y + dy + 3};
      const bool inside = box.left >= frame.left && box.right <= frame.right &&
                          box.top >= frame.top && box.bottom <= frame.bottom;
      if (!inside ||
          std::any_of(taken.begin(), taken.end(), [&](const LabelBox& t) { return t.meets(box); }))
        continue;
      taken.push_back(box);
      return {.x = x + dx, .y = y + dy, .anchor = anchor, .found = true};
    }
  return {};
}

}  // namespace

std::string scatter_figure(const ScatterFigure& f) {
  Canvas canvas(scatter_width, f.title, f.caption);
  std::vector<const ScatterPoint*> points;
  double x_high = 0, y_high = 0;
  for (const ScatterPoint& p : f.points) {
    if (!(p.x >= 0) || !(p.y >= 0) || p.x > 1e300 || p.y > 1e300) continue;
    points.push_back(&p);
    x_high = std::max(x_high, p.x);
    y_high = std::max(y_high, p.y);
  }
  if (points.empty()) {
    canvas.text(scatter_width / 2, canvas.y() + 60, "fg-soft", "nothing measured yet", "middle");
    return canvas.finish(canvas.y() + 120);
  }
  const Ticks tx = ticks(0, x_high, 6), ty = ticks(0, y_high, 6);
  double widest = 0;
  for (const double t : ty.at()) widest = std::max(widest, columns_of(ty.label(t, false)));
  const double left = std::max(44.0, 20 + kLetter * widest), right = scatter_width - 14;
  canvas.text(12, canvas.y() + 12, "fg-soft", f.y_label);
  const double top = canvas.y() + 24, bottom = top + scatter_plot;
  const auto x = [&](double v) { return left + v / tx.last * (right - left); };
  const auto y = [&](double v) { return bottom - v / ty.last * (bottom - top); };
  for (const double t : ty.at()) {
    canvas.line(left, y(t), right, y(t), t == 0 ? "fg-axis" : "fg-grid");
    canvas.text(left - 7, y(t) + 4, "fg-soft", ty.label(t, false), "end");
  }
  for (const double t : tx.at()) {
    canvas.line(x(t), top, x(t), bottom, t == 0 ? "fg-axis" : "fg-grid");
    canvas.text(x(t), bottom + 17, "fg-soft fg-tick", tx.label(t, false),
                x(t) + 20 > right ? "end" : "middle");
  }
  canvas.text((left + right) / 2, bottom + 36, "fg-soft", f.x_label, "middle");
  std::vector<LabelBox> taken;
  for (const ScatterPoint* p : points)
    taken.push_back({x(p->x) - 6, y(p->y) - 6, x(p->x) + 6, y(p->y) + 6});
  const LabelBox frame{left, top - 6, right + 8, bottom};
  std::vector<std::string> unnamed;
  for (const ScatterPoint* p : points) {
    const std::string name = shorten(p->name, scatter_name);
    const PlacedLabel at = place_label(x(p->x), y(p->y), name, frame, taken);
    canvas.marker(x(p->x), y(p->y), p->marked ? 1 : 0, p->name + ": " + p->tip);
    if (at.found)
      canvas.text(at.x, at.y, "fg-text fg-name", name, at.anchor, p->tip);
    else
      unnamed.push_back(p->name);
  }
  if (unnamed.empty()) return canvas.finish(bottom + 44);
  std::string more = "too close to name: ";
  for (std::size_t i = 0; i < unnamed.size(); ++i) more += (i > 0 ? ", " : "") + unnamed[i];
  canvas.text(12, bottom + 54, "fg-soft", shorten(more, 76), "start", more);
  return canvas.finish(bottom + 62);
}

std::string matrix_figure(const MatrixFigure& f) {
  const std::size_t n = f.names.size();
  double label = 0;
  for (const std::string& name : f.names) label = std::max(label, columns_of(shorten(name, 14)));
  Canvas canvas(scatter_width, f.title, f.caption);
  if (n == 0 || f.counts.size() != n * n) {
    canvas.text(scatter_width / 2, canvas.y() + 50, "fg-soft", "nothing measured yet", "middle");
    return canvas.finish(canvas.y() + 100);
  }
  const double left = 24 + kLetter * std::min(label, 14.0);
  const double cell = std::min(40.0, (scatter_width - left - 20) / static_cast<double>(n));
  const double top = canvas.y() + 26;
  canvas.text(left, canvas.y() + 14, "fg-soft",
              "rows: " + f.row_label + "; columns, in the same order: " + f.column_label);
  for (std::size_t i = 0; i < n; ++i) {
    std::int64_t all = 0;
    for (std::size_t k = 0; k < n; ++k) all += f.counts[i * n + k];
    const double y = top + cell * static_cast<double>(i);
    const std::string name = shorten(f.names[i], 14);
    canvas.text(left - 8, y + cell / 2 + 4, "fg-text", name, "end",
                name == f.names[i] ? "" : f.names[i]);
    for (std::size_t k = 0; k < n; ++k) {
      const std::int64_t count = f.counts[i * n + k];
      const double share = all > 0 ? static_cast<double>(count) / static_cast<double>(all) : 0;
      const int shade = count == 0 ? 0 : std::clamp(static_cast<int>(std::ceil(share * 5)), 1, 5);
      const double x = left + cell * static_cast<double>(k);
      canvas.rect(x + 1, y + 1, cell - 2, cell - 2, fmt::format("fg-h{}", shade),
                  fmt::format("{} said to be {}: {} of {}", f.names[i], f.names[k], count, all));
      if (cell >= 26 && count > 0)
        canvas.text(x + cell / 2, y + cell / 2 + 4, shade >= 3 ? "fg-onfull" : "fg-text",
                    count < 10000 ? std::to_string(count) : three(static_cast<double>(count)),
                    "middle");
    }
  }
  const double bottom = top + cell * static_cast<double>(n);
  return canvas.finish(bottom + 14);
}

}  // namespace tessera::report
