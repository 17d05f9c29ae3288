#include "report/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tessera::report {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int doing_lane = 0, turn_lane = 1;  // further ones: messages
// The limits of a trace that is read back; nobody writes more.
constexpr std::size_t most_turns = 4000000, most_stages = 4096;
constexpr std::int64_t most_index = 1 << 20;  // of ranks, stages, micro-batches
constexpr double longest_us = 1e15;           // thirty years
constexpr int event_depth = 2, most_depth = 8;

void add(std::string& out, const ordered_json& event) {
  out += (out.empty() ? "" : ",\n") + event.dump();
}

void name_lane(std::string& out, int rank, int lane, const std::string& name) {
  add(out, {{"ph", "M"},
            {"name", "thread_name"},
            {"pid", rank},
            {"tid", lane},
            {"args", {{"name", name}}}});
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

void add_turn(std::string& out, const TraceTurn& t) {
  const std::string work(1, t.work);
  ordered_json args = {{"step", t.step}, {"work", work}};
  if (t.work != 'U') args.update({{"stage", t.stage}, {"micro", t.micro}});
  add(out,
      {{"ph", "X"},
       {"name",
        t.work == 'U' ? "update" : work + std::to_string(t.stage) + "." + std::to_string(t.micro)},
       {"cat", "turn"},
       {"pid", t.rank},
       {"tid", turn_lane},
       {"ts", t.start_us},
       {"dur", t.end_us - t.start_us},
       {"args", std::move(args)}});
}

// One event of category "turn", every value looked at before it is used.
class TurnReader {
 public:
  TurnReader(const json& event, std::string where) : event_(event), where_(std::move(where)) {}

  TraceTurn read() const {
    const json none = json::object();
    const auto found = event_.find("args");
    const json& args = found != event_.end() && found->is_object() ? *found : none;
    const auto work = args.find("work");
    if (work == args.end() || !work->is_string() ||
        work->get_ref<const std::string&>().size() != 1 ||
        std::string("FBWU").find(work->get_ref<const std::string&>()) == std::string::npos)
      refuse("args.work: expected F, B, W or U");
    TraceTurn t;
    t.work = work->get_ref<const std::string&>()[0];
    t.rank = static_cast<int>(whole(event_, "pid", most_index));
    t.step = whole(args, "step", std::int64_t{1} << 53);
    if (t.work != 'U') {
      t.stage = static_cast<int>(whole(args, "stage", most_index));
      t.micro = static_cast<int>(whole(args, "micro", most_index));
    }
    t.start_us = number("ts");
    t.end_us = t.start_us + number("dur");
    return t;
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw Error(ErrorKind::usage, problem, where_, "the file is damaged or not a trace of ours");
  }
  std::int64_t whole(const json& object, const char* key, std::int64_t most) const {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_number_integer() ||
        (found->is_number_unsigned() && found->get<std::uint64_t>() > INT64_MAX) ||
        found->get<std::int64_t>() < 0 || found->get<std::int64_t>() > most)
      refuse(std::string(key) + ": expected a whole number from 0 to " + std::to_string(most));
    return found->get<std::int64_t>();
  }
  double number(const char* key) const {
    const auto found = event_.find(key);
    if (found == event_.end() || !found->is_number() ||
        !(found->get<double>() >= 0 && found->get<double>() <= longest_us))
      refuse(std::string(key) + ": expected microseconds, 0 or more");
    return found->get<double>();
  }

  const json& event_;
  std::string where_;
};

}  // namespace

std::string trace_events(int rank, const std::string& host, const std::vector<TraceEvent>& doing,
                         const std::vector<TraceEvent>& under_way,
                         const std::vector<TraceTurn>& turns) {
  std::string out;
  add(out, {{"ph", "M"},
            {"name", "process_name"},
            {"pid", rank},
            {"args", {{"name", "rank " + std::to_string(rank) + " " + host}}}});
  name_lane(out, rank, doing_lane, "rank");
  for (const TraceEvent& e : doing) add_event(out, rank, doing_lane, e);
  if (!turns.empty()) name_lane(out, rank, turn_lane, "turns");
  for (const TraceTurn& t : turns) add_turn(out, t);
  std::vector<TraceEvent> messages = under_way;
  std::stable_sort(messages.begin(), messages.end(),
                   [](const auto& a, const auto& b) { return a.start_us < b.start_us; });
  std::vector<double> free_at;  // per lane of messages
  for (const TraceEvent& e : messages) {
    auto lane =
        std::find_if(free_at.begin(), free_at.end(), [&](double t) { return t <= e.start_us; });
    if (lane == free_at.end()) {
      lane = free_at.insert(free_at.end(), 0);
      name_lane(out, rank, turn_lane + static_cast<int>(free_at.size()),
                "messages " + std::to_string(free_at.size()));
    }
    *lane = e.end_us;
    add_event(out, rank, turn_lane + static_cast<int>(lane - free_at.begin()) + 1, e);
  }
  return out;
}

std::string trace_file(const std::vector<std::string>& ranks,
                       const std::vector<std::int64_t>& blocks) {
  std::string out = "{\"displayTimeUnit\": \"ms\", ";
  if (!blocks.empty()) out += "\"otherData\": " + json{{"blocks", blocks}}.dump() + ", ";
  out += "\"traceEvents\": [\n";
  bool first = true;
  for (const std::string& events : ranks) {
    if (events.empty()) continue;
    out += (first ? "" : ",\n") + events;
    first = false;
  }
  return out + "\n]}\n";
}

PipelineTrace read_trace(const std::string& text, const std::string& where) {
  PipelineTrace out;
  std::size_t events = 0;
  const auto refuse = [&](const std::string& problem) {
    throw Error(ErrorKind::usage, problem, where, "give the trace.json of a run folder");
  };
  // Events are looked at as they come and kept by nobody: a trace may be long.
  const auto look = [&](int depth, json::parse_event_t what, json& value) {
    if (depth > most_depth) refuse("the file is nested deeper than a trace");
    if (what != json::parse_event_t::object_end || depth != event_depth) return true;
    ++events;
    const auto category = value.find("cat");
    if (category == value.end() || *category != "turn") return false;
    if (out.turns.size() == most_turns)
      refuse("the trace has more than " + std::to_string(most_turns) + " turns");
    out.turns.push_back(TurnReader(value, where + ", event " + std::to_string(events)).read());
    return false;
  };
  try {
    const json document = json::parse(text.begin(), text.end(), look);
    if (!document.is_object() || !document.contains("traceEvents") ||
        !document["traceEvents"].is_array())
      refuse("expected an object with a list \"traceEvents\"");
    const auto other = document.find("otherData");
    if (other == document.end() || !other->is_object() || !other->contains("blocks")) return out;
    const json& blocks = other->at("blocks");
    if (!blocks.is_array() || blocks.size() > most_stages)
      refuse("otherData.blocks: expected a list of blocks per stage");
    for (const json& n : blocks) {
      if (!n.is_number_unsigned() || n.get<std::uint64_t>() > most_index)
        refuse("otherData.blocks: expected numbers of blocks");
      out.blocks.push_back(n.get<std::int64_t>());
    }
  } catch (const json::exception&) {
    refuse("the file is not valid JSON");
  }
  return out;
}

}  // namespace tessera::report
