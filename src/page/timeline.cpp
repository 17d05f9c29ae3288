#include "page/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "report/trace.h"

namespace tessera::report {
namespace {

using nlohmann::json;

constexpr std::size_t most_events = 400000;
constexpr int most_shown_ranks = 32, most_lanes = 6;
constexpr double far_us = 1e15;

struct RawEvent {
  int rank = 0, lane = 0;
  std::string name, category;
  double start = 0, end = 0;  // us
};

// Reads one event of the file; false: it is not of a timeline.
bool take(const json& event, RawEvent& out) {
  if (!event.is_object() || event.value("ph", json()) != "X") return false;
  const auto number = [&](const char* key, double most) {
    const auto found = event.find(key);
    if (found == event.end() || !found->is_number()) return -1.0;
    const double v = found->get<double>();
    return v >= 0 && v <= most ? v : -1.0;
  };
  const auto text = [&](const char* key) {
    const auto found = event.find(key);
    return found != event.end() && found->is_string() ? found->get<std::string>().substr(0, 200)
                                                      : std::string();
  };
  const double rank = number("pid", 1 << 20), lane = number("tid", 1 << 20),
               start = number("ts", far_us), length = number("dur", far_us);
  if (rank < 0 || lane < 0 || start < 0 || length < 0) return false;
  out = {.rank = static_cast<int>(rank),
         .lane = static_cast<int>(lane),
         .name = text("name"),
         .category = text("cat"),
         .start = start,
         .end = start + length};
  return out.category != "turn";
}

// The second half of a pipeline's turns: of the step in the middle of those that there are.
std::vector<PipelineBar> middle_turns(const std::vector<TraceTurn>& turns) {
  std::map<std::int64_t, int> steps;
  for (const TraceTurn& t : turns) ++steps[t.step];
  std::vector<PipelineBar> out;
  if (steps.empty()) return out;
  const std::int64_t chosen =
      std::next(steps.begin(), static_cast<std::ptrdiff_t>(steps.size() / 2))->first;
  double first = far_us;
  for (const TraceTurn& t : turns)
    if (t.step == chosen) first = std::min(first, t.start_us);
  for (const TraceTurn& t : turns)
    if (t.step == chosen && t.rank < 256 && out.size() < 20000)
      out.push_back({.rank = t.rank,
                     .stage = t.stage,
                     .micro = t.micro,
                     .kind = t.work,
                     .start_ms = (t.start_us - first) * 1e-3,
                     .end_ms = (t.end_us - first) * 1e-3});
  return out;
}

}  // namespace

Timeline read_timeline(const std::string& text, const std::string& where) {
  Timeline out;
  out.turns = middle_turns(read_trace(text, where).turns);  // refuses what is no trace
  std::vector<RawEvent> events;
  int last_rank = 0;
  const auto look = [&](int depth, json::parse_event_t what, json& value) {
    if (what != json::parse_event_t::object_end || depth != 2) return true;
    RawEvent e;
    if (!take(value, e)) return false;
    last_rank = std::max(last_rank, e.rank);
    if (e.rank >= most_shown_ranks) return false;
    if (events.size() < most_events)
      events.push_back(std::move(e));
    else
      ++out.events_left_out;
    return false;
  };
  [[maybe_unused]] const json rest = json::parse(text.begin(), text.end(), look);
  out.ranks_left_out = std::max(0, last_rank + 1 - most_shown_ranks);
  // Where the first rank has read its results, a step ends.
  std::vector<double> ends;
  for (const RawEvent& e : events)
    if (e.rank == 0 && e.lane == 0 && e.name == "read results") ends.push_back(e.end);
  std::sort(ends.begin(), ends.end());
  double from = 0, until = 0;
  for (const RawEvent& e : events) until = std::max(until, e.end);
  if (ends.size() >= 2) {
    const std::size_t chosen = std::max<std::size_t>(1, ends.size() / 2);
    from = ends[chosen - 1];
    until = ends[chosen];
  }
  out.span = (until - from) * 1e-3;
  for (const RawEvent& e : events) {
    if (e.end <= from || e.start >= until) continue;
    out.messages_left_out += e.lane > most_lanes;
    if (e.lane > most_lanes) continue;
    if (out.ranks.size() <= static_cast<std::size_t>(e.rank))
      out.ranks.resize(static_cast<std::size_t>(e.rank) + 1);
    // Lane 1 is a pipeline's turns: messages begin at 2.
    out.ranks[static_cast<std::size_t>(e.rank)].push_back(
        {.name = e.name,
         .category = e.category,
         .start = (std::max(e.start, from) - from) * 1e-3,
         .end = (std::min(e.end, until) - from) * 1e-3,
         .lane = e.lane <= 1 ? 0 : e.lane - 1});
  }
  for (std::vector<TimelineBar>& rank : out.ranks)
    std::stable_sort(rank.begin(), rank.end(),
                     [](const auto& a, const auto& b) { return a.start < b.start; });
  return out;
}

std::string left_out_words(const Timeline& timeline) {
  std::string out;
  const auto say = [&](auto count, const char* one, const char* many, const char* why) {
    if (count > 0) out += fmt::format(" {} {} {}", count, count == 1 ? one : many, why);
  };
  say(timeline.ranks_left_out, "further rank is", "further ranks are", "not drawn.");
  say(timeline.messages_left_out, "message is", "messages are",
      "not drawn, as more are under way at once than there are lanes.");
  say(timeline.events_left_out, "event", "events", "at the end of the trace were not read.");
  return out;
}

}  // namespace tessera::report
