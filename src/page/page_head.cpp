// The head of a page: what was trained on what, how often and when, and the verdict in tiles.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/page.h"
#include "report/console.h"

namespace tessera::report {
namespace {

constexpr std::size_t most_values = 4;

std::vector<const RunRecord*> all_records(const Study& study) {
  std::vector<const RunRecord*> out;
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const RunRecord* r : records_of(p)) out.push_back(r);
  return out;
}

// The distinct values of all runs in their order: "16, 64"; "" where none has one.
template <class Value>
std::string values_of(const std::vector<const RunRecord*>& runs, const Value& value) {
  std::vector<std::string> found;
  for (const RunRecord* r : runs)
    if (const std::string v = value(*r);
        !v.empty() && std::find(found.begin(), found.end(), v) == found.end())
      found.push_back(v);
  std::string out;
  for (std::size_t i = 0; i < std::min(found.size(), most_values); ++i)
    out += (i > 0 ? ", " : "") + found[i];
  return found.size() > most_values ? fmt::format("{} and {} more", out, found.size() - most_values)
                                    : out;
}

std::string setting(const RunRecord& r, const char* key) {
  for (const auto& [name, value] : r.settings)
    if (name == key) return value;
  return "";
}

std::string env_text(const RunRecord& r, const char* key) {
  return r.env.is_object() && r.env.contains(key) && r.env[key].is_string()
             ? r.env[key].get<std::string>()
             : std::string();
}

// The first and the last day of the runs: "2026-11-16", "2026-11-15 to 2026-11-16".
std::string dates(const std::vector<const RunRecord*>& runs) {
  std::string first, last;
  for (const RunRecord* r : runs) {
    const std::string day = r->date.substr(0, 10);
    if (day.empty()) continue;
    if (first.empty() || day < first) first = day;
    last = std::max(last, day);
  }
  return first == last ? first : first + " to " + last;
}

std::string machine_of(const RunRecord& r) {
  const std::string card = env_text(r, "card");
  return card.empty() ? env_text(r, "cpu") : card;
}

}  // namespace

void head_section(PageBuilder& page, const Study& study) {
  const Tally t = tally(study);
  const std::string title = study.title.empty() ? study.name : study.title;
  page.html(fmt::format("<h1>{}</h1>\n", escape(title, 300)));
  page.markdown_ += "# " + markdown_text(shorten(title, 300)) + "\n\n";
  if (!study.what.empty()) page.paragraph(study.what, "lead");
  if (study.running) {
    std::string said = t.runs == 1
                           ? "Running"
                           : fmt::format("Running: {} of {} runs done", t.done + t.failed, t.runs);
    if (std::isfinite(study.remaining))
      said += fmt::format(", about {} to go", duration(study.remaining));
    page.paragraph(said + ". The page looks for news every three seconds.", "running");
  }
  const std::vector<const RunRecord*> runs = all_records(study);
  std::vector<std::pair<std::string, std::string>> facts;
  const auto fact = [&](const char* name, const std::string& value) {
    if (!value.empty()) facts.emplace_back(name, value);
  };
  const auto count = [](std::int64_t n) { return n > 0 ? with_commas(n) : std::string(); };
  fact("model", values_of(runs, [](const RunRecord& r) { return r.model; }));
  fact("parameters",
       values_of(runs, [](const RunRecord& r) { return r.params > 0 ? millions(r.params) : ""; }));
  fact("data", values_of(runs, [](const RunRecord& r) { return r.data; }));
  fact("batch", values_of(runs, [&](const RunRecord& r) { return count(r.global_batch); }));
  fact("learning rate", values_of(runs, [](const RunRecord& r) { return setting(r, "optim.lr"); }));
  fact("dtype", values_of(runs, [](const RunRecord& r) { return r.dtype; }));
  fact(t.runs > 1 ? "layouts" : "layout",
       values_of(runs, [](const RunRecord& r) { return r.layout; }));
  fact(t.runs > 1 ? "seeds" : "seed",
       values_of(runs, [](const RunRecord& r) { return std::to_string(r.seed); }));
  if (t.runs > 1) fact("repeats", std::to_string(t.most_repeats));
  fact("runs", fmt::format("{} of {}", t.done, t.runs) +
                   (t.failed > 0 ? fmt::format(", {} failed", t.failed) : "") +
                   (t.not_run > 0 ? fmt::format(", {} not run", t.not_run) : ""));
  if (study.elapsed > 0) fact("measured in", duration(study.elapsed));
  fact("date", dates(runs));
  fact("machine", values_of(runs, machine_of));
  const std::string commits = commits_of(study);
  fact("tessera", values_of(runs, [](const RunRecord& r) { return env_text(r, "tessera"); }) +
                      (commits.empty() || is_mixed(commits) ? "" : " (" + commits.substr(7) + ")"));
  page.facts(facts);
  if (!study.command.empty()) page.code(study.command);
  if (is_mixed(commits))
    page.paragraph("Runs of different builds are mixed: " + commits + ". --fresh makes them anew.");
}

// Sentences of a part stand in its own section; here is what is of the whole study.
void verdict_section(PageBuilder& page, const Study& study) {
  page.contents_.push_back({"verdict", "Verdict"});
  page.html("<section class=\"verdict\" id=\"verdict\">\n");
  page.tiles(tiles(study));
  std::vector<std::string> rest = verdict(study);
  for (const Part& part : study.parts)
    for (const std::string& s : verdict(part))
      if (const auto found = std::find(rest.begin(), rest.end(), s); found != rest.end())
        rest.erase(found);
  for (const std::string& s : rest) page.paragraph(s);
  page.html("</section>\n");
}

}  // namespace tessera::report
