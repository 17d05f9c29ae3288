#include "report/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

void add(std::string& out, const ordered_json& event) { out += (out.empty() ? "" : ",\n") + event.dump(); }

void name_lane(std::string& out, int rank, int lane, const std::string& name) {
  add(out, {{"ph", "M"}, {"name", "thread_name"}, {"pid", rank}, {"tid", lane}, {"args", {{"name", name}}}});
}

void add_event(std::string& out, int rank, int lane, const TraceEvent& e) {
  add(out, {{"ph", "X"},
            {"name", e.name},
            {"cat", e.category},
            {"pid", rank},
            {"tid", lane},
            {"ts", e.start_us},
            {"dur", e.end_us - e.start_us}});
}

}  // namespace

std::string trace_events(int rank, const std::string& host, const std::vector<TraceEvent>& doing,
                         const std::vector<TraceEvent>& under_way) {
  std::string out;
  add(out, {{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", "rank " + std::to_string(rank) + " " + host}}}});
  name_lane(out, rank, 0, "rank");
  for (const TraceEvent& e : doing) add_event(out, rank, 0, e);
  std::vector<TraceEvent> messages = under_way;
  std::stable_sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) { return a.start_us < b.start_us; });
  std::vector<double> free_at;  // per lane of messages
  for (const TraceEvent& e : messages) {
    auto lane = std::find_if(free_at.begin(), free_at.end(), [&](double t) { return t <= e.start_us; });
    if (lane == free_at.end()) {
      lane = free_at.insert(free_at.end(), 0);
      name_lane(out, rank, static_cast<int>(free_at.size()), "messages " + std::to_string(free_at.size()));
    }
    *lane = e.end_us;
    add_event(out, rank, static_cast<int>(lane - free_at.begin()) + 1, e);
  }
  return out;
}

std::string trace_file(const std::vector<std::string>& ranks) {
  std::string out = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  bool first = true;
  for (const std::string& events : ranks) {
    if (events.empty()) continue;
    out += (first ? "" : ",\n") + events;
    first = false;
  }
  return out + "\n]}\n";
}

}  // namespace tessera::report
