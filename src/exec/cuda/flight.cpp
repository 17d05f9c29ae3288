// The results of a run, which come late: its single numbers out of pinned memory, and its times out
// of events.
#include "exec/cuda/flight.h"

#include <algorithm>

#include "exec/common/results.h"

namespace tessera::exec::cuda {
namespace {

double ms_between(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  must(::cudaEventElapsedTime(&ms, from, to), "ask how long a run took");
  return static_cast<double>(ms);
}

}  // namespace

bool CudaLoaded::Run::done() {
  if (flight->collected) return true;
  loaded.machine_.here();
  return ::cudaEventQuery(loaded.copies_[static_cast<std::size_t>(flight->copy)].done) !=
         cudaErrorNotReady;
}

Results CudaLoaded::Run::wait() {
  loaded.collect(*flight);
  if (flight->error) std::rethrow_exception(flight->error);
  loaded.waited_copy_ = flight->copy;
  loaded.waited_run_ = flight->number;
  return std::move(flight->results);
}

void CudaLoaded::collect(Flight& flight) {
  if (std::exchange(flight.collected, true)) return;
  Copy& copy = copies_[static_cast<std::size_t>(flight.copy)];
  try {
    machine_.here();
    machine_.wait(copy.done, "finish a run");
    std::size_t next = 0;  // slots are asked for in the order of the outputs
    const auto where = [&](const plan::Slot& slot) {
      while (&plan_.outputs[next].slot != &slot) ++next;
      return copy.found + places_[next];
    };
    flight.results = collect_results(plan_, where, timeline_of(flight));
  } catch (...) {
    flight.error = std::current_exception();
  }
}

Timeline CudaLoaded::timeline_of(Flight& flight) {
  Copy& copy = copies_[static_cast<std::size_t>(flight.copy)];
  Timeline out = std::move(flight.host);
  const bool spans = flight.spans && !flight.observed;
  if (carried_) carried_->add_times(out, *copy.marks, copy.began, spans);
  out.wall_ms = std::max(out.messages_ms, ms_between(copy.began, copy.done));
  out.began_ns = std::max(flight.submitted_ns, ended_ns_);
  ended_ns_ = out.began_ns + static_cast<std::int64_t>(out.wall_ms * 1e6);
  if (!spans) return out;
  if (plan_.feed_bytes > 0) out.copy_ms = ms_between(copy.uploading, copy.uploaded);
  for (const Segment& segment : segments_) {
    if (segment.by_host || segment.once) continue;
    double start = ms_between(copy.began, copy.ticks[2 * segment.first]);
    for (std::size_t i = segment.first; i < segment.last; ++i) {
      const std::size_t behind = i + 1 < segment.last ? 2 * i + 2 : 2 * i + 1;
      const double end = ms_between(copy.began, copy.ticks[behind]);
      const bool crosses = plan::crosses_ranks(plan_.steps[i].op),
                 moves = plan_.steps[i].move != plan::Move::none;  // on a stream of its own
      // Its first wait is a span already; so is a message that nothing overlaps with.
      if (carried_) start = std::max(start, carried_->joined_ms(i, *copy.marks, copy.began));
      if (!moves && (!crosses || plan_.steps[i].stream == 1))
        out.spans.push_back({static_cast<int>(i), 0, start, std::max(start, end),
                             crosses ? Timeline::post : Timeline::compute});
      start = end;
    }
  }
  std::stable_sort(
      out.spans.begin(), out.spans.end(),
      [](const Timeline::Span& a, const Timeline::Span& b) { return a.start < b.start; });
  return out;
}

}  // namespace tessera::exec::cuda
