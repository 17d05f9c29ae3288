// Rules between the keys of a configuration, and the values of those that were not given.
// Convention: nothing throws here; problems are returned, each at the place of a key that the user
// gave.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/problem.h"

namespace tessera::config {

// train: the length of the run must be given, and the data be such that it can train; check: the
// same, and files and folders that are named must be there; inference: nothing of training is said.
enum class Purpose { train, check, inference, other };

// The circumstances in which a configuration is read, beside its own text.
struct Situation {
  Purpose purpose = Purpose::train;
  std::string stem;  // the name of the file, for the run's name; may be empty
  int world = 0;     // ranks that run; 0: not known yet (then run.np counts, where it was given)
  bool deepspeed = false;           // the batch must divide, as DeepSpeed demands
  std::string deepspeed_stem = "";  // the name of its file, likewise
};

struct Outcome {
  std::vector<Problem> problems;
  std::vector<std::string> notes;  // what was decided for the user and is worth a line
};

// Fills in dp and np, micro/accumulate/global, the model's image, channels and classes where the
// data states them, and the run's name and folder. `refused`: keys whose values were already
// refused; checks that involve them are skipped.
Outcome resolve(Config& config, const Given& given, std::set<std::string> refused,
                const Situation& situation);

// Updates of the whole run; nothing when the length or the number of training samples is not known
// yet.
std::optional<std::int64_t> total_steps(const Config& config);

}  // namespace tessera::config
