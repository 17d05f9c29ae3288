// `tessera report`: a page of a run, of a study, or of two of them side by side.
#include <fmt/format.h>

#include <filesystem>

#include "base/check.h"
#include "base/printable.h"
#include "report/compare.h"
#include "report/page.h"
#include "study/child.h"
#include "study/study.h"
#include "study/view.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;

report::Study load_any(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw Error(ErrorKind::usage, "there is no such folder", printable(folder));
  if (is_study(folder)) return load_study(folder);
  if (!fs::exists(fs::path(folder) / "metrics.jsonl", error))
    throw Error(ErrorKind::usage, "the folder holds neither a study (study.db) nor a run (metrics.jsonl)", printable(folder));
  return study_of_run(folder);
}

}  // namespace

int make_report(const ReportOptions& options) {
  if (options.folders.empty() || options.folders.size() > 2)
    throw Error(ErrorKind::usage, fmt::format("expected one folder, or two to compare, found {}", options.folders.size()),
                "tessera report");
  const std::string& first = options.folders.front();
  const std::string out = options.out.empty() ? first : options.out;
  if (options.watch && (options.folders.size() != 1 || !is_study(first)))
    throw Error(ErrorKind::usage, "--watch follows one study that runs", printable(first));
  std::error_code error;
  fs::create_directories(out, error);
  const StopRequests requests;
  for (;;) {
    const report::Study study = load_any(first);
    const std::string page = options.folders.size() == 2 ? report::write_comparison(study, load_any(options.folders[1]), out)
                                                         : report::write_page(study, out, first);
    const bool more = options.watch && study.running && requests.wait(2000) == 0;
    if (more) continue;
    if (options.json)
      fmt::print("{}\n", document_of(study, first, page).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    else
      fmt::print("{}\n", printable(page, 2000));
    return 0;
  }
}

}  // namespace tessera::study
