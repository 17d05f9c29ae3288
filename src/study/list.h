// The runs of a study: which of them a command asks for, which are still to be made, and the list
// of all with their commands (`tessera study --list`).
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "config/study/file.h"
#include "study/grid.h"
#include "study/state.h"
#include "study/study.h"

namespace tessera::study {

// Whether --only leaves the run in.
bool wanted(const StudyOptions& options, const config::StudyFile& file, const Plan& plan,
            const PlannedRun& run);
// The text in the place of a run whose part needs a device that this machine lacks; "": it can be
// made.
std::string missing_for(const config::StudyFile& file, const Plan& plan, const PlannedRun& run);
// `rows`: what the database knows, by identity.
Status status_of(const std::map<std::string, RunRow>& rows, const PlannedRun& run);
bool to_do(const StudyOptions& options, const config::StudyFile& file, const Plan& plan,
           const std::map<std::string, RunRow>& rows, const PlannedRun& run);

// Prints the runs; the exit status.
int list_runs(const StudyOptions& options, const config::StudyFile& file, const Plan& plan,
              const std::filesystem::path& folder, const std::string& binary);

}  // namespace tessera::study
