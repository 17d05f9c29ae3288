// The page's parts about the whole study: claims, how it was measured, on what machine, what
// failed, and all data.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "page/figures/figure.h"
#include "page/page.h"
#include "page/table.h"

namespace tessera::report {
namespace {

constexpr std::size_t most_inline = 1 << 20;  // bytes of a CSV that the page carries itself

// A value of env.json in words; objects one level deep.
std::string env_words(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return three(value.get<double>());
  if (!value.is_object())
    return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::string out;
  for (const auto& [key, inner] : value.items())
    out += (out.empty() ? "" : ", ") + key + ": " +
           (inner.is_object() || inner.is_array() ? std::string("…") : env_words(inner));
  return out;
}

const RunRecord* largest_run(const Study& study) {
  const RunRecord* out = nullptr;
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const RunRecord* r : records_of(p))
        if (!r->by_rank.empty() && (!out || r->by_rank.size() > out->by_rank.size())) out = r;
  return out;
}

bool has_pipeline(const Study& study) {
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const RunRecord* r : records_of(p))
        if (std::isfinite(r->bubble)) return true;
  return false;
}

}  // namespace

void claims_section(PageBuilder& page, const Study& study) {
  if (study.claims.empty()) return;
  page.section("claims", "Claims");
  Table t{{{"paper", true}, {"what it says", true}, {"here"}, {"verdict", true}, {"note", true}},
          {},
          ""};
  for (const ClaimResult& c : study.claims)
    t.rows.push_back({{c.paper},
                      {c.says, c.command},
                      {c.number},
                      {c.verdict, "",
                       c.verdict == "holds"           ? "good"
                       : c.verdict == "does not hold" ? "bad"
                       : c.verdict == "no number"     ? "bad"
                                                      : ""},
                      {c.note}});
  page.table(t);
}

void method_section(PageBuilder& page, const Study& study) {
  page.section("method", "How it was measured", "Method");
  const Tally t = tally(study);
  const std::string warm = fmt::format(
      "The first {} step{} of a run count{} for no speed where there are others (the verdict says "
      "where there are none), and of several "
      "epochs the first one does not.",
      study.warmup, study.warmup == 1 ? "" : "s", study.warmup == 1 ? "s" : "");
  page.paragraph(t.runs == 1 ? "One run. The time of a step is the median over its steps. " + warm
                             : fmt::format("Every point was run up to {} time{}; repeats take "
                                           "turns, so that a machine that slows down "
                                           "slows all points alike, and each has a seed of its "
                                           "own. A number is the median over repeats, "
                                           "and the spread reaches from the least to the greatest; "
                                           "two numbers are called different only "
                                           "where their spreads do not meet. {}",
                                           std::max(1, t.most_repeats),
                                           t.most_repeats == 1 ? "" : "s", warm));
  page.paragraph(
      "The time of a step is compute + exposed communication + waiting for others + data + host, "
      "measured on the first, the third and "
      "every tenth step on every rank; the first and those of the warm-up do not count where there "
      "are others. Exposed: the rank handed a "
      "message over or waited for one that all had handed over. Wait: some rank had not. Hidden: a "
      "message was under way while the rank "
      "computed. Memory is the peak of the rank that holds the most; bytes sent are what a rank "
      "hands to communication in a step.");
  if (has_pipeline(study))
    page.paragraph(
        "Bubble: from the first turn of all ranks of a pipeline to the last, the share of that "
        "time "
        "in which a rank has no turn, the mean over ranks.");
  std::string commands;
  std::size_t count = 0;
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const Repeat& r : p.repeats)
        if (!r.command.empty() && ++count <= 2000) commands += r.command + "\n";
  if (count > 0)
    page.code(commands,
              fmt::format("The exact commands of {} run{}{}", count, count == 1 ? "" : "s",
                          count > 2000 ? " (the first 2,000)" : ""));
}

void machine_section(PageBuilder& page, const Study& study) {
  page.section("machine", "Machine");
  // Runs of one study may come from several machines: a table each, the same ones once.
  std::map<std::string, std::pair<const RunRecord*, int>> machines;
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const RunRecord* r : records_of(p)) {
        if (!r->env.is_object() || r->env.empty()) continue;
        nlohmann::ordered_json key = r->env;
        for (const char* differs : {"threads", "peak_gflops", "ranks_talk", "segments"})
          key.erase(differs);
        auto& entry =
            machines[key.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)];
        if (!entry.first) entry.first = r;
        ++entry.second;
      }
  if (machines.empty()) page.paragraph("No run recorded its machine.", "soft");
  if (const RunRecord* r = largest_run(study)) {
    std::vector<TopologyRank> ranks;
    for (const RankRecord& k : r->by_rank) {
      const double step = step_of(k.breakdown);
      ranks.push_back({.host = k.host,
                       .device = k.device,
                       .threads = r->threads,
                       .share = step > 0 ? k.breakdown.compute / step : kUnknown});
    }
    const int cores =
        r->env.is_object() && r->env.contains("cores") && r->env["cores"].is_number_integer()
            ? static_cast<int>(
                  std::clamp<std::int64_t>(r->env["cores"].get<std::int64_t>(), 0, 1 << 20))
            : 0;
    page.wide_figure(
        "topology",
        topology_figure(fmt::format("Hosts, devices and ranks of the largest run: {}", r->layout),
                        ranks, cores),
        "A bar shows which share of its step a rank computes.");
  }
  std::size_t shown = 0;
  for (const auto& [key, entry] : machines) {
    if (++shown > 8) break;
    Table t{{{"", true}, {"", true}},
            {},
            fmt::format("env.json of {} run{}", entry.second, entry.second == 1 ? "" : "s")};
    for (const auto& [name, value] : entry.first->env.items())
      if (name != "segments") t.rows.push_back({{name}, {env_words(value)}});
    page.table(t);
  }
  if (machines.size() > 8)
    page.paragraph(fmt::format("And {} more machines or versions.", machines.size() - 8), "soft");
}

void failures_section(PageBuilder& page, const Study& study) {
  Table t{{{"part", true}, {"point", true}, {"repeat"}, {"attempts"}, {"why", true}}, {}, ""};
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const Repeat& r : p.repeats)
        if (r.outcome == Outcome::failed)
          t.rows.push_back({{part.name},
                            {point_name(part, p)},
                            {std::to_string(r.number + 1)},
                            {std::to_string(r.attempts)},
                            {r.reason.empty() ? "no reason recorded" : r.reason, r.command}});
  if (t.rows.empty()) return;
  page.section("failures", "Failed runs", "Failures");
  page.paragraph("They are in no number of this page.");
  page.table(t);
}

void data_section(PageBuilder& page, const std::vector<std::pair<std::string, std::string>>& csvs) {
  page.section("data", "All data", "Data");
  page.html("<ul>");
  for (const auto& [name, csv] : csvs) {
    const auto rows = static_cast<std::int64_t>(std::count(csv.begin(), csv.end(), '\n')) - 1;
    const std::string href = csv.size() <= most_inline
                                 ? "data:text/csv;charset=utf-8;base64," + base64(csv)
                                 : "data/" + name;
    page.html(
        fmt::format("<li><a download=\"{0}\" href=\"{1}\">{0}</a> <span class=\"soft\">{2} "
                    "row{3}</span></li>\n",
                    name, href, rows, rows == 1 ? "" : "s"));
  }
  page.html("</ul>\n");
  for (const auto& [name, csv] : csvs) page.markdown_ += fmt::format("- [{0}](data/{0})\n", name);
  if (!page.figures_.empty()) {
    page.paragraph("Figures as files of their own, for papers:");
    page.html("<details><summary>" + std::to_string(page.figures_.size()) +
              " figures</summary><ul>");
    for (const auto& [name, svg] : page.figures_)
      page.html(fmt::format("<li><a href=\"figures/{0}\">{0}</a></li>\n", name));
    page.html("</ul></details>\n");
  }
}

}  // namespace tessera::report
