// A study's file: what all runs share, the parts with their grids, the claims. Only what the file
// says; study/grid.h makes runs of it. Convention: values are text that `--set KEY=VALUE` takes;
// all problems come at once as one ConfigError (exit code 2), and nothing larger than the limits
// below is ever built.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/problem.h"

namespace tessera::config {

inline constexpr std::int64_t most_study_runs = 10'000;

// A key of a configuration, or of the launch (launch.hosts, launch.per_host, launch.throttle), with
// its value.
struct StudySetting {
  std::string key, value;
  Place place;
};

struct StudyAxis {
  std::string key;
  std::vector<std::string> values;  // the first is the baseline
  Place place;
};

struct StudyTechnique {
  std::string name;
  std::vector<StudySetting> set;
  Place place;
};

struct StudyPart {
  std::string name, title, what;
  std::string kind;  // strong | weak | batch | accumulation | techniques | accuracy | layers
  std::string verb = "train";          // train | infer | layers
  std::string needs;                   // a device without which it is not run; "": none
  std::string axis;                    // the key along x; "": none
  std::int64_t repeats = 0;            // 0: as the study
  double time_limit = 0;               // 0: as the study
  std::vector<std::string> arguments;  // further words for `bench infer` and `bench layers`
  std::vector<StudySetting> set;
  std::vector<StudyAxis> grid;
  std::vector<StudyTechnique> techniques;
  std::vector<std::pair<std::string, double>> published;
  std::string published_by;
  Place place;
};

struct StudyClaim {
  std::string paper, says, number, holds, unit,
      note;                // paper: a short word for where it is from; note: for the page
  std::string untestable;  // why it cannot be tested here; "": it can
  Place place;
};

struct StudyLaunch {
  std::string with = "local";  // local | mpirun | srun
  std::string hostfile;        // as a path from where the command runs
  Place hostfile_place;
  std::int64_t per_host = 0;
  std::vector<std::string> arguments;
};

struct StudyFile {
  std::string path;  // of the file, as given
  std::string name, title, what;
  std::int64_t repeats = 1, warmup = 2;
  double time_limit = 3600;
  bool keep = false;  // checkpoints and weights of finished runs
  StudyLaunch launch;
  std::string config;  // the file under all runs, as a path from where the command runs; "": none
  Place config_place;
  std::vector<StudySetting> base;
  std::vector<StudyPart> parts;
  std::vector<StudyClaim> claims;
  std::string text;  // the file itself
};

// Throws also what check_study finds.
StudyFile read_study(const std::string& path);
// The same from text; paths in it are relative to the folder of `file`.
StudyFile study_from_text(std::string_view text, const std::string& file);
// Problems of a file all keys of which could be read.
std::vector<Problem> check_study(const StudyFile& file);

}  // namespace tessera::config
