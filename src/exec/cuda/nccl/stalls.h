// A time in which the compute stream waited, shared out to the messages that it waited for.
#pragma once

#include <algorithm>
#include <vector>

#include "exec/executor.h"

namespace tessera::exec::cuda {

struct MessageEnd {
  int step = 0;
  double end = 0;  // ms
};

// Spans of kind wait, one after the other: until a message ended the wait is for that one, in the
// order in which they ended; what is left belongs to the last.
inline std::vector<Timeline::Span> waits_in(double start, double end,
                                            std::vector<MessageEnd> messages) {
  std::vector<Timeline::Span> out;
  std::stable_sort(messages.begin(), messages.end(),
                   [](const MessageEnd& a, const MessageEnd& b) { return a.end < b.end; });
  double at = start;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const double until = i + 1 == messages.size() ? end : std::min(end, messages[i].end);
    if (until <= at) continue;
    out.push_back({messages[i].step, 0, at, until, Timeline::wait});
    at = until;
  }
  return out;
}

}  // namespace tessera::exec::cuda
