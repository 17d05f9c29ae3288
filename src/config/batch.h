// How the three batch numbers follow from one another: an update's samples, a rank's largest
// micro-batch, and micro-batches per update; and how the learning rate follows from the first.
// Convention: pure arithmetic on W data-parallel ranks; a contradiction is returned as a Finding,
// never thrown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/problem.h"

namespace tessera::config {

inline constexpr std::int64_t most_samples = 16777216, most_accumulate = 256;  // of an update

struct BatchGiven {
  std::optional<std::int64_t> global, micro, accumulate;
};

struct BatchSolution {
  Batch batch;  // sound unless there is a problem
  std::optional<Finding> problem;
  std::string note;  // what was changed on the way; may be empty
};

// Samples of the largest part when `global` is cut into `accumulate` micro-batches and each of them
// over `ranks`; parts of one cut differ by at most one.
std::int64_t largest_micro(std::int64_t global, std::int64_t accumulate, std::int64_t ranks);

// Ours: any two of the three, global alone, accumulate alone (of the default batch), or nothing
// (the default). Nothing has to divide.
BatchSolution solve_batch(const BatchGiven& given, std::int64_t ranks);

// DeepSpeed's: also micro alone; floor divisions, and then global == micro x accumulate x ranks or
// it is refused.
BatchSolution solve_deepspeed_batch(const BatchGiven& given, std::int64_t ranks);

// The peak of the learning rate: optim.lr for a batch of lr.scale_from, and as lr.scale says for
// the run's own.
double peak_rate(const Config& config);
std::string peak_text(const Config& config);  // says so; empty where it is optim.lr itself

// Batches near `wish` for which that equation holds: those that keep two of its numbers first, at
// most four.
std::vector<Batch> divisible_batches(const Batch& wish, std::int64_t ranks);

}  // namespace tessera::config
