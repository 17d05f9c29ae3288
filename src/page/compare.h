// Two studies side by side: what changed in what was asked for (every setting), and what that did
// to time, accuracy, loss, memory and bytes. Convention: points are the same where part, technique
// and axes are; "a" is before, "b" after. A change counts as one where the spreads do not meet.
#pragma once

#include <string>
#include <vector>

#include "record/stats.h"

namespace tessera::report {

// Lines for a terminal.
std::vector<std::string> comparison(const Study& a, const Study& b);
// Writes comparison.html and data/comparison.csv; returns the path of the page.
std::string write_comparison(const Study& a, const Study& b, const std::string& folder);

}  // namespace tessera::report
