// Any number of runs beside each other: what differs between their configurations, their results,
// and their curves on the same axes. Convention: nothing is said of causes; differences are from
// the first run.
#pragma once

#include <string>
#include <vector>

#include "page/page.h"

namespace tessera::report {

// Lines for a terminal. Every study is of a single run that is done.
std::vector<std::string> runs_beside(const std::vector<Study>& runs);
// Writes comparison.html (or .md), its figures and data/comparison.csv; returns the page's path.
std::string write_runs_beside(const std::vector<Study>& runs, const std::string& folder,
                              PageFormat format = PageFormat::html);

}  // namespace tessera::report
