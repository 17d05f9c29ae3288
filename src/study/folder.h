// The folder of a study: made where it is missing, and emptied by --fresh. Convention: only what a
// study wrote is removed, and study.db, which says that a study wrote it, is removed last; of
// single parts their rows go before their folders, so that no row of a finished run is left without
// what it says.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/state.h"

namespace tessera::study {

// Error(disk) where it cannot be made.
void make_study_folder(const std::filesystem::path& folder);

// The folder of one run, empty: what an earlier try left is removed, so that no run is taken for
// another one. Error(disk) where that cannot be done.
void make_run_folder(const std::filesystem::path& folder);

// Error(usage) where --fresh would remove what no study made: it has names of a study's files, but
// no study.db.
void check_forgettable(const std::filesystem::path& folder);
// Ends what a killed study left running in the folder, then removes what it wrote; Error(disk)
// where that cannot be done.
void forget(const std::filesystem::path& folder, double grace);
// The same with the runs of these parts alone: --fresh with --only. Pages stay; they are written
// again anyway.
void forget_parts(const std::filesystem::path& folder, State& state,
                  const std::vector<std::string>& parts, double grace);

}  // namespace tessera::study
