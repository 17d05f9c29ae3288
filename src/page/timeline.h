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
  // Left out by the limits: whole ranks, events beyond those that are read, and messages that have
  // no lane.
  int ranks_left_out = 0;
  std::size_t events_left_out = 0, messages_left_out = 0;
};
// "", or sentences of what is left out.
std::string left_out_words(const Timeline& timeline);
// Text of a trace.json; no trace, or one that is not sound: Error(usage). A long one is read up to
// a limit, and the first 32 ranks.
Timeline read_timeline(const std::string& text, const std::string& where);

}  // namespace tessera::report
