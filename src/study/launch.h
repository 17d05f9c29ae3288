// The words of a run's command: tessera alone, or under mpirun or srun; as a list to start, and as
// a person would type it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/grid.h"

namespace tessera::study {

// `folder`: of the run; `binary`: of tessera. With launch.hosts a hostfile of so many hosts is
// written into the folder.
std::vector<std::string> command_of(const config::StudyFile& file, const PlannedPoint& point,
                                    const PlannedRun& run, const std::filesystem::path& folder,
                                    const std::string& binary, bool write_hosts);
// For a shell, with plain `tessera` in place of the binary's path.
std::string shell_line(const std::vector<std::string>& command, const std::string& binary);
// One sentence on what starts the runs: the file's own words may name any program.
std::string launch_words(const config::StudyFile& file);
Throttle throttle_of(const PlannedPoint& point);
// The lines of a hostfile that name a host; Error(usage) where it cannot be read.
std::vector<std::string> hosts_in(const std::filesystem::path& hostfile);
// All ranks where nothing says how many hosts there are.
int ranks_per_host(const config::StudyFile& file, const PlannedPoint& point);

}  // namespace tessera::study
