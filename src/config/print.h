// A configuration as text: resolved.toml, from which a run can be repeated, and JSON for scripts.
// Convention: load_text(to_toml(c)) == c exactly; numbers are written as the shortest text that reads back as the same double.
#pragma once

#include <string>

#include "config/config.h"

namespace tessera::config {

std::string to_toml(const Config& config);
// The same sections, keys and types; texts that are not set are null.
std::string to_json(const Config& config);

}  // namespace tessera::config
