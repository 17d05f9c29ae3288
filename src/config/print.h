// A configuration as text: resolved.toml, from which a run can be repeated, and JSON for scripts.
// Convention: load_text(to_toml(c)) == c exactly; numbers are written as the shortest text that
// reads back as the same double.
#pragma once

#include <string>

#include "config/config.h"

namespace tessera::config {

struct Loaded;

std::string to_toml(const Config& config);
// The same sections, keys and types; texts that are not set are null.
std::string to_json(const Config& config);

// With what --deepspeed adds: `deepspeed` (the rows of the table of effective values) and `notes`.
std::string to_json(const Loaded& loaded);

}  // namespace tessera::config
