// Files of a finished run: weights.safetensors, the predictions and summary.json.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/epoch.h"

namespace tessera::run {

// Facts that the manifest of a checkpoint remembers beside the state.
nlohmann::json manifest_notes(const TrainState& state, std::int64_t samples);

// Writes them, the summary last: it says that the run is finished, and every file of the run folder
// is on the disk before it. Returns the summary. Error(disk).
nlohmann::ordered_json write_results(const std::filesystem::path& run, TrainState& state,
                                     const std::map<std::string, std::vector<double>>& weights);

}  // namespace tessera::run
