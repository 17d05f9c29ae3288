// What a configuration names outside itself: data that is drawn or lies in a folder, and weights to
// start from. Convention: nothing is opened. What is inside a folder or a file is found out by
// whoever reads it, with an exit code of its own.
#pragma once

#include <vector>

#include "config/config.h"
#include "config/problem.h"

namespace tessera::config {

// `source`: that of config.data.source; null: it cannot be read. `look`: also whether what is named
// is there.
std::vector<Finding> outside_problems(const Config& config, const Source* source, bool look);

}  // namespace tessera::config
