// Makes a record of what a finished run left: a training's folder, or the document that a benchmark
// printed. Convention: what cannot be read is an Error, and the run counts as failed; a study never
// shows a number that no run wrote.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "record/record.h"

namespace tessera::study {

report::RunRecord collect(const std::string& verb, const std::filesystem::path& folder,
                          std::int64_t warmup);

// `tessera bench infer|layers --json`; `where` names it in messages.
report::RunRecord record_of_infer(const nlohmann::json& document, const std::string& where);
report::RunRecord record_of_layers(const nlohmann::json& document, const std::string& where);

// Removes what takes room and nobody reads again: checkpoints, weights, TensorBoard's events.
// Says what stays, and why; "": nothing does.
std::string tidy(const std::filesystem::path& folder);

}  // namespace tessera::study
