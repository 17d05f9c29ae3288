#include "page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/check.h"
#include "files/text.h"
#include "page/table.h"
#include "report/console.h"

namespace tessera::report {
namespace {

constexpr const char* page_footer = "<footer>Made by tessera report.";
constexpr std::size_t largest_page = std::size_t{1} << 30;

// What stands below the title: how much was run, in how long, and where it is.
void head(PageBuilder& page, const Study& study, const Tally& t) {
  page.html(
      fmt::format("<h1>{}</h1>\n", escape(study.title.empty() ? study.name : study.title, 300)));
  if (!study.what.empty()) page.paragraph(study.what, "lead");
  if (study.running) {
    std::string said = t.runs == 1
                           ? "Running"
                           : fmt::format("Running: {} of {} runs done", t.done + t.failed, t.runs);
    if (std::isfinite(study.remaining))
      said += fmt::format(", about {} to go", duration(study.remaining));
    page.paragraph(said + ". The page looks for news every three seconds.", "running");
  }
  page.html("<dl class=\"facts\">");
  const auto fact = [&](const char* name, const std::string& value) {
    page.html(fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, escape(value, 120)));
  };
  std::size_t points = 0;
  for (const Part& part : study.parts) points += part.points.size();
  if (t.runs > 1)
    fact("parts", std::to_string(study.parts.size())), fact("points", std::to_string(points));
  fact("runs", fmt::format("{} of {}", t.done, t.runs) +
                   (t.failed > 0 ? fmt::format(", {} failed", t.failed) : "") +
                   (t.not_run > 0 ? fmt::format(", {} not run", t.not_run) : ""));
  if (study.elapsed > 0) fact("measured in", duration(study.elapsed));
  const RunRecord* any = nullptr;
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const RunRecord* r : records_of(p))
        if (!any) any = r;
  const std::string commits = commits_of(study);
  if (any && any->env.is_object()) {
    const auto text = [&](const char* key) {
      return any->env.contains(key) && any->env[key].is_string() ? any->env[key].get<std::string>()
                                                                 : std::string();
    };
    if (!text("cpu").empty()) fact("machine", text("cpu"));
    const bool one = !text("commit").empty() && !is_mixed(commits);
    if (!text("tessera").empty())
      fact("tessera", text("tessera") + (one ? " (" + text("commit") + ")" : ""));
  }
  page.html("</dl>\n");
  if (is_mixed(commits))
    page.paragraph("Runs of different builds are mixed: " + commits + ". --fresh makes them anew.");
}

// Part by part, its title before its sentences; what is of the whole study follows.
void verdict_box(PageBuilder& page, const Study& study) {
  page.contents_.push_back({"verdict", "Verdict"});
  page.html("<section class=\"verdict\" id=\"verdict\">\n");
  std::vector<std::string> rest = verdict(study);
  for (const Part& part : study.parts) {
    const std::vector<std::string> own = verdict(part);
    if (own.empty()) continue;
    page.html("<p><strong>" + escape(part_title(part), 120) + "</strong> ");
    for (const std::string& s : own) page.html(escape(without_title(part, s)) + " ");
    page.html("</p>\n");
    for (const std::string& s : own)
      if (const auto found = std::find(rest.begin(), rest.end(), s); found != rest.end())
        rest.erase(found);
  }
  for (const std::string& s : rest) page.html("<p>" + escape(s) + "</p>\n");
  page.html("</section>\n");
}

}  // namespace

void PageBuilder::section(const std::string& id, const std::string& title,
                          const std::string& in_contents) {
  close_figures();
  // Ids are ours; two parts may have one name.
  std::string own = id;
  for (int i = 2;
       std::any_of(contents_.begin(), contents_.end(), [&](const Entry& e) { return e.id == own; });
       ++i)
    own = fmt::format("{}-{}", id, i);
  contents_.push_back({own, in_contents.empty() ? title : in_contents});
  body_ += fmt::format("<h2 id=\"{}\">{}</h2>\n", own, escape(title, 300));
}

void PageBuilder::paragraph(const std::string& text, const char* classes) {
  close_figures();
  body_ += *classes ? fmt::format("<p class=\"{}\">{}</p>\n", classes, escape(text))
                    : "<p>" + escape(text) + "</p>\n";
}

std::string PageBuilder::file_name(const std::string& name) {
  std::string own = name;
  for (int i = 2; std::any_of(figures_.begin(), figures_.end(),
                              [&](const auto& f) { return f.first == own + ".svg"; });
       ++i)
    own = fmt::format("{}-{}", name, i);
  return own + ".svg";
}

void PageBuilder::show(const std::string& name, const std::string& svg, const std::string& caption,
                       bool wide) {
  const std::string file = file_name(name);
  figures_.emplace_back(file, svg);
  body_ += fmt::format("<figure{} id=\"figure-{}\">{}{}{}", wide ? " class=\"wide\"" : "",
                       file.substr(0, file.size() - 4), wide ? "<div class=\"scroll\">" : "", svg,
                       wide ? "</div>" : "");
  body_ += caption.empty() ? "</figure>\n"
                           : "<figcaption>" + escape(caption) + "</figcaption></figure>\n";
}

void PageBuilder::figure(const std::string& name, const std::string& svg,
                         const std::string& caption) {
  if (!open_) body_ += "<div class=\"figures\">\n";
  open_ = true;
  show(name, svg, caption, false);
}

void PageBuilder::wide_figure(const std::string& name, const std::string& svg,
                              const std::string& caption) {
  close_figures();
  show(name, svg, caption, true);
}

void PageBuilder::close_figures() {
  if (open_) body_ += "</div>\n";
  open_ = false;
}

std::string commits_of(const Study& study) {
  std::vector<std::pair<std::string, int>> found;  // in the order of the study
  for (const Part& part : study.parts)
    for (const Point& p : part.points)
      for (const RunRecord* r : records_of(p)) {
        if (!r->env.is_object() || !r->env.contains("commit") || !r->env["commit"].is_string())
          continue;
        const std::string commit = r->env["commit"].get<std::string>();
        const auto known = std::find_if(found.begin(), found.end(),
                                        [&](const auto& f) { return f.first == commit; });
        ++(known != found.end() ? *known : found.emplace_back(commit, 0)).second;
      }
  if (found.empty()) return "";
  if (found.size() == 1) return "commit " + found.front().first;
  std::string out;
  for (const auto& [commit, runs] : found)
    out += fmt::format("{}{} ({} run{})", out.empty() ? "commits " : ", ", commit, runs,
                       runs == 1 ? "" : "s");
  return out;
}

std::set<std::string> files_of_page(const std::string& folder) {
  std::set<std::string> out;
  std::string page;
  try {
    page = files::read_text(std::filesystem::path(folder) / "report.html", largest_page);
  } catch (const Error&) {
    return out;
  }
  if (page.find(page_footer) == page.npos) return out;  // somebody else's
  // As data_section() writes them; what comes from outside is escaped and has no quotes.
  for (const auto& [before, in] : {std::pair<std::string, std::string>(" download=\"", "data/"),
                                   {" href=\"figures/", "figures/"}})
    for (auto at = page.find(before); at != page.npos; at = page.find(before, at + 1)) {
      const std::string name =
          page.substr(at + before.size(), page.find('"', at + before.size()) - at - before.size());
      if ((name.ends_with(".csv") || name.ends_with(".svg")) && name.find('/') == name.npos)
        out.insert(in + name);
    }
  return out;
}

std::string write_page(const Study& study, const std::string& folder, const std::string& runs_at) {
  PageBuilder page;
  head(page, study, tally(study));
  verdict_box(page, study);
  for (const Part& part : study.parts) part_section(page, part);
  timeline_section(page, study, runs_at.empty() ? folder : runs_at);
  claims_section(page, study);
  method_section(page, study);
  machine_section(page, study);
  failures_section(page, study);
  const std::vector<std::pair<std::string, std::string>> csvs = csv_files(study);
  data_section(page, csvs);
  page.close_figures();
  page.html(std::string(page_footer) +
            " Figures are in figures/, all numbers in data/.</footer>\n");
  const std::filesystem::path out = folder;
  std::set<std::string> old = files_of_page(folder);
  const auto write_beside = [&](const std::string& name, const std::string& text) {
    write_whole((out / name).string(), text);
    old.erase(name);
  };
  for (const auto& [name, svg] : page.figures_) write_beside("figures/" + name, svg);
  for (const auto& [name, csv] : csvs) write_beside("data/" + name, csv);
  std::error_code ignored;
  for (const std::string& name : old) std::filesystem::remove(out / name, ignored);
  const std::string path = (out / "report.html").string();
  write_whole(path, document({study.title.empty() ? study.name : study.title, study.running,
                              page.contents_},
                             page.body_));
  return path;
}

}  // namespace tessera::report
