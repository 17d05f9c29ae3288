// Reads predictions.json of a run folder, with care.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "report/predictions.h"

namespace tessera::report {

// Error(usage) where it is not what a run writes.
Predictions predictions_from_json(const nlohmann::json& json, const std::string& where);
// Empty where the folder has none.
Predictions read_predictions(const std::string& folder);

}  // namespace tessera::report
