// `tessera report`: a page of a run or of a study, of two studies, or of any number of runs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/printable.h"
#include "base/say.h"
#include "files/look.h"
#include "page/compare.h"
#include "page/compare_runs.h"
#include "page/page.h"
#include "report/console.h"
#include "report/document.h"
#include "study/child.h"
#include "study/claims.h"
#include "study/study.h"
#include "study/view.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;

constexpr const char* what_folders_hold =
    "`tessera study` makes runs/study-NAME (or --out DIR) with study.db, `tessera train` a folder "
    "with metrics.jsonl";

void make_folder_of(const std::string& page) {
  std::error_code error;
  fs::create_directories(page, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the page's folder: " + error.message(),
                printable(page));
}

report::PageFormat format_of(const ReportOptions& options) {
  return options.format == "md" ? report::PageFormat::markdown : report::PageFormat::html;
}

// `follow`: a run counts as running until its summary.json is there, as a study does while its
// folder is held.
report::Study load_any(const std::string& folder, bool follow = false) {
  std::error_code error;
  if (!files::is_there(folder, ErrorKind::usage) || !fs::is_directory(folder, error))
    throw Error(ErrorKind::usage, "there is no such folder", printable(folder), what_folders_hold);
  if (is_study(folder)) return load_study(folder);
  if (!files::is_there(fs::path(folder) / "metrics.jsonl", ErrorKind::usage))
    throw Error(ErrorKind::usage,
                "the folder holds neither a study (study.db) nor a run (metrics.jsonl)",
                printable(folder), what_folders_hold);
  return study_of_run(folder, follow);
}

bool is_one_run(const report::Study& s) {
  return s.parts.size() == 1 && report::is_one_run(s.parts[0]) &&
         !report::records_of(s.parts[0].points.front()).empty();
}

int compare(const ReportOptions& options, const std::string& out) {
  std::vector<report::Study> all;
  for (const std::string& folder : options.folders) all.push_back(load_any(folder));
  const bool runs = std::all_of(all.begin(), all.end(), is_one_run);
  if (!runs && (all.size() > 2 || options.format == "md"))
    throw Error(ErrorKind::usage,
                fmt::format("expected folders of runs, found a study among {}", all.size()),
                "tessera report",
                "more than two folders, and --format md of several, are for runs; two studies are "
                "compared as a page");
  make_folder_of(out);
  const std::string page = runs ? report::write_runs_beside(all, out, format_of(options))
                                : report::write_comparison(all[0], all[1], out);
  const std::vector<std::string> lines =
      all.size() == 2 ? report::comparison(all[0], all[1]) : report::runs_beside(all);
  if (options.json) {
    nlohmann::ordered_json document = {{"page", page}, {"lines", lines}};
    if (all.size() == 2)
      document.update({{"a", options.folders[0]}, {"b", options.folders[1]}});
    else
      document["runs"] = options.folders;
    report::print_document(document);
    return 0;
  }
  for (const std::string& line : lines) report::say_sentence("{}\n", printable(line, 2000));
  say(stdout, "{}\n", printable(page, 2000));
  return 0;
}

}  // namespace

int make_report(const ReportOptions& options) {
  if (options.folders.empty())
    throw Error(ErrorKind::usage, "expected the folder of a run or a study, found none",
                "tessera report");
  const std::string& first = options.folders.front();
  const std::string out = options.out.empty() ? first : options.out;
  if (options.watch && options.folders.size() != 1)
    throw Error(
        ErrorKind::usage,
        fmt::format("--watch follows one study or run, found {} folders", options.folders.size()),
        "tessera report", "leave --watch out, or give one of them");
  if (options.folders.size() > 1) return compare(options, out);
  const StopRequests requests;
  for (;;) {
    const report::Study study = load_any(first, options.watch);
    make_folder_of(out);
    write_claims(study, out);
    const std::string page = report::write_page(study, out, first, format_of(options));
    const bool more = options.watch && study.running && requests.wait(2000) == 0;
    if (more) continue;
    if (options.json)
      report::print_document(document_of(study, first, page));
    else
      say(stdout, "{}\n", printable(page, 2000));
    return 0;
  }
}

}  // namespace tessera::study
