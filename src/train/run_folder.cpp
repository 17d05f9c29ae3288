#include "train/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "compile/pipeline.h"
#include "config/devices.h"
#include "config/print.h"
#include "config/run_name.h"
#include "files/atomic_folder.h"
#include "files/disk.h"
#include "files/json.h"
#include "files/look.h"
#include "files/safetensors.h"
#include "files/text.h"
#include "measure/environment.h"
#include "ranks/watchdog.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kept_schedule = "schedule.txt";
constexpr int lock_tries = 20;  // to take the lock, 10 ms apart

// The values of a resolved configuration that change results, by key ("parallel.chunks": " = 2"):
// not where, with how many threads or with which reports it runs.
std::map<std::string, std::string> meaning(const std::string& toml) {
  std::map<std::string, std::string> values;
  std::string section;
  std::istringstream text(toml);
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("[") && line.ends_with("]"))
      section = line.substr(1, line.size() - 2) + ".";
    const std::size_t equals = line.find(" = ");
    if (equals == line.npos) continue;
    const std::string key = section + line.substr(0, line.find(' '));
    if (config::changes_results(key)) values[key] = line.substr(equals);
  }
  return values;
}

// Whether the schedule that is asked for now is the one that the folder keeps: what counts is what
// it says, not where.
bool same_schedule(const fs::path& folder, const config::Config& config) {
  const std::string path = schedule_file(config);
  return !path.empty() && files::is_there(folder / kept_schedule) &&
         schedule_text(path) == schedule_text(folder / kept_schedule);
}

// Only what a run writes; never the whole folder. What says that a run has ended goes first and
// what says that it has saved goes last, so that a process that is killed in between leaves a
// folder that nobody takes for a finished or a new one.
void remove_old_run(const fs::path& folder) {
  std::vector<fs::path> all;
  for (const char* name :
       {"summary.json", "ckpt", "metrics.jsonl", "metrics.csv", "epochs.csv", "log.txt",
        "weights.safetensors", "predictions.json", "config.toml", "resolved.toml", "env.json",
        "trace.json", "algorithms.json", "algorithms.old.json"})
    all.push_back(folder / name);
  for (const fs::path& path : files::entries_of(folder))
    if (path.filename().string().starts_with("events.out.tfevents.")) all.push_back(path);
  all.push_back(folder / saved_mark);
  for (const fs::path& path : all) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error)
      throw Error(ErrorKind::disk, "the old run cannot be removed: " + error.message(),
                  path.string(), "remove it, or choose another folder with --out");
  }
}

// Makes the folder where there is none, and locks it. Who finds a run in it that was not there at
// the start has looked too early.
void own_folder(const fs::path& folder, FolderLock& lock) {
  if (lock.held()) return;
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the run folder: " + error.message(), folder.string(),
                "choose another folder with --out");
  if (made) files::sync_folder(fs::absolute(folder).lexically_normal().parent_path());
  lock.take(folder);
  for (const char* name : {"resolved.toml", "ckpt", "metrics.jsonl", saved_mark})
    if (files::is_there(folder / name))
      throw Error(
          ErrorKind::usage, "another process has trained in this folder since this one started",
          folder.string(), "give the command again to go on from there, or choose another --out");
}

}  // namespace

std::vector<std::string> changes_since(const fs::path& folder, const config::Config& config) {
  if (!files::is_there(folder / "resolved.toml")) return {};
  std::map<std::string, std::string> before = meaning(
                                         files::read_text(folder / "resolved.toml", 1 << 20)),
                                     now = meaning(config::to_toml(config));
  const std::string schedule = "parallel.schedule";
  if (before[schedule].starts_with(" = \"file:") && same_schedule(folder, config)) {
    before.erase(schedule);
    now.erase(schedule);
  }
  std::vector<std::string> differ;
  for (const auto& [key, value] : now)
    if (const auto found = before.find(key); found == before.end() || found->second != value)
      differ.push_back(key + value);
  // A key that was set then and is not now changes results just as well.
  for (const auto& [key, value] : before)
    if (!now.contains(key)) differ.push_back(key + ": not set");
  return differ;
}

std::string configuration_of_run(const fs::path& folder) {
  std::error_code error;
  if (!files::is_there(folder) || !fs::is_directory(folder, error))
    throw Error(ErrorKind::usage, "there is no such run folder", folder.string());
  if (!files::is_there(folder / "resolved.toml"))
    throw Error(ErrorKind::usage, "the folder holds no run: there is no resolved.toml in it",
                folder.string());
  return (folder / "resolved.toml").string();
}

std::string schedule_of_run(const fs::path& folder) {
  return files::is_there(folder / kept_schedule) ? (folder / kept_schedule).string() : "";
}

// Only more epochs or more steps than before are asked for.
static bool only_longer(const fs::path& folder, const std::vector<std::string>& differ,
                        const config::Config& config) {
  const std::map<std::string, std::string> before =
      meaning(files::read_text(folder / "resolved.toml", 1 << 20));
  const auto was = [&](const char* key) {
    const auto found = before.find(key);
    return found == before.end() ? 0 : std::atoll(found->second.substr(3).c_str());
  };
  bool longer = false;
  for (const std::string& change : differ) {
    const bool epochs = change.starts_with("run.epochs = "),
               steps = change.starts_with("run.steps = ");
    if (!epochs && !steps) return false;
    const std::int64_t old = was(epochs ? "run.epochs" : "run.steps");
    if (old <= 0 || (epochs ? config.run.epochs : config.run.steps) <= old) return false;
    longer = true;
  }
  return longer;
}

bool holds_finished_run(const fs::path& folder, const config::Config& config) {
  if (!files::is_there(folder / "summary.json")) return false;
  const std::vector<std::string> differ = changes_since(folder, config);
  if (!differ.empty() && !checkpoints_in(folder).empty() && only_longer(folder, differ, config))
    return false;
  if (!differ.empty())
    throw Error(ErrorKind::usage,
                "the folder holds a finished run of another configuration; now asked: " +
                    join(differ, ", "),
                folder.string(), "--fresh starts over in it, --out chooses another folder");
  return true;
}

std::string damage_of_finished_run(const fs::path& folder) {
  std::error_code error;
  try {
    const nlohmann::json summary = files::parse_json(files::read_text(folder / "summary.json"));
    if (!summary.is_object() || !summary.contains("steps") || !summary.contains("final"))
      return "summary.json is not what a run writes at its end";
    if (!fs::exists(folder / "weights.safetensors", error) && !error)  // opening it says the error
      return "weights.safetensors is gone";
  } catch (const Error& e) {
    return "summary.json cannot be used (" + e.message + ")";
  }
  try {
    const files::Safetensors weights(folder / "weights.safetensors");
    return weights.tensors().empty() ? "weights.safetensors holds no tensor" : "";
  } catch (const Error& e) {
    return "weights.safetensors cannot be used (" + e.message + ")";
  }
}

bool holds_whole_run(const fs::path& folder, const config::Config& config,
                     std::vector<std::string>& notes) {
  if (!holds_finished_run(folder, config)) return false;
  const std::string damage = damage_of_finished_run(folder);
  if (damage.empty()) return true;
  if (checkpoints_in(folder).empty())
    throw Error(
        ErrorKind::weights,
        "the run is finished, but " + damage + ", and there is no checkpoint to make it from",
        folder.string(), "put a copy in its place; or --fresh starts over in this folder");
  notes.push_back("the run was finished, but " + damage +
                  ": its results are made anew from its last checkpoint");
  return false;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FolderLock::take(const fs::path& folder) {
  if (descriptor_ >= 0) return;
  const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (opened < 0 && errno == ENOENT) return;
  if (opened < 0 && errno == ENOTDIR)
    throw Error(ErrorKind::disk,
                "expected a folder for the run, found a file in its place or on the way to it",
                folder.string(), "choose another folder with --out");
  if (opened < 0) files::fail_disk(folder, "open the run folder", errno);
  // A reader that asks whether a run is alive holds the lock for an instant.
  for (int tries = 0; ::flock(opened, LOCK_EX | LOCK_NB) != 0; ++tries) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;  // file systems without locks are trusted
    if (tries < lock_tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    ::close(opened);
    throw Error(ErrorKind::usage, "another process is training in this folder", folder.string(),
                "wait for it, or choose another --out");
  }
  descriptor_ = opened;
}

void clean_run_folder(const fs::path& folder, const FolderLock& lock,
                      std::vector<std::string>& notes) {
  if (!lock.held()) return;
  for (const fs::path& part : {folder, folder / "ckpt"})
    for (const std::string& stuck : files::clean_leftovers(part)) notes.push_back(stuck);
}

void open_folder(const fs::path& folder, const config::Config& config, const TrainOptions& options,
                 FolderLock& lock) {
  std::error_code error;
  // Read before anything is removed: they may lie in this folder.
  const std::string schedule = schedule_file(config),
                    given = options.given.empty() ? "" : files::read_text(options.given);
  const std::string turns = schedule.empty() ? "" : schedule_text(schedule);
  own_folder(folder, lock);
  if (options.fresh) remove_old_run(folder);
  fs::remove_all(folder / heartbeats, error);
  if (error && config.run.np > 1 && !given_folder())  // a verdict in it would end this job, too
    throw Error(ErrorKind::disk,
                "the heartbeats of an earlier job cannot be removed: " + error.message(),
                (folder / heartbeats).string(), "remove it, or choose another folder with --out");
  if (!options.given.empty()) files::write_atomically(folder / "config.toml", given);
  // The schedule stays with the run, whatever becomes of its file.
  config::Config resolved = config;
  if (schedule.empty()) {
    fs::remove(folder / kept_schedule, error);
    if (error)  // it would pass for that of this run
      throw Error(ErrorKind::disk, "the old schedule cannot be removed: " + error.message(),
                  (folder / kept_schedule).string(),
                  "remove it, or choose another folder with --out");
  } else {
    files::write_atomically(folder / kept_schedule, turns);
    resolved.parallel.schedule =
        "file:" + fs::absolute(folder / kept_schedule).lexically_normal().string();
  }
  files::write_atomically(folder / "resolved.toml", config::to_toml(resolved));
  files::write_atomically(folder / "env.json",
                          environment(config::device_of(config, 0), config.precision.dtype,
                                      static_cast<int>(config.run.threads))
                                  .dump(2) +
                              "\n");
}

void watch_ranks(const Ranks& ranks, const fs::path& folder, std::vector<std::string>& notes) {
  const fs::path place = folder / heartbeats;
  std::error_code error;
  if (ranks.first() && ranks.size() > 1 && !given_folder()) fs::create_directories(place, error);
  ranks.barrier();
  Watchdog* const watchdog = Watchdog::here();
  std::string problem = watchdog ? watchdog->meet_in(place) : "";
  if (error) problem = place.string() + ": " + error.message();
  const std::vector<std::string> said = ranks.gather_text(problem);
  std::vector<std::string> unseen;
  for (std::size_t rank = 0; rank < said.size(); ++rank)
    if (!said[rank].empty()) unseen.push_back(std::to_string(rank));
  if (unseen.empty()) return;
  const auto first =
      std::find_if(said.begin(), said.end(), [](const std::string& why) { return !why.empty(); });
  notes.push_back(
      fmt::format("nobody would see a hang of rank {}, whose heartbeat cannot be written in {}; "
                  "all machines of "
                  "the job must see this folder and be allowed to write in it",
                  join(unseen, ", "), *first));
}

}  // namespace tessera::run
