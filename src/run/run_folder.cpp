#include "run/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <set>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "config/print.h"
#include "files/text.h"
#include "run/environment.h"
#include "run/watchdog.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

// The lines of a resolved configuration that change results: not where, with how many threads or with which reports it runs.
std::set<std::string> meaning(const std::string& toml) {
  std::set<std::string> lines;
  std::istringstream text(toml);
  for (std::string line; std::getline(text, line);) {
    bool counts = true;
    for (const char* key : {"threads ", "workers ", "out ", "name ", "every ", "keep ", "keep_best ", "csv ", "tensorboard "})
      counts &= !line.starts_with(key);
    if (counts) lines.insert(line);
  }
  return lines;
}

}  // namespace

std::vector<std::string> changes_since(const fs::path& folder, const config::Config& config) {
  std::error_code error;
  if (!fs::exists(folder / "resolved.toml", error)) return {};
  const std::set<std::string> before = meaning(files::read_text(folder / "resolved.toml", 1 << 20)), now = meaning(config::to_toml(config));
  std::vector<std::string> differ;
  std::set_difference(now.begin(), now.end(), before.begin(), before.end(), std::back_inserter(differ));
  return differ;
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
  if (!options.given.empty()) files::write_atomically(folder / "config.toml", files::read_text(options.given));
  files::write_atomically(folder / "resolved.toml", config::to_toml(config));
  files::write_atomically(folder / "env.json", environment(static_cast<int>(config.run.threads)).dump(2) + "\n");
}

}  // namespace tessera::run
