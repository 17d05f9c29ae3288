// The configuration and the machine of a run as text, to be compared with those of another run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "record/record.h"

namespace tessera::report {

using Facts = std::vector<std::pair<std::string, std::string>>;  // (name, value)
Facts facts_of(const RunRecord& r);
// Whether facts_of() says already what this setting does.
bool said_by_facts(const RunRecord& r, const std::string& key, const std::string& value);

}  // namespace tessera::report
