#include "study/view.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/printable.h"
#include "base/say.h"
#include "files/json.h"
#include "files/look.h"
#include "page/page.h"
#include "report/console.h"
#include "study/claims.h"
#include "study/table.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

ordered_json pairs_json(const Pairs& pairs) {
  ordered_json out = ordered_json::array();
  for (const auto& [key, value] : pairs) out.push_back({key, value});
  return out;
}
Pairs pairs_of(const json& j) {
  Pairs out;
  for (const json& pair : j) out.emplace_back(pair.at(0), pair.at(1));
  return out;
}

double median_of(std::vector<double> values) {
  return values.empty() ? report::kUnknown : report::quantiles(std::move(values)).median;
}

ordered_json number_json(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

}  // namespace

report::PartKind kind_named(const std::string& kind) {
  for (std::size_t i = 0; i < std::size(report::part_kinds); ++i)
    if (kind == report::part_kinds[i]) return static_cast<report::PartKind>(i);
  throw Error(ErrorKind::weights, "there is no kind of part '" + config::clean(kind) + "'");
}

ordered_json plan_json(const config::StudyFile& file, const Plan& plan,
                       const std::string& command) {
  ordered_json parts = ordered_json::array();
  for (const config::StudyPart& p : file.parts) {
    ordered_json published = ordered_json::array();
    for (const auto& [row, value] : p.published) published.push_back({row, value});
    const auto missing = plan.missing.find(p.needs);
    parts.push_back({{"name", p.name},
                     {"missing", missing == plan.missing.end() ? "" : missing->second},
                     {"title", p.title},
                     {"what", p.what},
                     {"kind", p.kind},
                     {"verb", p.verb},
                     {"axis", p.axis},
                     {"published", published},
                     {"published_by", p.published_by},
                     {"points", ordered_json::array()}});
  }
  for (const PlannedPoint& point : plan.points) {
    ordered_json runs = ordered_json::array();
    for (const std::size_t run : point.runs)
      runs.push_back({plan.runs[run].identity, plan.runs[run].folder});
    parts[point.part]["points"].push_back({{"technique", point.technique},
                                           {"axes", pairs_json(point.axes)},
                                           {"fixed", pairs_json(point.fixed)},
                                           {"runs", runs}});
  }
  return {{"name", file.name},  {"title", file.title},   {"what", file.what}, {"file", file.path},
          {"command", command}, {"warmup", file.warmup}, {"parts", parts}};
}

report::Repeat repeat_of(const RunRow& row, int number, const std::string& identity) {
  report::Repeat out;
  out.number = number;
  out.outcome = static_cast<report::Outcome>(row.status);
  out.reason = row.reason;
  out.command = row.command;
  out.attempts = row.attempts;
  if (row.status == Status::done || row.status == Status::failed) {
    out.wall = row.wall;
    out.folder = row.folder;
  }
  if (row.status == Status::done) {
    const json record = files::parse_json(row.record);
    if (record.is_discarded())
      throw Error(ErrorKind::weights,
                  "the record of run " + identity + " in the study's database cannot be read");
    out.record = report::run_from_json(record, "run " + identity);
  }
  return out;
}

report::Study study_of(const json& plan, const std::map<std::string, RunRow>& rows) try {
  report::Study out;
  out.name = plan.at("name");
  out.title = plan.at("title");
  out.what = plan.at("what");
  out.file = plan.at("file");
  out.command = plan.at("command");
  out.warmup = plan.at("warmup");
  for (const json& p : plan.at("parts")) {
    report::Part part;
    part.name = p.at("name");
    part.title = p.at("title");
    part.what = p.at("what");
    part.kind = kind_named(p.at("kind"));
    part.missing = p.value("missing", "");  // older plans do not have it
    part.verb = p.at("verb");
    part.axis = p.at("axis");
    part.published_by = p.at("published_by");
    for (const json& row : p.at("published")) part.published.emplace_back(row.at(0), row.at(1));
    for (const json& q : p.at("points")) {
      report::Point point;
      point.technique = q.at("technique");
      point.axes = pairs_of(q.at("axes"));
      point.fixed = pairs_of(q.at("fixed"));
      for (const json& run : q.at("runs")) {
        const std::string identity = run.at(0);
        const auto row = rows.find(identity);
        point.repeats.push_back(repeat_of(row == rows.end() ? RunRow{} : row->second,
                                          static_cast<int>(point.repeats.size()), identity));
      }
      part.points.push_back(std::move(point));
    }
    out.parts.push_back(std::move(part));
  }
  estimate(out);
  return out;
} catch (const json::exception& e) {
  throw Error(ErrorKind::weights,
              std::string("the plan in the study's database cannot be read: ") + e.what());
}

void estimate(report::Study& study, const std::vector<std::string>& only) {
  study.elapsed = study.remaining = 0;
  std::vector<double> everything;
  const auto walls = [](const report::Point& point) {
    std::vector<double> out;
    for (const report::Repeat& r : point.repeats)
      if (r.outcome == report::Outcome::done) out.push_back(r.wall);
    return out;
  };
  for (const report::Part& part : study.parts)
    for (const report::Point& point : part.points) {
      for (const double w : walls(point)) everything.push_back(w);
      for (const report::Repeat& r : point.repeats)
        if (std::isfinite(r.wall)) study.elapsed += r.wall;
    }
  const double of_all = median_of(everything);
  for (const report::Part& part : study.parts) {
    std::vector<double> here;
    for (const report::Point& point : part.points)
      for (const double w : walls(point)) here.push_back(w);
    if (!only.empty() && std::find(only.begin(), only.end(), part.name) == only.end()) continue;
    const double of_part = here.empty() ? of_all : median_of(here);
    for (const report::Point& point : part.points) {
      const std::vector<double> mine = walls(point);
      const double each = mine.empty() ? of_part : median_of(mine);
      for (const report::Repeat& r : point.repeats)
        if ((r.outcome == report::Outcome::waiting && part.missing.empty()) ||
            r.outcome == report::Outcome::running)
          study.remaining += each;  // NaN: not known yet
    }
  }
}

bool is_study(const fs::path& folder) {
  return files::is_there(folder / "study.db", ErrorKind::usage);
}

report::Study load_study(const fs::path& folder) {
  const State state(folder, true);
  const json plan = files::parse_json(state.get("plan"));
  if (!plan.is_object())
    throw Error(ErrorKind::weights, "the study's database has no plan",
                (folder / "study.db").string(), "`tessera study FILE` writes it again");
  report::Study out = study_of(plan, state.all());
  out.running = is_locked(folder);
  try {
    if (const std::string text = state.get("text"); !text.empty())
      out.claims = judge_claims(config::study_from_text(text, out.file), out);
  } catch (const Error& e) {   // written for another version
    static bool said = false;  // --watch comes here again and again
    if (!std::exchange(said, true))
      report::say_note("the study's claims are left out: " +
                       printable(e.message.substr(0, e.message.find('\n'))));
  }
  return out;
}

report::Study study_of_run(const fs::path& folder, bool follow) {
  report::Study out;
  std::error_code error;
  out.running =
      follow && !fs::exists(folder / "summary.json",
                            error);  // before it is read: what comes meanwhile is read next time
  const std::string name = fs::absolute(folder, error).lexically_normal().filename().string();
  out.name = out.title = name.empty() ? "run" : name;
  const fs::path asked = folder / "resolved.toml";  // of old runs there may be none
  out.command = fs::exists(asked, error) ? "tessera train " + asked.string()
                                         : "tessera report " + folder.string();
  out.file = folder.string();
  out.warmup = 2;
  report::Repeat repeat;
  repeat.record = report::read_run(folder.string(), out.warmup);
  repeat.outcome = report::Outcome::done;
  repeat.folder = ".";
  repeat.attempts = 1;
  repeat.wall = repeat.record->wall;
  report::Part part;
  part.name = part.title = "run";
  part.kind = report::PartKind::accuracy;
  part.points.push_back({.technique = "", .axes = {}, .fixed = {}, .repeats = {std::move(repeat)}});
  out.parts.push_back(std::move(part));
  estimate(out);
  if (out.running) out.remaining = report::kUnknown;
  return out;
}

ordered_json document_of(const report::Study& study, const std::string& folder,
                         const std::string& page) {
  static constexpr const char* outcomes[] = {"waiting", "running", "done", "failed"};
  ordered_json parts = ordered_json::array(), claims = ordered_json::array();
  std::map<std::string, int> counts = {
      {"waiting", 0}, {"running", 0}, {"done", 0}, {"failed", 0}, {"not run", 0}};
  for (const report::Part& part : study.parts) {
    ordered_json points = ordered_json::array();
    for (const report::Point& point : part.points) {
      ordered_json axes = ordered_json::object(), fixed = ordered_json::object(),
                   runs = ordered_json::array();
      for (const auto& [key, value] : point.axes) axes[key] = value;
      for (const auto& [key, value] : point.fixed) fixed[key] = value;
      for (const report::Repeat& r : point.repeats) {
        const bool not_run = !part.missing.empty() && r.outcome == report::Outcome::waiting;
        const char* outcome = not_run ? "not run" : outcomes[static_cast<int>(r.outcome)];
        ++counts[outcome];
        ordered_json run = {{"repeat", r.number},
                            {"outcome", outcome},
                            {"attempts", r.attempts},
                            {"folder", r.folder},
                            {"wall_s", number_json(r.wall)}};
        if (!r.reason.empty()) run["reason"] = r.reason;
        if (not_run) run["reason"] = part.missing;
        if (!r.command.empty()) run["command"] = r.command;
        if (r.record)
          run.update({{"images_per_s", number_json(r.record->images_per_s)},
                      {"epoch_s", number_json(r.record->epoch_seconds)},
                      {"latency_ms", number_json(r.record->latency_ms)},
                      {"loss", number_json(r.record->loss)},
                      {"test_loss", number_json(r.record->test_loss)},
                      {"test_top1", number_json(r.record->test_top1)}});
        runs.push_back(std::move(run));
      }
      points.push_back(
          {{"technique", point.technique}, {"axes", axes}, {"fixed", fixed}, {"runs", runs}});
    }
    parts.push_back({{"name", part.name},
                     {"kind", report::name(part.kind)},
                     {"verb", part.verb},
                     {"points", points}});
  }
  for (const report::ClaimResult& c : study.claims)
    claims.push_back({{"paper", c.paper},
                      {"says", c.says},
                      {"number", c.number},
                      {"verdict", c.verdict},
                      {"note", c.note}});
  ordered_json out = {{"name", study.name},
                      {"title", study.title},
                      {"folder", folder},
                      {"page", page},
                      {"done", counts["done"]},
                      {"failed", counts["failed"]},
                      {"waiting", counts["waiting"] + counts["running"]},
                      {"not_run", counts["not run"]},
                      {"elapsed_s", number_json(study.elapsed)}};
  out["verdict"] = report::verdict(study);
  out["claims"] = std::move(claims);
  out["parts"] = std::move(parts);
  return out;
}

}  // namespace tessera::study
