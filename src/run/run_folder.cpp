#include "run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <set>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "config/print.h"
#include "files/text.h"
#include "run/environment.h"
#include "run/pipeline.h"
#include "run/watchdog.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kept_schedule = "schedule.txt";

// What a resolved configuration says that changes results, by key ("parallel.chunks": " = 2"): not where, with how many threads or with
// which reports it runs.
std::map<std::string, std::string> meaning(const std::string& toml) {
  static const std::set<std::string> no_matter = {"run.threads",      "run.out",         "run.name",
                                                  "run.csv",          "run.tensorboard", "data.workers",
                                                  "checkpoint.every", "checkpoint.keep", "checkpoint.keep_best"};
  std::map<std::string, std::string> values;
  std::string section;
  std::istringstream text(toml);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("[") && line.ends_with("]")) section = line.substr(1, line.size() - 2) + ".";
    const std::size_t equals = line.find(" = ");
    if (equals == line.npos) continue;
    const std::string key = section + line.substr(0, line.find(' '));
    if (!no_matter.contains(key)) values[key] = line.substr(equals);
  }
  return values;
}

// Whether the schedule that is asked for now is the one that the folder keeps: what counts is what it says, not where.
bool same_schedule(const fs::path& folder, const config::Config& config) {
  std::error_code error;
  const std::string path = schedule_file(config);
  return !path.empty() && fs::exists(folder / kept_schedule, error) && schedule_text(path) == schedule_text(folder / kept_schedule);
}

}  // namespace

std::vector<std::string> changes_since(const fs::path& folder, const config::Config& config) {
  std::error_code error;
  if (!fs::exists(folder / "resolved.toml", error)) return {};
  std::map<std::string, std::string> before = meaning(files::read_text(folder / "resolved.toml", 1 << 20)),
                                     now = meaning(config::to_toml(config));
  const std::string schedule = "parallel.schedule";
  if (before[schedule].starts_with(" = \"file:") && same_schedule(folder, config)) before.erase(schedule), now.erase(schedule);
  std::vector<std::string> differ;
  for (const auto& [key, value] : now)
    if (const auto found = before.find(key); found == before.end() || found->second != value) differ.push_back(key + value);
  // A key that was set then and is not now changes results just as well.
  for (const auto& [key, value] : before)
    if (!now.contains(key)) differ.push_back(key + ": not set");
  return differ;
}

std::string configuration_of_run(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw Error(ErrorKind::usage, "there is no such run folder", folder.string());
  if (!fs::exists(folder / "resolved.toml", error))
    throw Error(ErrorKind::usage, "the folder holds no run: there is no resolved.toml in it", folder.string());
  return (folder / "resolved.toml").string();
}

std::string schedule_of_run(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kept_schedule, error) ? (folder / kept_schedule).string() : "";
}

bool holds_finished_run(const fs::path& folder, const config::Config& config) {
  std::error_code error;
  if (!fs::exists(folder / "summary.json", error)) return false;
  const std::vector<std::string> differ = changes_since(folder, config);
  if (!differ.empty())
    throw Error(ErrorKind::usage, "the folder holds a finished run of another configuration; now asked: " + join(differ, ", "),
                folder.string(), "--fresh starts over in it, --out chooses another folder");
  return true;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FolderLock::take(const fs::path& folder) {
  if (descriptor_ >= 0) return;
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) return;
  // File systems without locks are trusted.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(ErrorKind::usage, "another process is training in this folder", folder.string(), "wait for it, or choose another --out");
}

void open_folder(const fs::path& folder, const config::Config& config, const TrainOptions& options, FolderLock& lock) {
  std::error_code error;
  // Read before anything is removed: they may lie in this folder.
  const std::string schedule = schedule_file(config), given = options.given.empty() ? "" : files::read_text(options.given);
  const std::string turns = schedule.empty() ? "" : schedule_text(schedule);
  if (options.fresh) {
    // Only what a run writes; never the whole folder.
    for (const char* name : {"ckpt", "metrics.jsonl", "metrics.csv", "epochs.csv", "summary.json", "log.txt", "weights.safetensors",
                             "config.toml", "resolved.toml", "env.json", "trace.json"})
      fs::remove_all(folder / name, error);
    std::vector<fs::path> events;
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (entry.path().filename().string().starts_with("events.out.tfevents.")) events.push_back(entry.path());
    for (const fs::path& path : events) fs::remove(path, error);
  }
  fs::create_directories(folder, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the run folder: " + error.message(), folder.string(), "choose another folder with --out");
  lock.take(folder);
  fs::remove_all(folder / pulses, error);
  if (config.run.np > 1 && !given_folder()) fs::create_directories(folder / pulses, error);
  if (!options.given.empty()) files::write_atomically(folder / "config.toml", given);
  // The schedule stays with the run, whatever becomes of its file.
  config::Config resolved = config;
  if (schedule.empty()) {
    fs::remove(folder / kept_schedule, error);
  } else {
    files::write_atomically(folder / kept_schedule, turns);
    resolved.parallel.schedule = "file:" + fs::absolute(folder / kept_schedule).lexically_normal().string();
  }
  files::write_atomically(folder / "resolved.toml", config::to_toml(resolved));
  files::write_atomically(folder / "env.json", environment(config.run.device, static_cast<int>(config.run.threads)).dump(2) + "\n");
}

}  // namespace tessera::run
