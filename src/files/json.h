// JSON that others may have written. What is nested deeper than anything we write counts as no JSON
// at all: copying, comparing and printing a value recurse.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace tessera::files {

constexpr int json_levels = 32;

// is_discarded() where the text is not JSON, or has more than json_levels.
nlohmann::json parse_json(std::string_view text);

}  // namespace tessera::files
