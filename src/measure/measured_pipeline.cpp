#include "measure/measured_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "files/text.h"

namespace tessera::run {
namespace {

using report::PipelineBar;
using report::TraceTurn;

constexpr std::size_t most_trace_bytes = std::size_t{512} << 20;  // of a trace
constexpr double rounding_us = 1e-3;                              // of times in a file

[[noreturn]] void refuse_trace(const std::string& where, const std::string& problem) {
  throw Error(ErrorKind::usage, problem, where,
              "give the trace that a run of this configuration wrote");
}

std::string name(const TraceTurn& t) {
  return fmt::format("{}{}.{} of step {} on rank {}", t.work, t.stage, t.micro, t.step, t.rank);
}

void check_turn(const TraceTurn& t, const transforms::Schedule& schedule,
                const std::vector<int>& homes, int peers, const std::string& where) {
  const int ranks = static_cast<int>(schedule.ranks.size()) * peers;
  if (t.rank >= ranks) refuse_trace(where, fmt::format("{}: the run has {} ranks", name(t), ranks));
  if (t.stage >= schedule.stages)
    refuse_trace(where, fmt::format("{}: the run has {} stages", name(t), schedule.stages));
  if (t.micro >= schedule.micros)
    refuse_trace(where, fmt::format("{}: the run has {} micro-batches", name(t), schedule.micros));
  if (const int home = homes[static_cast<std::size_t>(t.stage)]; home != t.rank / peers)
    refuse_trace(where,
                 fmt::format("{}: the stage runs on rank {} of the pipeline", name(t), home));
}

void check_apart(std::vector<TraceTurn>& turns, const std::string& where) {
  std::stable_sort(turns.begin(), turns.end(),
                   [](const TraceTurn& a, const TraceTurn& b) { return a.start_us < b.start_us; });
  std::map<int, const TraceTurn*> before;  // by rank
  for (const TraceTurn& t : turns) {
    const TraceTurn*& last = before[t.rank];
    if (last && t.start_us < last->end_us - rounding_us)
      refuse_trace(where, fmt::format("{} begins before {} ended", name(t), name(*last)));
    last = &t;
  }
}

double span_of(const std::vector<TraceTurn>& turns) {
  double first = turns[0].start_us, last = turns[0].end_us;
  for (const TraceTurn& t : turns) {
    first = std::min(first, t.start_us);
    last = std::max(last, t.end_us);
  }
  return last - first;
}

}  // namespace

RunTrace trace_of_run(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "trace.json";
  return {path.string(),
          report::read_trace(files::read_text(path, most_trace_bytes), path.string())};
}

MeasuredStep measured_step(const RunTrace& run, const transforms::Schedule& schedule, int peers) {
  const std::string& where = run.path;
  const std::vector<int> homes = transforms::homes(schedule);
  std::map<std::int64_t, std::vector<TraceTurn>> steps;
  for (const TraceTurn& t : run.trace.turns) {
    if (t.work == 'U') continue;
    check_turn(t, schedule, homes, peers, where);
    steps[t.step].push_back(t);
  }
  if (steps.empty())
    throw Error(ErrorKind::usage, "the trace has no turns of a pipeline", where,
                "train with parallel.pp > 1 (or parallel.segments > 1) and run.trace > 0");
  std::vector<std::pair<double, std::int64_t>> spans;
  for (auto& [number, turns] : steps) {
    check_apart(turns, where);
    std::set<int> ranks;
    for (const TraceTurn& t : turns) ranks.insert(t.rank);
    if (ranks.size() < schedule.ranks.size() * static_cast<std::size_t>(peers))
      refuse_trace(
          where, fmt::format("step {} has turns of {} ranks, the run has {}", number, ranks.size(),
                             schedule.ranks.size() * static_cast<std::size_t>(peers)));
    spans.emplace_back(span_of(turns), number);
  }
  std::sort(spans.begin(), spans.end());
  MeasuredStep out{.step = spans[(spans.size() - 1) / 2].second,
                   .first = steps.begin()->first,
                   .last = steps.rbegin()->first,
                   .bars = {}};
  const std::vector<TraceTurn>& turns = steps.at(out.step);
  const double zero = turns.front().start_us;
  for (const TraceTurn& t : turns)
    out.bars.push_back({.rank = t.rank,
                        .stage = t.stage,
                        .micro = t.micro,
                        .kind = t.work,
                        .start_ms = (t.start_us - zero) * 1e-3,
                        .end_ms = (t.end_us - zero) * 1e-3});
  return out;
}

}  // namespace tessera::run
