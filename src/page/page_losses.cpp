// Losses of points that do the same work: the curve of the first, and how far each of the others is
// from it, step by step on a logarithmic axis.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/figures/figure.h"
#include "page/page.h"

namespace tessera::report {
namespace {

constexpr std::size_t most_lines = kColours;

struct LossPair {
  const Point *base, *other;
};

// Every point beside the first of those that do the same work.
std::vector<LossPair> loss_pairs(const Part& part) {
  std::vector<LossPair> out;
  if (part.kind == PartKind::techniques) {
    for (const Point& p : part.points)
      if (const Point* base = baseline_of(part, p); base && base != &p) out.push_back({base, &p});
  } else if (part.kind == PartKind::strong) {
    for (const PointSeries& s : series_of(part))
      for (const auto& [x, p] : s.points)
        if (p != s.points.front().second) out.push_back({s.points.front().second, p});
  }
  return out;
}

// The distance of two losses at the steps that both recorded, of the first seed that both have.
Line apart(const Part& part, const LossPair& pair) {
  const std::string named = point_name(part, *pair.other);
  Line line{.name = named.empty() ? "run" : named, .marks = {}, .look = LineLook::plain};
  for (const Repeat& a : pair.base->repeats)
    for (const Repeat& b : pair.other->repeats) {
      if (!a.record || !b.record || a.number != b.number || !line.marks.empty()) continue;
      auto at = a.record->losses.begin();
      for (const auto& [step, loss] : b.record->losses) {
        while (at != a.record->losses.end() && at->first < step) ++at;
        if (at != a.record->losses.end() && at->first == step)
          line.marks.push_back({static_cast<double>(step), std::abs(loss - at->second)});
      }
    }
  return line;
}

std::string names_of(const std::vector<std::string>& names) { return listed(names, names.size()); }

}  // namespace

void loss_difference_figure(PageBuilder& page, const Part& part) {
  const std::vector<LossPair> pairs = loss_pairs(part);
  if (pairs.empty()) return;
  LineFigure f;
  const std::string base = point_name(part, *pairs.front().base);
  const bool one_base = std::all_of(
      pairs.begin(), pairs.end(), [&](const LossPair& p) { return p.base == pairs.front().base; });
  f.title = one_base && !base.empty() ? "Loss, against " + base : "Loss, against the first";
  f.x_label = "step";
  f.y_label = "|difference of the loss|, logarithmic";
  f.log10_y = true;
  std::vector<std::string> equal, beyond;
  for (const LossPair& pair : pairs) {
    Line line = apart(part, pair);
    if (line.marks.size() < 2) continue;
    if (std::all_of(line.marks.begin(), line.marks.end(), [](const Mark& m) { return m.y == 0; }))
      equal.push_back(line.name);
    else if (f.lines.size() == most_lines)
      beyond.push_back(line.name);
    else
      f.lines.push_back(std::move(line));
  }
  f.caption = "Of the first seed. Steps at which losses are equal to the last bit are not drawn.";
  if (!equal.empty()) f.caption += " Equal at every step: " + names_of(equal) + ".";
  if (!beyond.empty()) f.caption += " In data/losses.csv and not drawn: " + names_of(beyond) + ".";
  if (f.lines.empty() && equal.empty()) return;
  if (f.lines.empty()) {
    page.paragraph("Losses are equal at every step: " + names_of(equal) + ".");
    return;
  }
  page.figure(slug(part.name) + "-loss-apart", line_figure(f), f.caption);
}

}  // namespace tessera::report
