// A timeline as Chrome's tracing and Perfetto read it: a process per rank, in it a lane for what the rank does and further ones for
// messages under way. Convention: nothing overlaps within a lane; times are of the first rank's clock, from the first event on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::report {

struct TraceEvent {
  std::string name, category;  // category: compute, post, poll, wait, flight, data, step
  double start_us = 0, end_us = 0;
};

// The events of one rank as the inside of a JSON array. `lane`s of messages are chosen here: the first that is free.
std::string trace_events(int rank, const std::string& host, const std::vector<TraceEvent>& doing, const std::vector<TraceEvent>& under_way);
// All ranks' as a file.
std::string trace_file(const std::vector<std::string>& ranks);

}  // namespace tessera::report
