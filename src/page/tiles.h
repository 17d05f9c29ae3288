// A study in a glance: at most four tiles with a number of two digits each. Convention: a tile
// names who holds the number, who ties with it within the spread, and n, the number of repeats
// behind it.
#pragma once

#include <string>
#include <vector>

#include "record/stats.h"

namespace tessera::report {

struct Tile {
  std::string label, value, what;
};
std::vector<Tile> tiles(const Study& study);

// Two digits: "1.9", "48", "1,200", "0.052".
std::string two(double value);
std::string two_percent(double share);  // of 0.123: "12%"
std::string two_seconds(double seconds);
std::string two_bytes(double bytes);
std::string one_decimal(double share);  // of an accuracy: "70.1%"

}  // namespace tessera::report
