// The name of a run and of its folder where none was given.
// Convention: equal commands have equal names, so a command that is repeated goes on with its run;
// commands that differ in a value that changes results have different names:
// runs/vit_micro-synthetic-zero2-np4-epochs10.
#pragma once

#include <string>
#include <string_view>

#include "config/config.h"
#include "config/problem.h"

namespace tessera::config {

// Whether the value of a key ("optim.lr") changes what a run computes; the number of threads, names
// and reports do not.
bool changes_results(std::string_view key);

// The parts of a run's name: the files' names without folder and ending ("": there is none), and
// the configuration as it was given, before anything was derived from it.
struct NameParts {
  std::string stem, deepspeed_stem;
  const Config& asked;
  const Given& given;
};
// The file's name, or else model and data; then every value of the command line that changes
// results. At most 100 letters, digits and "._+-"; a name that would be longer, or that would lose
// other characters, ends in a hash of the whole.
std::string default_run_name(const NameParts& parts);

}  // namespace tessera::config
