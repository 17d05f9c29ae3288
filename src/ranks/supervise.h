// The process that was asked for several ranks starts itself again under mpirun, hands requests to
// stop on to the ranks, and says why the job ended when a rank hung or was lost: the ranks leave
// their verdict in a folder that only this job uses. Convention: whatever happens, nothing of the
// job is left when it returns.
#pragma once

#include <filesystem>
#include <string>

namespace tessera::run {

inline constexpr const char* terminal_variable =
    "TESSERA_TERMINAL";  // tells the ranks what they cannot see (launch.h)

// The exit code of the job. `out`: the run folder, which need not exist. `crowded`: more ranks than
// cores.
int run_under_mpirun(const std::string& mpirun, int ranks, char** argv,
                     const std::filesystem::path& out, bool crowded);

}  // namespace tessera::run
