#include "study/study.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "base/say.h"
#include "base/threads.h"  // defines: available_cores
#include "page/page.h"
#include "report/console.h"
#include "report/document.h"
#include "study/child.h"
#include "study/claims.h"
#include "study/collect.h"
#include "study/folder.h"
#include "study/launch.h"
#include "study/list.h"
#include "study/table.h"
#include "study/view.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr double page_every_s = 10, grace_s = 10;

double now_utc() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void check_names(const config::StudyFile& file, const std::vector<std::string>& only) {
  std::vector<std::string> names;
  for (const config::StudyPart& part : file.parts) names.push_back(part.name);
  for (const std::string& name : only)
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const std::string close = name.size() > 64 ? "" : nearest(name, names);
      throw Error(ErrorKind::usage, "the study has no part '" + printable(name, 40) + "'", "--only",
                  close.empty() ? "it has " + join(names, ", ") : "did you mean " + close + "?");
    }
}

// One study from its plan to its page.
class Engine {
 public:
  Engine(const StudyOptions& options, config::StudyFile file, Plan plan)
      : options_(options),
        file_(std::move(file)),
        plan_(std::move(plan)),
        folder_(options.out.empty() ? fs::path("runs") / ("study-" + file_.name)
                                    : fs::path(options.out)),
        binary_(options.binary.empty() ? fs::read_symlink("/proc/self/exe").string()
                                       : options.binary),
        table_(options.quiet) {
    document_ = plan_json(file_, plan_, options.command);
    view_ = study_of(document_, {});
    const std::vector<std::string> wrong = check_claims(file_, view_);
    if (wrong.empty()) return;
    Error error(ErrorKind::usage, wrong.front(), file_.path,
                "docs/study_claims.md explains what a claim may say");
    for (std::size_t i = 1; i < std::min<std::size_t>(wrong.size(), 20); ++i)
      error.and_also(wrong[i]);
    throw error;
  }

  int list() const { return list_runs(options_, file_, plan_, folder_, binary_); }

  int run() {
    if (options_.fresh) check_forgettable(folder_);
    make_study_folder(folder_);
    const StudyLock lock(folder_);
    const bool some = !options_.only.empty();
    if (options_.fresh && !some) forget(folder_, grace_s);
    State state(folder_);
    check_is_ours(state);
    if (options_.fresh && some) forget_parts(folder_, state, options_.only, grace_s);
    take(state);
    const StopRequests requests;
    bool stopped = false;
    std::vector<const PlannedRun*> todo;
    for (const PlannedRun& run : plan_.runs)
      if (to_do(run)) todo.push_back(&run);
    to_make_ = todo.size();
    for (std::size_t i = 0; i < todo.size() && !stopped; ++i)
      stopped = requests.wait(0) != 0 || !run_one(state, *todo[i], requests);
    const int code = finish(stopped);
    std::fflush(stdout);
    return code;
  }

 private:
  bool wanted(const PlannedRun& run) const { return study::wanted(options_, file_, plan_, run); }
  Status status_of(const PlannedRun& run) const { return study::status_of(rows_, run); }
  bool to_do(const PlannedRun& run) const {
    return study::to_do(options_, file_, plan_, rows_, run);
  }
  report::Point& point_at(const PlannedRun& run) {
    const std::size_t part = plan_.points[run.point].part;
    std::size_t within = 0;
    for (std::size_t i = 0; i < run.point; ++i) within += plan_.points[i].part == part;
    return view_.parts[part].points[within];
  }
  report::Repeat& repeat_at(const PlannedRun& run) {
    return point_at(run).repeats[static_cast<std::size_t>(run.repeat)];
  }

  void check_is_ours(const State& state) const {
    if (const std::string name = state.get("name"); !name.empty() && name != file_.name)
      throw Error(
          ErrorKind::usage,
          fmt::format("the folder holds the study '{}', not '{}'", printable(name, 60), file_.name),
          folder_.string(),
          "choose another folder with --out, or --fresh without --only to start over in it");
  }

  // Reads what the database knows; runs left over by a study that was killed are ended and wait
  // again.
  void take(State& state) {
    rows_ = state.all();
    for (auto& [identity, row] : rows_) {
      if (row.status != Status::running) continue;
      if (row.machine == machine_name()) end_session(row.pid, row.pid_started, folder_, grace_s);
      row.status = Status::waiting;
      row.pid = 0;
      row.pid_started = 0;
      state.put(identity, row);
    }
    count_warmup_anew(state);
    state.set("name", file_.name);
    state.set("text", file_.text);
    state.set("plan", document_.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    view_ = study_of(document_, rows_);
    view_.running = true;
    estimate(view_, options_.only);
  }

  // A run's warm-up is no part of its identity: where the file has another one now, speeds are
  // computed again from what the run left.
  void count_warmup_anew(State& state) {
    bool said = false;
    std::error_code ignored;
    for (const PlannedRun& run : plan_.runs) {
      const config::StudyPart& part = file_.parts[plan_.points[run.point].part];
      const auto row = rows_.find(run.identity);
      if (part.verb != "train" || row == rows_.end() || row->second.status != Status::done)
        continue;
      if (repeat_of(row->second, run.repeat, run.identity).record->warmup == file_.warmup) continue;
      try {
        if (const fs::path metrics = folder_ / run.folder / "metrics.jsonl";
            !fs::is_regular_file(metrics, ignored))
          throw Error(ErrorKind::data, "there is no such file", metrics.string());
        row->second.record = record_of(part, run);
        state.put(run.identity, row->second);
      } catch (const Error& e) {
        if (!std::exchange(said, true))
          table_.line(
              fmt::format("warning: warmup = {} is not that of all finished runs, and of some "
                          "nothing is left to count again: {}",
                          file_.warmup, printable(e.what())));
      }
    }
  }

  // The record of a run that ended well, as JSON.
  std::string record_of(const config::StudyPart& part, const PlannedRun& run) const {
    report::RunRecord record = collect(part.verb, folder_ / run.folder, file_.warmup);
    record.folder = run.folder;
    return report::to_json(record).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  // False: stopped on request, and the run waits again.
  bool run_one(State& state, const PlannedRun& run, const StopRequests& requests) {
    const PlannedPoint& point = plan_.points[run.point];
    const config::StudyPart& part = file_.parts[point.part];
    const fs::path folder = folder_ / run.folder;
    RunRow& row = rows_[run.identity];
    make_run_folder(folder);
    ChildOptions child;
    child.study = mark_of(folder_);
    child.folder = folder;
    child.throttle = throttle_of(point);
    child.grace = grace_s;
    child.time_limit = part.time_limit > 0 ? part.time_limit : file_.time_limit;
    child.launcher = file_.launch.with != "local";
    child.crowded = ranks_per_host(file_, point) > available_cores();
    row.attempts += 1;
    row.exit_code = -1;
    row.reason = row.record = "";
    row.ended = 0;
    row.started = now_utc();
    row.wall = 0;
    row.folder = run.folder;
    row.machine = machine_name();
    try {
      child.command = command_of(file_, point, run, folder, binary_, true);
    } catch (const Error& e) {  // the hostfile was changed meanwhile
      row.status = Status::failed;
      row.reason = printable(e.what());
      row.ended = row.started;
      settle(state, run, row);
      return true;
    }
    row.command = shell_line(child.command, binary_);
    child.on_start = [&](int pid, std::uint64_t started) {
      row.status = Status::running;
      row.pid = pid;
      row.pid_started = started;
      state.put(run.identity, row);
    };
    repeat_at(run) = [&] {
      report::Repeat r = repeat_of(row, run.repeat, run.identity);
      r.outcome = report::Outcome::running;
      return r;
    }();
    const std::string now = fmt::format("now: {} {}{}", part.name, point_words(point_at(run)),
                                        repeat_words(run.repeat, point.runs.size()));
    const double elapsed = view_.elapsed, remaining = view_.remaining;
    child.on_tick = [&, shown = 0.0](double seconds) mutable {
      if (seconds < shown + 1) return;
      shown = seconds;
      view_.elapsed = elapsed + seconds;
      view_.remaining = std::max(remaining - seconds, 0.0);
      table_.draw(view_, now + ", " + report::clock(seconds));
    };
    table_.draw(view_, now, true);
    const ChildResult result = run_child(child, requests);
    row.ended = now_utc();
    row.wall = result.wall;
    row.exit_code = result.code;
    row.pid = 0;
    row.pid_started = 0;
    if (result.stopped) {
      row.status = Status::waiting;
    } else if (result.code == 0 && !result.timed_out) {
      finished(part, run, child.throttle, result, row);
    } else {
      row.status = Status::failed;
      row.reason = failure_reason(result, child.time_limit, folder);
    }
    if (row.status == Status::done && !file_.keep)
      // Before it counts as done: whoever is killed here does it again.
      if (const std::string stays = tidy(folder); !stays.empty())
        table_.line("note: what a finished run leaves takes room: " + printable(stays, 1000));
    settle(state, run, row);
    return !result.stopped;
  }

  // The outcome of a run is written down and shown.
  void settle(State& state, const PlannedRun& run, const RunRow& row) {
    state.put(run.identity, row);
    repeat_at(run) = repeat_of(row, run.repeat, run.identity);
    estimate(view_, options_.only);
    if (row.status == Status::waiting) return;
    ++made_;
    if (!table_.terminal()) announce(run);
    table_.draw(view_, "", true);
    if (seconds_since_page() > page_every_s) write_page(false);
  }

  void finished(const config::StudyPart& part, const PlannedRun& run, const Throttle& throttle,
                const ChildResult& result, RunRow& row) {
    try {
      if (throttle.rank >= 0 && !result.throttled)
        throw Error(ErrorKind::data,
                    fmt::format("no process of rank {} was found to slow down", throttle.rank));
      row.record = record_of(part, run);
      row.status = Status::done;
    } catch (const Error& e) {
      row.status = Status::failed;
      row.reason = printable(e.what());
    }
  }

  // Counts what this command makes.
  void announce(const PlannedRun& run) {
    const bool more = made_ < to_make_ && std::isfinite(view_.remaining) &&
                      view_.remaining > 0;  // 0: nothing says how long
    const std::string left = more ? ", about " + report::duration(view_.remaining) + " to go" : "";
    table_.line(fmt::format(
        "[{}/{}] {}{}", made_, to_make_,
        run_line(view_.parts[plan_.points[run.point].part], point_at(run), repeat_at(run)), left));
  }

  double seconds_since_page() const {
    return std::chrono::duration<double>(Clock::now() - page_written_).count();
  }

  // A page that cannot be written stops no run.
  std::string write_page(bool last) {
    page_written_ = Clock::now();
    view_.running = !last;
    view_.claims = judge_claims(file_, view_);
    try {
      write_claims(view_, folder_);  // before the page, which tells what the last one wrote
      return report::write_page(view_, folder_.string());
    } catch (const Error& e) {
      if (last) throw;
      table_.line(std::string("warning: the page was not written: ") + printable(e.what()));
      return "";
    }
  }

  int finish(bool stopped) {
    const std::string page = write_page(true);
    table_.clear();
    int failed = 0, waiting = 0;
    std::string missing;
    for (const PlannedRun& run : plan_.runs) {
      if (!wanted(run)) continue;
      failed += status_of(run) == Status::failed;
      const bool waits = status_of(run) == Status::waiting;
      waiting += waits && missing_for(file_, plan_, run).empty();
      if (waits) missing = missing.empty() ? missing_for(file_, plan_, run) : missing;
    }
    if (options_.json) {
      report::print_document(document_of(view_, folder_.string(), page));
    } else {
      for (const std::string& line : table_lines(view_, 0)) say(stdout, "{}\n", line);
      say(stdout, "\n{}\n", progress_line(view_));
      for (const std::string& sentence : report::verdict(view_))
        report::say_sentence("{}\n", printable(sentence, 2000));
      say(stdout, "{}\n", printable(page, 2000));
    }
    if (const std::string commits = report::commits_of(view_);
        report::is_mixed(commits) && !options_.quiet)
      report::say_note("runs of different builds are mixed: " + printable(commits, 1000) +
                       "; --fresh makes them anew");
    if (!missing.empty() && !options_.quiet)
      report::say_note("some runs were not made: " + printable(missing, 1000));
    if (stopped) {
      if (!options_.quiet)
        say_lines(stderr,
                  fmt::format("stopped on request; {} run{} wait{}, the same command goes on\n",
                              waiting, waiting == 1 ? "" : "s", waiting == 1 ? "s" : ""));
      return static_cast<int>(ErrorKind::stopped);
    }
    if (failed > 0 && !options_.quiet)
      say_lines(stderr, fmt::format("{} run{} failed; --retry runs {} again\n", failed,
                                    failed == 1 ? "" : "s", failed == 1 ? "it" : "them"));
    return failed > 0 ? 1 : 0;
  }

  const StudyOptions& options_;
  config::StudyFile file_;
  Plan plan_;
  fs::path folder_;
  std::string binary_;
  nlohmann::ordered_json document_;
  report::Study view_;
  std::map<std::string, RunRow> rows_;
  LiveTable table_;
  std::size_t to_make_ = 0, made_ = 0;  // runs of this command
  Clock::time_point page_written_ = Clock::now() - std::chrono::hours(1);
};

}  // namespace

int study(const StudyOptions& options) {
  config::StudyFile file = config::read_study(options.file);
  check_names(file, options.only);
  std::error_code error;
  const config::StudyLaunch& launch = file.launch;
  const bool no_hosts = options.list && launch.with == "mpirun" && !launch.hostfile.empty() &&
                        !fs::exists(launch.hostfile, error);
  Plan plan = plan_study(file, !no_hosts);
  for (const config::StudyPart& part : file.parts)
    if (!part.needs.empty() && options.missing && !plan.missing.contains(part.needs))
      if (const std::string why = options.missing(part.needs); !why.empty())
        plan.missing[part.needs] = "no card (" + printable(why, 400) + ")";
  if (no_hosts)
    report::say_note("the hostfile " + printable(launch.hostfile, 200) +
                     " is not there: nothing is said of hosts, and what was run with one "
                     "counts as waiting");
  Engine engine(options, std::move(file), std::move(plan));
  return options.list ? engine.list() : engine.run();
}

}  // namespace tessera::study
