// Training, as a call: on every rank of a job, or alone.
#pragma once

#include <string>

#include "comm/comm.h"
#include "config/config.h"

namespace tessera::run {

struct TrainOptions {
  std::string given;   // the config file as given, copied into the run folder; may be empty
  bool fresh = false;  // start over in a run folder that already holds a run
  bool json = false, quiet = false;
  int ahead = -1;  // steps that may be started before the one before is accounted for; -1: as the
                   // device finds it worth
};
// On one of the ranks of `world`, which all call it; null: alone.
int train(const config::Config& config, const TrainOptions& options, comm::Comm* world = nullptr);

}  // namespace tessera::run
