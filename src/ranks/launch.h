// Starts what runs: this process alone, as one of the ranks that mpirun or srun started, or as the
// one that starts the others.
#pragma once

#include <functional>
#include <string>

#include "comm/comm.h"
#include "config/config.h"

namespace tessera::run {

// Ranks that a launcher started, of which this process is one; 1 when there was none. Nothing is
// initialised.
int launched_ranks();
int launched_rank();

// The ranks that the configuration is for: those that were launched, or those that the launcher of
// --np was asked for where it has started fewer. 0: nobody launched this process.
int asked_ranks();
// The configuration for the ranks that are here (config/shrink.h).
config::Config as_launched(config::Config config);

// How this job's ranks talk (comm::Comm::describe), told by whoever starts them, before any of them
// asks; empty: there is one.
void tell_how_ranks_talk(const std::string& how);
const std::string& how_ranks_talk();

// Whether people read what this job prints on stdout. Launchers may give their ranks a terminal
// that leads into a pipe: ranks are told.
bool prints_to_terminal();

// Whether this process says what there is to say of the configuration: once in a job, by who starts
// the ranks or by the first of them.
bool says_notes();

// Runs body(world) on every rank of config.run.np; world is null for one. Under a launcher this
// process is one rank. Otherwise the ranks are threads of this process (parallel.comm = "local", or
// where there is no mpirun), or this program is started again under mpirun, whose exit status comes
// back. An error of one rank alone ends all of them with its exit code. `goes_on`: started again,
// the same command goes on from where it was, so that run.restarts counts (restart.h).
int on_ranks(const config::Config& config, char** argv,
             const std::function<int(comm::Comm* world)>& body, bool goes_on = false);

// Leaves the exit code of this process, which is about to end by itself, where the launcher of ours
// that started it as a rank finds it; returns the code.
int tell_launcher(int code);

// Runs body on one rank of each host of config.run.hostfile that answers; without a file on
// config.run.np ranks of this machine. The ranks are told which hosts do not answer.
inline constexpr const char* silent_hosts_variable = "TESSERA_SILENT_HOSTS";
int on_each_host(const config::Config& config, char** argv,
                 const std::function<int(comm::Comm* world)>& body);

}  // namespace tessera::run
