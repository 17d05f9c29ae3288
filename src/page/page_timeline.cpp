// The timeline of the largest run and the charts of pipelines, out of the trace.json of run folders
// that are still there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/check.h"
#include "page/page.h"
#include "page/timeline.h"

namespace tessera::report {
namespace {

constexpr std::uintmax_t longest_trace = 256u << 20;  // bytes
constexpr std::size_t most_pipelines = 4;

struct Traced {
  const Part* part = nullptr;
  const Point* point = nullptr;
  const RunRecord* run = nullptr;
  std::string path;
};

std::string run_words(const Traced& t) {
  const std::string named = point_name(*t.part, *t.point);
  return part_title(*t.part) + (named.empty() ? "" : ", " + named);
}

// `too_long`: the names of those whose trace is not read for its size.
std::vector<Traced> traced_runs(const Study& study, const std::string& runs_at,
                                std::vector<std::string>& too_long) {
  namespace fs = std::filesystem;
  std::vector<Traced> out;
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const Repeat& r : p.repeats) {
        if (r.outcome != Outcome::done || !r.record || r.folder.empty() ||
            r.folder.find('\0') != r.folder.npos)
          continue;
        const fs::path path = fs::path(runs_at) / r.folder / "trace.json";
        std::error_code error;
        const fs::file_status status = fs::status(path, error);
        const bool unknown = status.type() == fs::file_type::none;  // reading it says why
        if (!unknown && !fs::is_regular_file(status)) continue;
        const std::uintmax_t size = fs::file_size(path, error);
        const Traced found{.part = &part, .point = &p, .run = &*r.record, .path = path.string()};
        if (unknown || error || size <= longest_trace)
          out.push_back(found);
        else
          too_long.push_back(run_words(found));
        break;  // one repeat of each point
      }
  return out;
}

std::string whole_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

void timeline_section(PageBuilder& page, const Study& study, const std::string& runs_at) {
  std::vector<std::string> too_long, not_drawn;
  std::vector<Traced> runs = traced_runs(study, runs_at, too_long);
  if (runs.empty() && too_long.empty()) return;
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Traced& a, const Traced& b) { return a.run->ranks > b.run->ranks; });
  page.section("timeline", "One step, rank by rank", "Timeline");
  std::string problems;
  const auto read = [&](const Traced& t) {
    try {
      return read_timeline(whole_file(t.path), t.path);
    } catch (const Error& e) {
      problems += (problems.empty() ? "" : "; ") + e.message;
      return Timeline{};
    }
  };
  const Timeline largest = runs.empty() ? Timeline{} : read(runs.front());
  if (!largest.ranks.empty())
    page.wide_figure(
        "timeline",
        timeline_figure("One step of " + run_words(runs.front()),
                        "What every rank does during one step.", largest.ranks),
        fmt::format("{}, a step of {}. Wide bars: what the rank does, one thing at a time; narrow "
                    "ones: its messages under way. "
                    "trace.json of the run folder opens at ui.perfetto.dev with every detail.{}",
                    run_words(runs.front()), seconds_text(largest.span * 1e-3),
                    left_out_words(largest)));
  std::size_t charts = 0;
  for (const Traced& t : runs) {
    if (!t.run->breakdown.pipelined && !std::isfinite(t.run->bubble)) continue;
    if (++charts > most_pipelines) {
      not_drawn.push_back(run_words(t));
      continue;
    }
    const Timeline pipeline = read(t);
    if (pipeline.turns.empty()) continue;
    page.wide_figure("pipeline",
                     svg_chart(pipeline.turns, "Pipeline of " + shorten(run_words(t), 80),
                               "one step as it was measured; every bar has its times in a tooltip"),
                     run_words(t));
  }
  constexpr std::size_t most_named = 4;
  if (!not_drawn.empty())
    page.paragraph("Further pipelines have no chart: " + listed(not_drawn, most_named) + ".",
                   "soft");
  if (!too_long.empty())
    page.paragraph(fmt::format("Traces of more than {} MB are not read: {}.",
                               longest_trace / 1'000'000, listed(too_long, most_named)),
                   "soft");
  if (!problems.empty()) page.paragraph("Not every trace could be read: " + problems, "soft");
}

}  // namespace tessera::report
