// The pipeline of a run: its stages and schedule, and what a model lets be cut.
// Convention: stages are numbered in the order of the data; stage s runs on rank s % pp of the pp
// axis. With pp = 1 the stages are segments on one rank. A problem is returned as a Finding, never
// thrown.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/layout.h"

namespace tessera::config {

// pp x chunks, or the segments of one rank; 1: there is no pipeline.
std::int64_t pipeline_stages(const Parallel& parallel);

// Why the model cannot be cut into that many stages, or not as parallel.stages lists them. The
// model itself is sound.
std::vector<Finding> stage_problems(const Config& config);

// Sets parallel.chunks, where the interleaved schedule needs it, and the canonical name of the
// schedule. The batch is resolved already.
LayoutOutcome resolve_pipeline(Config& config, const std::function<bool(std::string_view)>& given);

}  // namespace tessera::config
