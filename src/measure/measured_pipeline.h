// A run's pipeline as it was: the turns of one step, read back from trace.json. Convention: ranks
// are those of the run (pp outermost); a trace that does not fit the configuration, or in which a
// rank does two things at once, is refused.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/pipeline_chart.h"
#include "report/trace.h"
#include "transforms/schedules.h"

namespace tessera::run {

struct MeasuredStep {
  std::int64_t step = 0, first = 0, last = 0;  // its number, and those of the trace
  std::vector<report::PipelineBar> bars;       // of all ranks, without updates, by start
};

// trace.json of a run folder.
struct RunTrace {
  std::string path;
  report::PipelineTrace trace;
};
RunTrace trace_of_run(const std::filesystem::path& folder);

// The step of a trace that took the median time. `peers`: the ranks of each stage.
MeasuredStep measured_step(const RunTrace& run, const transforms::Schedule& schedule, int peers);

}  // namespace tessera::run
