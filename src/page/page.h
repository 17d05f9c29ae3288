// The page of a study: its verdict, then part by part figures and tables, claims, how it was
// measured, on what, what failed, all data. Convention: report.html needs no other file and no
// script; figures/*.svg and data/*.csv beside it hold the same for papers and spreadsheets. Every
// file appears whole or not at all; those that the last page in the folder lists, and this one has
// no more, go.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "page/table.h"
#include "page/tiles.h"
#include "page/verdict.h"
#include "report/html.h"

namespace tessera::report {

enum class PageFormat : std::uint8_t { html, markdown };
// Writes report.html (or report.md), figures/*.svg, data/*.csv into folder. Returns the path of the
// page. runs_at: where Repeat::folder is relative to; "" = folder.
std::string write_page(const Study& study, const std::string& folder,
                       const std::string& runs_at = "", PageFormat format = PageFormat::html);
// The files that the page in the folder lists as written beside it, "data/runs.csv",
// "figures/strong-time.svg"; empty where there is none of ours.
std::set<std::string> files_of_page(const std::string& folder, const std::string& name = "report");

// "commit 0e50cb7f0cad", or "commits 0e50cb7f0cad (3 runs), 9bc511100000 (1 run)"; "": no run
// recorded one.
std::string commits_of(const Study& study);
inline bool is_mixed(const std::string& commits) { return commits.starts_with("commits "); }

// ---- what pages are put together from

// Every call adds the same to the page and to its Markdown twin.
class PageBuilder {
 public:
  void section(const std::string& id, const std::string& title,
               const std::string& in_contents = "");
  void html(const std::string& text) { body_ += text; }               // on the page alone
  void paragraph(const std::string& text, const char* classes = "");  // plain text
  void list(const std::vector<std::string>& sentences);
  void facts(const std::vector<std::pair<std::string, std::string>>& facts);
  void tiles(const std::vector<Tile>& tiles);
  // `folded`: what is shown until it is opened; "": it is open.
  void table(const Table& table, const std::string& folded = "");
  void code(const std::string& text, const std::string& folded = "");
  // Figures that follow each other stand beside each other and are numbered; `name`: of its file.
  void figure(const std::string& name, const std::string& svg, const std::string& caption);
  void wide_figure(const std::string& name, const std::string& svg, const std::string& caption);
  void close_figures();

  std::string body_, markdown_;
  std::vector<Entry> contents_;
  std::vector<std::pair<std::string, std::string>> figures_;  // file name, SVG

 private:
  std::string file_name(const std::string& name);
  void show(const std::string& name, const std::string& svg, const std::string& caption, bool wide);
  std::string section_;
  bool open_ = false;
};

// The title, what was trained on what, and the tiles with what is of the whole study.
void head_section(PageBuilder& page, const Study& study);
void verdict_section(PageBuilder& page, const Study& study);

// Writes the page NAME.html or NAME.md with its figures and data, and returns its path.
std::string finish_page(PageBuilder& page,
                        const std::vector<std::pair<std::string, std::string>>& csvs, Shell shell,
                        const std::string& folder, const std::string& name, PageFormat format);

void part_section(PageBuilder& page, const Part& part);
// Figures of each kind; part_section calls the one that fits.
void scaling_figures(PageBuilder& page, const Part& part);
void batch_figures(PageBuilder& page, const Part& part);
void technique_figures(PageBuilder& page, const Part& part);
void accuracy_figures(PageBuilder& page, const Part& part);
void layers_figures(PageBuilder& page, const Part& part);
// " 3 more points are in data/runs.csv.", for the caption of what shows only the first of them; ""
// where it shows all.
std::string more_points(std::size_t left_out, const char* file = "data/runs.csv");
// Shared by several kinds.
void breakdown_figure(PageBuilder& page, const Part& part);
void memory_figure(PageBuilder& page, const Part& part);
void curve_figures(PageBuilder& page, const Part& part);
// |loss - the first's| step by step, where points do the same work.
void loss_difference_figure(PageBuilder& page, const Part& part);

// Sections of a single run's page: its curves, classes, sample predictions, configuration and how
// to repeat it.
void run_sections(PageBuilder& page, const Study& study, const std::string& runs_at);

// Sections that belong to no single part.
void timeline_section(PageBuilder& page, const Study& study, const std::string& runs_at);
void claims_section(PageBuilder& page, const Study& study);
void method_section(PageBuilder& page, const Study& study);
void machine_section(PageBuilder& page, const Study& study);
void failures_section(PageBuilder& page, const Study& study);
void data_section(PageBuilder& page, const std::vector<std::pair<std::string, std::string>>& csvs);

}  // namespace tessera::report
