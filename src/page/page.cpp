#include "page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "files/text.h"
#include "page/table.h"

namespace tessera::report {
namespace {

constexpr const char* page_footer = "<footer>Made by tessera report.";
constexpr std::size_t largest_page = std::size_t{1} << 30;

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
  section_ = title;
  body_ += fmt::format("<h2 id=\"{}\">{}</h2>\n", own, escape(title, 300));
  markdown_ += "\n## " + markdown_text(shorten(title, 300)) + "\n\n";
}

void PageBuilder::paragraph(const std::string& text, const char* classes) {
  close_figures();
  body_ += *classes ? fmt::format("<p class=\"{}\">{}</p>\n", classes, escape(text))
                    : "<p>" + escape(text) + "</p>\n";
  markdown_ += markdown_text(text) + "\n\n";
}

void PageBuilder::list(const std::vector<std::string>& sentences) {
  close_figures();
  if (sentences.empty()) return;
  body_ += "<ul>";
  for (const std::string& s : sentences) {
    body_ += "<li>" + escape(s) + "</li>\n";
    markdown_ += "- " + markdown_text(s) + "\n";
  }
  body_ += "</ul>\n";
  markdown_ += "\n";
}

void PageBuilder::facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  close_figures();
  body_ += "<dl class=\"facts\">";
  std::string names = "|", rule = "|", values = "|";
  for (const auto& [name, value] : facts) {
    body_ += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value, 120));
    names += " " + markdown_text(name) + " |";
    rule += "---|";
    values += " " + markdown_text(shorten(value, 120)) + " |";
  }
  body_ += "</dl>\n";
  markdown_ += names + "\n" + rule + "\n" + values + "\n\n";
}

void PageBuilder::tiles(const std::vector<Tile>& tiles) {
  if (tiles.empty()) return;
  body_ += "<ul class=\"tiles\">";
  markdown_ += "| | | |\n|---|---|---|\n";
  for (const Tile& t : tiles) {
    body_ += fmt::format(
        "<li><span class=\"label\">{}</span><strong>{}</strong><span class=\"what\">{}</span>"
        "</li>\n",
        escape(t.label), escape(t.value, 60), escape(t.what, 300));
    markdown_ += fmt::format("| {} | **{}** | {} |\n", markdown_text(t.label),
                             markdown_text(t.value), markdown_text(shorten(t.what, 300)));
  }
  body_ += "</ul>\n";
  markdown_ += "\n";
}

void PageBuilder::table(const Table& table, const std::string& folded) {
  close_figures();
  const std::string html = html_table(table), text = markdown_table(table);
  if (folded.empty()) {
    body_ += html;
    markdown_ += text + "\n";
    return;
  }
  body_ += "<details class=\"printed\"><summary>" + escape(folded) + "</summary>" + html +
           "</details>\n";
  markdown_ += "<details><summary>" + escape(folded) + "</summary>\n\n" + text + "\n</details>\n\n";
}

void PageBuilder::code(const std::string& text, const std::string& folded) {
  close_figures();
  const std::string pre = "<pre>" + escape(text, 1 << 20) + "</pre>";
  body_ += folded.empty()
               ? pre + "\n"
               : "<details><summary>" + escape(folded) + "</summary>" + pre + "</details>\n";
  if (folded.empty()) markdown_ += pre + "\n\n";
}

std::string PageBuilder::file_name(const std::string& name) {
  std::string own = name;
  for (int i = 2; std::any_of(figures_.begin(), figures_.end(),
                              [&](const auto& f) { return f.first == own + ".svg"; });
       ++i)
    own = fmt::format("{}-{}", name, i);
  return own + ".svg";
}

// A figure's own title, as it stands in the picture: already escaped.
static std::string title_in(const std::string& svg) {
  const std::size_t from = svg.find("<title>"), to = svg.find("</title>");
  return from == svg.npos || to == svg.npos ? "" : svg.substr(from + 7, to - from - 7);
}

void PageBuilder::show(const std::string& name, const std::string& svg, const std::string& caption,
                       bool wide) {
  const std::string file = file_name(name);
  figures_.emplace_back(file, svg);
  body_ += fmt::format("<figure{} id=\"figure-{}\">{}{}{}", wide ? " class=\"wide\"" : "",
                       file.substr(0, file.size() - 4), wide ? "<div class=\"scroll\">" : "", svg,
                       wide ? "</div>" : "");
  const std::string number = fmt::format("Figure {}.", figures_.size());
  std::string title = title_in(svg);
  if (!section_.empty()) title = escape(section_, 120) + (title.empty() ? "" : ": ") + title;
  body_ += fmt::format("<figcaption><strong>{}</strong> {}. {}</figcaption></figure>\n", number,
                       title, escape(caption));
  std::string plain;  // escaped already; what Markdown would take for marks is not
  for (const char c : title) {
    if (std::string_view("\\`*_[]|~").find(c) != std::string_view::npos) plain += '\\';
    plain += c;
  }
  markdown_ += fmt::format("![{0} {1}](figures/{2})\n\n**{0}** {1}. {3}\n\n", number, plain, file,
                           markdown_text(caption));
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

std::set<std::string> files_of_page(const std::string& folder, const std::string& name) {
  std::set<std::string> out;
  std::string page;
  try {
    page = files::read_text(std::filesystem::path(folder) / (name + ".html"), largest_page);
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

std::string write_page(const Study& study, const std::string& folder, const std::string& runs_at,
                       PageFormat format) {
  PageBuilder page;
  head_section(page, study);
  verdict_section(page, study);
  if (study.parts.size() == 1 && is_one_run(study.parts[0]))
    run_sections(page, study, runs_at.empty() ? folder : runs_at);
  else
    for (const Part& part : study.parts) part_section(page, part);
  timeline_section(page, study, runs_at.empty() ? folder : runs_at);
  claims_section(page, study);
  method_section(page, study);
  machine_section(page, study);
  failures_section(page, study);
  const std::vector<std::pair<std::string, std::string>> csvs = csv_files(study);
  data_section(page, csvs);
  return finish_page(page, csvs,
                     {study.title.empty() ? study.name : study.title, study.running, {}}, folder,
                     "report", format);
}

std::string finish_page(PageBuilder& page,
                        const std::vector<std::pair<std::string, std::string>>& csvs, Shell shell,
                        const std::string& folder, const std::string& name, PageFormat format) {
  page.close_figures();
  page.html(std::string(page_footer) +
            " Figures are in figures/, all numbers in data/.</footer>\n");
  const std::filesystem::path out = folder;
  std::set<std::string> old = files_of_page(folder, name);
  const auto write_beside = [&](const std::string& file, const std::string& text) {
    write_whole((out / file).string(), text);
    old.erase(file);
  };
  for (const auto& [file, svg] : page.figures_) write_beside("figures/" + file, svg);
  for (const auto& [file, csv] : csvs) write_beside("data/" + file, csv);
  if (format == PageFormat::markdown) {
    std::string path = (out / (name + ".md")).string();
    write_whole(path, page.markdown_);
    return path;
  }
  std::error_code ignored;
  for (const std::string& file : old) std::filesystem::remove(out / file, ignored);
  std::string path = (out / (name + ".html")).string();
  shell.contents = page.contents_;
  write_whole(path, document(shell, page.body_));
  return path;
}

}  // namespace tessera::report
