// A timeline as Chrome's tracing and Perfetto read it: a process per rank, in it a lane for what
// the rank does and further ones for messages under way; of a pipeline also one for its turns,
// which can be read back. Convention: nothing overlaps within a lane; times are of the first rank's
// clock, from the first event on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::report {

struct TraceEvent {
  std::string name, category;  // category: compute, post, poll, wait, flight, data, step
  double start_us = 0, end_us = 0;
};

// A turn of a pipeline, or a part of it: work of a stage for a micro-batch. F forward, B backward,
// W gradients of weights, U update.
struct TraceTurn {
  int rank = 0, stage = 0, micro = 0;
  char work = 'F';
  std::int64_t step = 0;
  double start_us = 0, end_us = 0;
};

// The events of one rank as the inside of a JSON array. `lane`s of messages are chosen here: the
// first that is free.
std::string trace_events(int rank, const std::string& host, const std::vector<TraceEvent>& doing,
                         const std::vector<TraceEvent>& under_way,
                         const std::vector<TraceTurn>& turns = {});
// All ranks' as a file; `blocks`: of a pipeline, those of each stage.
std::string trace_file(const std::vector<std::string>& ranks,
                       const std::vector<std::int64_t>& blocks = {});

// The pipeline in a trace: the blocks of its stages, and its turns in the order of the file. Text
// that is no trace, or whose turns are not sound, is refused with Error(usage); what else there is
// in it is skipped.
struct PipelineTrace {
  std::vector<std::int64_t> blocks;
  std::vector<TraceTurn> turns;
};
PipelineTrace read_trace(const std::string& text, const std::string& where);

}  // namespace tessera::report
