// The process that was asked for several ranks starts itself again under mpirun, hands requests to
// stop on to the ranks, and knows why the job ended when a rank hung or was lost: the ranks leave
// their verdict in a folder that only this job uses. Convention: whatever happens, nothing of the
// job is left when it returns; what is said of its end is left to the caller (restart.h).
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ranks/hosts.h"

namespace tessera::run {

// Variables of the environment for the ranks: whether people read what they print (launch.h), and
// how many of them the configuration is for, where fewer were started.
inline constexpr const char* terminal_variable = "TESSERA_TERMINAL";
inline constexpr const char* ranks_variable = "TESSERA_RANKS";

struct JobStart {
  std::string mpirun;
  std::vector<std::string> arguments;  // of this program
  int ranks = 1, asked = 1;            // to start; that the configuration is for
  std::filesystem::path out;           // the run folder, which need not exist
  bool crowded = false;                // more ranks than cores
  std::vector<Host> hosts;             // empty: mpirun decides
  bool goes_on = false;                // a lost host is worth a word: the job can be started again
};

struct JobEnd {
  int code = 0;
  std::string error;    // what there is to say; may be empty
  int asked = 0;        // how many times somebody asked this process to stop
  bool opened = false;  // the run folder is the job's: started again, it goes on with it
  bool deaf = false;    // something for stdout could not be written
};

// Requests to stop (stop.h) wait for run_job() as long as this lives, and mean nothing else.
struct StopSignals {
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  // Whether one came meanwhile, or comes within that time; for when no job runs.
  bool asked(std::chrono::milliseconds wait) const;

  sigset_t handled = {}, before = {};
};

// `look` is called some times a second, with the step that the first rank is in (-1: none yet);
// true: the job shall save and end, as on request.
JobEnd run_job(const JobStart& start, const StopSignals& signals,
               const std::function<bool(std::int64_t step)>& look);

}  // namespace tessera::run
