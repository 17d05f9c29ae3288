// The parts of a pass through a model (bench layers): rows, families of rows, and their shares of
// one layer. Convention: "msa.qkv" is a row of the family "msa"; a row that repeats (count > 1) is
// of a layer, its seconds are those of one, on average. Where no row repeats, the whole pass stands
// for the layer.
#pragma once

#include <string>
#include <vector>

#include "record/stats.h"

namespace tessera::report {

std::string family_of(const std::string& row);
bool has_layers(const Part& part);  // some row repeats

// Seconds of one layer in the rows that `wanted` (a row or a family) names, "" = all of them. NaN
// where a run has none.
double layer_seconds(const RunRecord& r, const std::string& wanted = "");
Spread layer_share(const Point& point, const std::string& wanted);

std::vector<std::string> layer_families(const Part& part);  // in the order of the model
std::vector<std::string> layer_rows(
    const Part& part, const std::string& family);  // of a family, in the order of the model
// Published, in the publication's unit: of a row or a family; of one layer; and the share of the
// first in the second. A family that is published itself counts as that, not as its rows.
double published_value(const Part& part, const std::string& wanted);
double published_layer(const Part& part);
double published_share(const Part& part, const std::string& wanted);

// Points that have the value of the first differing axis in common, where others differ too; else
// one group of all without a name.
struct PointGroup {
  std::string name, axis;
  std::vector<const Point*> points;  // those with runs that are done
};
std::vector<PointGroup> point_groups(const Part& part);

}  // namespace tessera::report
