#include "study/list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "base/say.h"
#include "study/folder.h"
#include "study/launch.h"
#include "study/table.h"
#include "study/view.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;

constexpr const char* status_names[] = {"waiting", "running", "done", "failed"};

}  // namespace

bool wanted(const StudyOptions& options, const config::StudyFile& file, const Plan& plan,
            const PlannedRun& run) {
  const std::string& part = file.parts[plan.points[run.point].part].name;
  return options.only.empty() ||
         std::find(options.only.begin(), options.only.end(), part) != options.only.end();
}

std::string missing_for(const config::StudyFile& file, const Plan& plan, const PlannedRun& run) {
  const auto found = plan.missing.find(file.parts[plan.points[run.point].part].needs);
  return found == plan.missing.end() ? "" : found->second;
}

Status status_of(const std::map<std::string, RunRow>& rows, const PlannedRun& run) {
  const auto row = rows.find(run.identity);
  return row == rows.end() ? Status::waiting : row->second.status;
}

bool to_do(const StudyOptions& options, const config::StudyFile& file, const Plan& plan,
           const std::map<std::string, RunRow>& rows, const PlannedRun& run) {
  const Status status = status_of(rows, run);
  return wanted(options, file, plan, run) && missing_for(file, plan, run).empty() &&
         status != Status::done && (status != Status::failed || options.retry);
}

int list_runs(const StudyOptions& options, const config::StudyFile& file, const Plan& plan,
              const fs::path& folder, const std::string& binary) {
  std::map<std::string, RunRow> rows;
  if (!options.fresh && is_study(folder)) rows = State(folder, true).all();
  const bool locked = is_locked(folder);
  if (!options.json) say(stdout, "{}\n\n", launch_words(file));
  int listed = 0, would_run = 0, not_run = 0;
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const PlannedRun& run : plan.runs) {
    if (!wanted(options, file, plan, run)) continue;
    const PlannedPoint& point = plan.points[run.point];
    const std::string& part = file.parts[point.part].name;
    const std::string command =
        shell_line(command_of(file, point, run, folder / run.folder, binary, false), binary);
    const Status kept = status_of(rows, run);
    const std::string missing = missing_for(file, plan, run);
    const bool waits = kept == Status::waiting || (kept == Status::running && !locked);
    const std::string status = !waits             ? status_names[static_cast<int>(kept)]
                               : !missing.empty() ? "not run: " + missing
                                                  : status_names[0];
    not_run += waits && !missing.empty();
    ++listed;
    would_run += to_do(options, file, plan, rows, run);
    if (options.json)
      runs.push_back({{"identity", run.identity},
                      {"part", part},
                      {"point", point_name(point)},
                      {"repeat", run.repeat},
                      {"ranks", point.ranks},
                      {"status", status},
                      {"command", command}});
    else
      say(stdout, "{}{}{}{}: {}\n  {}\n", part,
          point.axes.empty() && point.technique.empty() ? "" : " ", printable(point_name(point)),
          repeat_words(run.repeat, point.runs.size()), printable(status), printable(command, 4000));
  }
  if (options.json)
    say_json(stdout,
             nlohmann::ordered_json{
                 {"name", file.name},
                 {"folder", folder.string()},
                 {"launch", {{"with", file.launch.with}, {"arguments", file.launch.arguments}}},
                 {"would_run", would_run},
                 {"not_run", not_run},
                 {"runs", runs}}
                 .dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    say(stdout, "{} of {} run{} would be made{}\n", would_run, listed, listed == 1 ? "" : "s",
        not_run == 0 ? "" : fmt::format(", {} need what is not here", not_run));
  return 0;
}

}  // namespace tessera::study
