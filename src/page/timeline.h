// One step of a run out of its trace.json: what every rank does, and its messages. Convention:
// times are ms from the step's start; a step of a rank ends where it has read its results.
#pragma once

#include <string>
#include <vector>

#include "page/figures/figure.h"
#include "report/pipeline_chart.h"

namespace tessera::report {

struct Timeline {
  std::vector<std::vector<TimelineBar>> ranks;  // of one step
  double span = 0;                              // ms
  std::vector<PipelineBar> turns;               // of one step of a pipeline; empty: none
  bool several_ranks_left_out = false;
};
// Text of a trace.json; no trace, or one that is not sound: Error(usage). A long one is read up to
// a limit, and the first 32 ranks.
Timeline read_timeline(const std::string& text, const std::string& where);

}  // namespace tessera::report
