#include "measure/breakdown.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/rng.h"

namespace tessera::run {

using exec::Timeline;

namespace {

// The spans of one kind, in the order of their steps.
std::vector<Timeline::Span> spans_of(const Timeline& timeline, Timeline::Kind kind) {
  std::vector<Timeline::Span> out;
  std::copy_if(timeline.spans.begin(), timeline.spans.end(), std::back_inserter(out),
               [&](const auto& s) { return s.kind == kind; });
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  return out;
}

struct Stretch {
  double begin = 0, end = 0;
};

Arrival arrival_of(const std::map<int, Arrival>& met, int step) {
  const auto found = met.find(step);
  return found == met.end() ? Arrival{} : found->second;
}

}  // namespace

std::map<int, Arrival> arrivals(const plan::Plan& plan, const Timeline& timeline,
                                const ir::Mesh& mesh, const Ranks& ranks, const Clock& clock) {
  std::vector<Timeline::Span> flights = spans_of(timeline, Timeline::flight);
  // A copy from where this rank's state rests meets nobody.
  std::erase_if(flights, [&](const Timeline::Span& s) {
    return !plan::crosses_ranks(plan.steps[static_cast<std::size_t>(s.step)].op);
  });
  // Stages of a pipeline send different messages, so each goes by its name: the axis, for a message
  // the two ends, and its number there.
  std::map<std::string, int> numbers;
  const auto name_of = [&](const Timeline::Span& flight) {
    const ir::Attrs& attrs = plan.steps[static_cast<std::size_t>(flight.step)].attrs;
    std::string name = ir::axis_of(attrs);
    if (const ir::Message* message = std::get_if<ir::Message>(&attrs))
      name += std::to_string(message->from) + "-" + std::to_string(message->to);
    name += "#" + std::to_string(numbers[name]++);
    return static_cast<double>(hash_name(name) >> 12);  // exact as a double
  };
  const double zero = static_cast<double>(timeline.began_ns + clock.behind_ns) *
                      1e-6;  // of this timeline, in ms of the first rank's clock
  std::vector<double> mine;  // name and time of every message
  for (const Timeline::Span& flight : flights)
    mine.insert(mine.end(), {name_of(flight), zero + flight.start});
  const auto count = static_cast<double>(mine.size());
  const std::vector<double> counts = ranks.gather({&count, 1});
  const auto most = static_cast<std::size_t>(*std::max_element(counts.begin(), counts.end()));
  std::vector<double> padded = mine;
  padded.resize(most);
  const std::vector<double> all = ranks.gather(padded);
  std::vector<std::map<double, double>> times(
      static_cast<std::size_t>(ranks.size()));  // per rank, by name
  for (std::size_t rank = 0; rank < times.size(); ++rank)
    for (std::size_t k = 0; k < static_cast<std::size_t>(counts[rank]); k += 2)
      times[rank][all[rank * most + k]] = all[rank * most + k + 1];
  std::map<int, Arrival> out;
  for (std::size_t k = 0; k < flights.size(); ++k) {
    const int step = flights[k].step,
              axis = mesh.find(ir::axis_of(plan.steps[static_cast<std::size_t>(step)].attrs));
    Arrival last{mine[2 * k + 1], ranks.rank()};
    for (const int rank : axis < 0 ? std::vector<int>{} : mesh.group(ranks.rank(), axis)) {
      const std::map<double, double>& theirs = times[static_cast<std::size_t>(rank)];
      if (const auto found = theirs.find(mine[2 * k]);
          found != theirs.end() && found->second > last.at)
        last = {found->second, rank};
    }
    last.at -= zero;
    out[step] = last;
  }
  return out;
}

report::Breakdown breakdown_of(const Timeline& timeline, const std::map<int, Arrival>& met,
                               std::vector<double>* waited_for) {
  report::Breakdown out;
  out.copy = timeline.copy_ms;
  for (const Timeline::Span& span : timeline.spans) {
    const double ms = span.end - span.start;
    if (span.kind == Timeline::compute) out.compute += ms;
    if (span.kind == Timeline::post || span.kind == Timeline::poll) out.comm_exposed += ms;
    if (span.kind != Timeline::wait) continue;
    const Arrival arrival = arrival_of(met, span.step);
    const double alone = std::clamp(arrival.at - span.start, 0.0, ms);
    if (waited_for && arrival.last >= 0)
      (*waited_for)[static_cast<std::size_t>(arrival.last)] += alone;
    out.wait += alone;
    out.comm_exposed += ms - alone;
  }
  // Hidden: some message has met and is under way while this rank computes. Compute spans come in
  // the order of time; `open_until` is as far as the messages that have begun reach.
  std::vector<Stretch> under_way;
  for (const Timeline::Span& flight : spans_of(timeline, Timeline::flight))
    if (const double begin = std::max(flight.start, arrival_of(met, flight.step).at);
        begin < flight.end)
      under_way.push_back({begin, flight.end});
  std::sort(under_way.begin(), under_way.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  std::size_t next = 0;
  double open_until = -1;
  for (const Timeline::Span& span : timeline.spans) {
    if (span.kind != Timeline::compute) continue;
    for (double at = span.start; at < span.end;) {
      while (next < under_way.size() && under_way[next].begin <= at)
        open_until = std::max(open_until, under_way[next++].end);
      const double free_until = next < under_way.size() ? under_way[next].begin : span.end;
      const double to = std::min(span.end, open_until > at ? open_until : free_until);
      if (open_until > at) out.comm_hidden += to - at;
      at = to;
    }
  }
  return out;
}

}  // namespace tessera::run
