#include "ranks/memory_place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>

#include "base/check.h"
#include "files/disk.h"
#include "files/own_file.h"
#include "files/text.h"

namespace tessera::run {
namespace {

namespace fs = std::filesystem;

const fs::path memory_root = "/dev/shm";
constexpr const char* run_file = "run";  // says which run folder the checkpoints belong to
constexpr std::size_t longest_path = 4096;

std::string prefix() { return fmt::format("tessera-memory-{}-", ::getuid()); }

// A host name is part of a file name here.
std::string host_part(std::string out) {
  for (char& c : out)
    if (c == '/' || c == '.') c = '-';
  return out;
}

void remove_named(const std::string& start) noexcept {
  try {
    std::error_code error;
    for (fs::directory_iterator at(memory_root, error), end; !error && at != end;
         at.increment(error))
      if (at->path().filename().string().starts_with(start) && files::is_own_folder(at->path())) {
        std::error_code ignored;
        fs::remove_all(at->path(), ignored);
      }
  } catch (const std::exception&) {  // no memory for a name: the next job in the run folder sweeps
  }
}

}  // namespace

MemoryName::MemoryName(bool wanted) {
  if (wanted) {
    std::random_device random;
    name_ = fmt::format("{}{:08x}{:08x}", prefix(), random(), random());
    ::setenv(memory_variable, name_.c_str(), 1);
  } else {
    ::unsetenv(memory_variable);
  }
}

MemoryName::~MemoryName() {
  if (!name_.empty()) remove_named(name_);
}

void MemoryName::last(bool is) const { ::setenv(memory_last_variable, is ? "1" : "0", 1); }

fs::path memory_folder(const std::string& host) {
  const char* const name = std::getenv(memory_variable);
  if (!name || !std::string_view(name).starts_with(prefix()) ||
      std::string_view(name).find('/') != std::string_view::npos)
    return {};
  return memory_root / fmt::format("{}.{}", name, host_part(host));
}

bool memory_is_last() {
  const char* const last = std::getenv(memory_last_variable);
  return last && last[0] == '1';
}

void make_memory_folder(const fs::path& folder, const fs::path& run) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    files::fail_disk(folder, "make the folder", errno);
  if (!files::is_own_folder(folder))
    throw Error(ErrorKind::disk, "this is not a folder of this user", folder.string());
  files::write_atomically(folder / run_file, fs::absolute(run).string());
}

void sweep_memory_folders(const fs::path& mine, const fs::path& run) {
  std::error_code error;
  for (fs::directory_iterator at(memory_root, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix()) || !name.ends_with(mine.extension().string()) ||
        at->path() == mine || !files::is_own_folder(at->path()))
      continue;
    const auto owner = files::read_own(at->path() / run_file, longest_path, ::getuid());
    std::error_code ignored;
    if (owner && *owner == fs::absolute(run).string()) fs::remove_all(at->path(), ignored);
  }
}

void remove_memory_folder(const fs::path& folder) noexcept {
  try {
    if (!folder.empty()) remove_named(folder.filename().string());
  } catch (const std::exception&) {
  }
}

}  // namespace tessera::run
