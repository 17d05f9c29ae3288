// A study's file becomes runs: every technique at every point of a part's grid, as often as
// `repeats` says. Nothing is started here. Convention: a run's identity depends on what it computes
// and on how it is started (part, technique, keys, launch, its hosts, the text of the configuration
// under it, repeat), never on the order of the file, on titles, on where it lies or on what other
// runs there are; so a finished run is recognised after the file was edited, and from another
// folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/flags.h"
#include "config/study/file.h"

namespace tessera::study {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Throttle {
  int rank = -1;     // -1: none
  double share = 1;  // of its time
};
// "1:0.33"; Error(usage) on anything else.
Throttle parse_throttle(const std::string& text);

struct PlannedPoint {
  std::size_t part = 0;  // of the file
  std::string technique;
  Pairs axes, fixed;
  Pairs keys;    // what `--set` gets, sorted, without run.seed
  Pairs launch;  // launch.* keys
  int ranks = 1;
  std::int64_t seed = 0, batch = 0;  // of repeat 0; batch: images of a step, or of an inference
  std::vector<std::size_t> runs;     // of Plan::runs, by repeat
};

struct PlannedRun {
  std::size_t point = 0;
  int repeat = 0;
  std::string identity;  // 16 hexadecimal digits
  std::string folder;    // relative to the study's: runs/strong/np-2-r0-1a2b3c4d
};

struct Plan {
  std::vector<PlannedPoint> points;  // in the order of the file
  std::vector<PlannedRun> runs;      // in the order in which they are started
  // By device that a part needs and this machine lacks: what is said in the place of its runs.
  std::map<std::string, std::string> missing;
};

// Every configuration is loaded and validated: all problems of all points come as one ConfigError.
// `with_hosts`: the hostfile, too, must be there with as many hosts as are asked for; without it
// identities are not those of runs that have one.
Plan plan_study(const config::StudyFile& file, bool with_hosts = false);

// "part strong, run.np=2 batch.global=64": how messages and tables call a point.
std::string point_name(const PlannedPoint& point);

}  // namespace tessera::study
