#include "page/layers.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace tessera::report {
namespace {

constexpr std::size_t most_rows = 200;

bool repeats(const RunRecord& r) {
  return std::any_of(r.parts.begin(), r.parts.end(),
                     [](const PartRecord& p) { return p.count > 1; });
}

template <class Name>
std::vector<std::string> distinct(const Part& part, const Name& name) {
  std::vector<std::string> out;
  for (const Point& point : part.points)
    for (const RunRecord* r : records_of(point))
      for (const PartRecord& p : r->parts)
        if (p.count > 1 || !repeats(*r))
          if (const std::string named = name(p);
              !named.empty() && out.size() < most_rows &&
              std::find(out.begin(), out.end(), named) == out.end())
            out.push_back(named);
  return out;
}

}  // namespace

std::string family_of(const std::string& row) { return row.substr(0, row.find('.')); }

bool has_layers(const Part& part) {
  for (const Point& point : part.points)
    for (const RunRecord* r : records_of(point))
      if (repeats(*r)) return true;
  return false;
}

double layer_seconds(const RunRecord& r, const std::string& wanted) {
  double sum = 0;
  bool found = false;
  for (const PartRecord& p : r.parts)
    if ((p.count > 1 || !repeats(r)) &&
        (wanted.empty() || p.name == wanted || family_of(p.name) == wanted) &&
        std::isfinite(p.seconds)) {
      sum += p.seconds;
      found = true;
    }
  return found ? sum : kUnknown;
}

Spread layer_share(const Point& point, const std::string& wanted) {
  std::vector<double> shares;
  for (const RunRecord* r : records_of(point))
    shares.push_back(layer_seconds(*r, wanted) / layer_seconds(*r));
  return spread_of(shares);
}

std::vector<std::string> layer_families(const Part& part) {
  return distinct(part, [](const PartRecord& p) { return family_of(p.name); });
}

std::vector<std::string> layer_rows(const Part& part, const std::string& family) {
  return distinct(part,
                  [&](const PartRecord& p) { return family_of(p.name) == family ? p.name : ""; });
}

double published_value(const Part& part, const std::string& wanted) {
  double sum = kUnknown;
  for (const auto& [row, value] : part.published)
    if (row == wanted && std::isfinite(value)) return value;
  for (const auto& [row, value] : part.published)
    if (family_of(row) == wanted && std::isfinite(value))
      sum = (std::isfinite(sum) ? sum : 0) + value;
  return sum;
}

double published_layer(const Part& part) {
  double sum = 0;
  for (const std::string& family : layer_families(part))
    if (const double value = published_value(part, family); std::isfinite(value)) sum += value;
  return sum > 0 ? sum : kUnknown;
}

double published_share(const Part& part, const std::string& wanted) {
  const std::vector<std::string> families = layer_families(part);
  if (std::find(families.begin(), families.end(), family_of(wanted)) == families.end())
    return kUnknown;
  return published_value(part, wanted) / published_layer(part);
}

std::vector<PointGroup> point_groups(const Part& part) {
  std::string axis;
  int differing = 0;
  if (!part.points.empty())
    for (const auto& [key, unused] : part.points.front().axes) {
      std::set<std::string> values;
      for (const Point& p : part.points)
        for (const auto& [k, v] : p.axes)
          if (k == key) values.insert(v);
      if (values.size() > 1 && differing++ == 0) axis = key;
    }
  if (differing < 2) axis.clear();
  std::vector<PointGroup> out;
  for (const Point& p : part.points) {
    if (records_of(p).empty()) continue;
    std::string named;
    for (const auto& [key, value] : p.axes)
      if (key == axis) named = axis_words(key, value);
    auto found =
        std::find_if(out.begin(), out.end(), [&](const PointGroup& g) { return g.name == named; });
    if (found == out.end()) found = out.insert(out.end(), PointGroup{named, axis, {}});
    found->points.push_back(&p);
  }
  return out;
}

}  // namespace tessera::report
