// predictions.json at the end of a run (report/predictions.h).
#pragma once

#include <filesystem>

#include "data/dataset.h"
#include "train/score.h"

namespace tessera::run {

// Writes those of the last evaluation; nothing where there was none. Pictures that cannot be had,
// or are not of 8 bits, are left out.
void write_predictions(const std::filesystem::path& folder, const Score& score,
                       const data::Dataset& test);

}  // namespace tessera::run
