#include "study/folder.h"

#include <chrono>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"
#include "files/look.h"
#include "study/child.h"
#include "study/view.h"

namespace tessera::study {
namespace {

namespace fs = std::filesystem;

constexpr const char* written[] = {"study.db-journal", "runs",    "report.html",
                                   "claims.md",        "figures", "data"};

void end_if_running(const RunRow& row, const fs::path& folder, double grace) {
  if (row.status == Status::running && row.machine == machine_name())
    end_session(row.pid, row.pid_started, folder, grace);
}

void end_what_runs(const fs::path& folder, double grace) {
  try {
    for (const auto& [identity, row] : State(folder).all()) end_if_running(row, folder, grace);
  } catch (const Error&) {  // a damaged database is what --fresh is for
  }
}

// A rank of an earlier try that is still ending may write there for a moment.
void remove_or_fail(const fs::path& path) {
  constexpr int tries = 10;
  std::error_code error;
  for (int i = 0; i < tries; ++i) {
    fs::remove_all(path, error);
    if (error != std::errc::directory_not_empty && error != std::errc::device_or_resource_busy)
      break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  if (error)
    throw Error(ErrorKind::disk, "cannot be removed: " + error.message(), path.string(),
                "remove it, or choose another folder with --out");
}

// As study/grid.h names them: [POINT-]rN-IDENTITY, where N is a number and IDENTITY 16 hexadecimal
// digits.
bool is_run_folder(std::string_view name) {
  const auto last_word = [&name] {
    const std::size_t dash = name.rfind('-');
    const std::string_view word = dash == name.npos ? name : name.substr(dash + 1);
    name = dash == name.npos ? std::string_view() : name.substr(0, dash);
    return word;
  };
  const std::string_view identity = last_word(), round = last_word();
  return identity.size() == 16 && identity.find_first_not_of("0123456789abcdef") == identity.npos &&
         round.size() > 1 && round[0] == 'r' &&
         round.find_first_not_of("0123456789", 1) == round.npos;
}

// A folder may hold more than the study's own; what is left empty goes.
void remove_runs(const fs::path& part) {
  std::error_code not_empty;
  const fs::file_status found = fs::status(part, not_empty);
  if (fs::status_known(found) && !fs::is_directory(found)) return;
  for (const fs::path& run : files::entries_of(part))
    if (is_run_folder(run.filename().string())) remove_or_fail(run);
  fs::remove(part, not_empty);
}

void remove_own(const fs::path& folder) {
  std::error_code not_empty;
  const auto inside = [&](const char* name) {  // a file of that name is not the study's
    return fs::is_regular_file(folder / name, not_empty) ? std::vector<fs::path>()
                                                         : files::entries_of(folder / name);
  };
  for (const fs::path& part : inside("runs")) remove_runs(part);
  for (const fs::path& figure : inside("figures"))
    if (figure.extension() == ".svg") remove_or_fail(figure);
  for (const char* table : {"runs", "epochs", "losses", "ranks", "parts", "claims"})
    remove_or_fail(folder / "data" / (std::string(table) + ".csv"));
  for (const char* name : {"runs", "figures", "data"}) fs::remove(folder / name, not_empty);
  for (const char* name : {"report.html", "claims.md", "study.db-journal", "study.db"})
    remove_or_fail(folder / name);
}

}  // namespace

void make_study_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the study's folder: " + error.message(),
                folder.string(), "choose another folder with --out");
}

void make_run_folder(const fs::path& folder) {
  remove_or_fail(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the run's folder: " + error.message(),
                folder.string(), "free some space, or choose another folder with --out");
}

void check_forgettable(const fs::path& folder) {
  if (is_study(folder)) return;
  std::error_code error;
  for (const char* name : written)
    if (fs::exists(fs::symlink_status(folder / name, error)))
      throw Error(ErrorKind::usage,
                  std::string("--fresh would remove ") + name +
                      ", but no study made it: there is no study.db in the folder",
                  folder.string(), "choose another folder with --out, or remove it yourself");
}

void forget(const fs::path& folder, double grace) {
  if (!is_study(folder)) return;
  end_what_runs(folder, grace);
  remove_own(folder);
}

void forget_parts(const fs::path& folder, State& state, const std::vector<std::string>& parts,
                  double grace) {
  const auto rows = state.all();
  for (const std::string& part : parts) {
    for (const auto& [identity, row] : rows)
      if (row.folder.starts_with("runs/" + part + "/")) {
        end_if_running(row, folder, grace);
        state.remove(identity);
      }
    remove_runs(folder / "runs" / part);
  }
}

}  // namespace tessera::study
