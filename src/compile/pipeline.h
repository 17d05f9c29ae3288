// The pipeline of a configuration: its schedule, and the stage of every parameter. Convention: a
// pipeline is there when a mesh has stages (pp > 1), or when one rank runs several segments of a
// training step by turns.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "config/config.h"
#include "transforms/schedules.h"

namespace tessera::run {

bool pipelined(const config::Config& config, Goal goal);

// Samples of each micro-batch of a global batch: contiguous, sizes differ by at most one.
std::vector<std::int64_t> micro_batches(std::int64_t samples, std::int64_t accumulate);
// Micro-batches of one run of a plan: those of an update; where stages share inference, as many as
// keep them busy.
std::vector<std::int64_t> micro_batches_for(const config::Config& config, Goal goal,
                                            std::int64_t samples);

// Checked; Error(usage) that names what is wrong with one that was given as a file.
transforms::Schedule schedule_of(const StepSpec& spec, Goal goal, int micros);
transforms::Schedule schedule_of(const config::Config& config, Goal goal, int micros);
// The schedule of the file, checked against the configuration; none where the schedule is no
// file's.
std::optional<transforms::Schedule> read_schedule(const config::Config& config);
void check_schedule(const config::Config& config);  // the same before anything runs
// By formula, for stages of equal cost; none for a schedule from a file.
std::optional<double> bubble_formula(const config::Config& config, Goal goal, int micros);

// The file that a pipeline's schedule is read from; "": none is.
std::string schedule_file(const config::Config& config);
std::string schedule_text(const std::string& path);

// By name of a parameter or buffer, with so many blocks in each stage.
std::map<std::string, int> stages_of_parameters(const models::ModelConfig& model,
                                                const std::vector<std::int64_t>& blocks);

// The pp rank that reads the images.
int first_stage_rank(const StepSpec& spec);

}  // namespace tessera::run
