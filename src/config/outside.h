// Names in a configuration that lead outside of it: data that is drawn or lies in a folder, and
// weights to start from. Convention: nothing is opened. The reader of a folder or a file finds out
// what is inside, with an exit code of its own.
#pragma once

#include <vector>

#include "config/config.h"
#include "config/problem.h"

namespace tessera::config {

// `source`: that of config.data.source; null: it cannot be read. `look`: also whether what is named
// is there.
std::vector<Finding> outside_problems(const Config& config, const Source* source, bool look);

}  // namespace tessera::config
