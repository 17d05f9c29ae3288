// `tessera report`: a page of a run, of a study, or of two of them side by side.
#include <fmt/format.h>

#include <filesystem>

#include "base/check.h"
#include "base/printable.h"
#include "base/say.h"
#include "page/compare.h"
#include "page/page.h"
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

// `follow`: a run counts as running until its summary.json is there, as a study does while its
// folder is held.
report::Study load_any(const std::string& folder, bool follow = false) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw Error(ErrorKind::usage, "there is no such folder", printable(folder), what_folders_hold);
  if (is_study(folder)) return load_study(folder);
  if (!fs::exists(fs::path(folder) / "metrics.jsonl", error))
    throw Error(ErrorKind::usage,
                "the folder holds neither a study (study.db) nor a run (metrics.jsonl)",
                printable(folder), what_folders_hold);
  return study_of_run(folder, follow);
}

int compare(const report::Study& a, const ReportOptions& options, const std::string& out) {
  const report::Study b = load_any(options.folders[1]);
  make_folder_of(out);
  const std::string page = report::write_comparison(a, b, out);
  const std::vector<std::string> lines = report::comparison(a, b);
  if (options.json) {
    const nlohmann::ordered_json document = {
        {"a", options.folders[0]}, {"b", options.folders[1]}, {"page", page}, {"lines", lines}};
    report::print_document(document);
    return 0;
  }
  for (const std::string& line : lines) say(stdout, "{}\n", printable(line, 2000));
  say(stdout, "{}\n", printable(page, 2000));
  return 0;
}

}  // namespace

int make_report(const ReportOptions& options) {
  if (options.folders.empty() || options.folders.size() > 2)
    throw Error(
        ErrorKind::usage,
        fmt::format("expected one folder, or two to compare, found {}", options.folders.size()),
        "tessera report");
  const std::string& first = options.folders.front();
  const std::string out = options.out.empty() ? first : options.out;
  if (options.watch && options.folders.size() != 1)
    throw Error(ErrorKind::usage, "--watch follows one study or run, found two folders",
                "tessera report", "leave --watch out, or give one of them");
  const StopRequests requests;
  for (;;) {
    const report::Study study = load_any(first, options.watch);
    if (options.folders.size() == 2) return compare(study, options, out);
    make_folder_of(out);
    write_claims(study, out);
    const std::string page = report::write_page(study, out, first);
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
