// The parts of a model beside published numbers: shares of one layer as figures, every row in
// tables.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/figures/figure.h"
#include "page/layers.h"
#include "page/page.h"
#include "page/table.h"

namespace tessera::report {
namespace {

constexpr std::size_t most_points = 24, most_columns = 12;
constexpr double least_shown = 0.01;  // of a layer; smaller families are one colour

std::string called(const Part& part, const PointGroup& group, const Point& point) {
  const std::string named = point_name(part, point, group.axis);
  return named.empty() ? "measured" : named;
}

struct Bars {
  std::string slug, title, caption;
  std::vector<std::string> names;
  bool rest = false;  // what no name covers is a bar too
};

void shares_figure(PageBuilder& page, const Part& part, const std::vector<PointGroup>& groups,
                   const Bars& bars) {
  BarFigure f;
  f.title = bars.title;
  f.caption = bars.caption;
  f.x_label = has_layers(part) ? "share of one layer, %" : "share of the time, %";
  f.parts = bars.names;
  if (bars.rest) f.parts.emplace_back("smaller parts");
  const auto add = [&](const std::string& group, const std::string& name, const std::string& total,
                       const auto& share) {
    BarRow row{.group = group, .name = name, .values = {}, .beside = 0, .total = total};
    double sum = 0;
    for (const std::string& part_name : bars.names) {
      const double v = share(part_name);
      row.values.push_back(std::isfinite(v) ? 100 * v : 0);
      sum += row.values.back();
    }
    if (bars.rest) row.values.push_back(std::max(0.0, 100 - sum));
    if (sum > 0) f.rows.push_back(std::move(row));
  };
  std::size_t left_out = 0;
  for (const PointGroup& group : groups)
    for (const Point* point : group.points) {
      std::vector<double> seconds;
      for (const RunRecord* r : records_of(*point)) seconds.push_back(layer_seconds(*r));
      if (f.rows.size() == most_points)
        ++left_out;
      else
        add(group.name, called(part, group, *point), seconds_text(spread_of(seconds).median),
            [&](const std::string& name) { return layer_share(*point, name).median; });
    }
  if (!part.published.empty())
    add("published", "as printed", "",
        [&](const std::string& name) { return published_share(part, name); });
  f.caption += more_points(left_out, "data/parts.csv");
  if (!f.rows.empty()) page.figure(bars.slug, bar_figure(f), f.caption);
}

// As many as there are colours, less one for the rest: the largest ones, in the order of the model.
std::vector<std::string> largest_families(const Part& part, const std::vector<std::string>& all) {
  std::vector<std::pair<double, std::string>> sizes;
  for (const std::string& family : all) {
    double most = published_share(part, family);
    for (const Point& p : part.points) most = std::fmax(most, layer_share(p, family).median);
    if (most >= least_shown) sizes.emplace_back(most, family);
  }
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  sizes.resize(std::min(sizes.size(), static_cast<std::size_t>(kColours) - 1));
  std::vector<std::string> out;
  for (const std::string& family : all)
    if (std::any_of(sizes.begin(), sizes.end(), [&](const auto& s) { return s.second == family; }))
      out.push_back(family);
  return out;
}

// Rows of a group of points: a family of several rows has its sum before them.
void group_table(PageBuilder& page, const Part& part, const PointGroup& group) {
  std::vector<std::string> rows;
  for (const Point* point : group.points)
    for (const RunRecord* r : records_of(*point))
      for (const PartRecord& p : r->parts) {
        if (rows.size() >= 200) break;
        const std::string family = family_of(p.name);
        if (family != p.name && std::find(rows.begin(), rows.end(), family) == rows.end())
          rows.push_back(family);
        if (std::find(rows.begin(), rows.end(), p.name) == rows.end()) rows.push_back(p.name);
      }
  for (const auto& [row, unused] : part.published)
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  const bool layers = has_layers(part);
  Table t;
  t.columns.push_back({group.name.empty() ? "part" : group.name, true});
  for (const std::string& row : rows) t.rows.push_back({{row}});
  if (layers) t.rows.push_back({{"one layer"}});
  t.rows.push_back({{"the whole pass"}});
  for (const Point* point : group.points) {
    if (t.columns.size() > most_columns) break;
    t.columns.push_back({called(part, group, *point)});
    const auto cell = [&](const auto& seconds, double share) {
      std::vector<double> v;
      for (const RunRecord* r : records_of(*point)) v.push_back(seconds(*r));
      Cell out = spread_cell(spread_of(v), seconds_text);
      if (std::isfinite(share)) out.text += fmt::format(" ({})", percent(share));
      return out;
    };
    for (std::size_t i = 0; i < rows.size(); ++i)
      t.rows[i].push_back(cell(
          [&](const RunRecord& r) {  // of a layer, or of what is outside of them
            double sum = layer_seconds(r, rows[i]);
            for (const PartRecord& p : r.parts)
              if (p.name == rows[i] && !std::isfinite(sum)) sum = p.seconds;
            return sum;
          },
          layer_share(*point, rows[i]).median));
    if (layers)
      t.rows[rows.size()].push_back(cell([](const RunRecord& r) { return layer_seconds(r); }, 1));
    t.rows.back().push_back(cell(measures::parts_seconds, kUnknown));
  }
  if (!part.published.empty()) {
    t.columns.push_back({"published"});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double value = published_value(part, rows[i]), share = published_share(part, rows[i]);
      t.rows[i].push_back(
          {std::isfinite(value)
               ? three(value) + (std::isfinite(share) ? " (" + percent(share) + ")" : "")
               : "–"});
    }
    const double layer = published_layer(part);
    if (layers)
      t.rows[rows.size()].push_back({std::isfinite(layer) ? three(layer) + " (100.0%)" : "–"});
    t.rows.back().push_back({"–"});
  }
  t.caption = layers ? "Seconds of one layer on average, and its share of a layer; what stands "
                       "outside of layers has no share."
                     : "Seconds, and the share of all.";
  if (!part.published.empty())
    t.caption += " Published: " + (part.published_by.empty() ? "" : part.published_by + "; ") +
                 "as printed, in the publication's own unit, so compare shares.";
  if (group.points.size() > most_columns)
    t.caption += more_points(group.points.size() - most_columns, "data/parts.csv");
  page.table(t);
}

}  // namespace

void layers_figures(PageBuilder& page, const Part& part) {
  const std::vector<PointGroup> groups = point_groups(part);
  const std::vector<std::string> all = layer_families(part);
  if (all.empty()) {
    page.paragraph("The runs recorded no times of parts.", "soft");
    return;
  }
  const std::vector<std::string> shown = largest_families(part, all);
  shares_figure(page, part, groups,
                {slug(part.name) + "-shares",
                 has_layers(part) ? "What a layer is made of" : "What the time is made of",
                 "Each row is one point; parts in the order of the model.", shown,
                 shown.size() < all.size()});
  for (const std::string& family : all)
    if (const std::vector<std::string> rows = layer_rows(part, family);
        rows.size() > 1 && rows.size() <= kColours)
      shares_figure(page, part, groups,
                    {slug(part.name) + "-" + slug(family), "Inside " + family,
                     "What " + family + " is made of, as shares of the layer.", rows, false});
  page.close_figures();
  for (const PointGroup& group : groups) group_table(page, part, group);
}

}  // namespace tessera::report
