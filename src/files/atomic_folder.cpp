#include "files/atomic_folder.h"

#include <fcntl.h>
#include <stdio.h>  // renameat2

#include <cerrno>

#include "base/check.h"
#include "files/disk.h"

namespace tessera::files {
namespace {

namespace fs = std::filesystem;

fs::path beside(const fs::path& place, const char* prefix) { return place.parent_path() / (prefix + place.filename().string()); }

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_disk(to, "put the folder in its place", errno);
}

}  // namespace

fs::path AtomicFolder::part_of(const fs::path& place) { return beside(place, ".part-"); }

AtomicFolder::AtomicFolder(const fs::path& place) : place_(place), part_(part_of(place)) {
  std::error_code error;
  fs::remove_all(part_, error);
  fs::create_directories(part_, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the folder: " + error.message(), part_.string(), "free some space or choose another folder");
}

AtomicFolder::~AtomicFolder() {
  if (done_) return;
  try {  // remove_all() needs memory; what it leaves, clean_leftovers() takes
    std::error_code ignored;
    fs::remove_all(part_, ignored);
  } catch (const std::exception&) {
  }
}

void AtomicFolder::commit() {
  CHECK(!done_, "commit after commit");
  sync_folder(part_);
  std::error_code error;
  if (!fs::exists(place_, error)) {
    rename_or_throw(part_, place_);
  } else if (::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) != 0) {
    // Not every file system can swap two names: the old folder steps aside, and clean_leftovers() brings it back after a crash in between.
    const fs::path old = beside(place_, ".old-");
    fs::remove_all(old, error);
    rename_or_throw(place_, old);
    rename_or_throw(part_, place_);
    fs::remove_all(old, error);
  }
  done_ = true;
  sync_folder(place_.parent_path());
  fs::remove_all(part_, error);  // after a swap: what was there before
}

void remove_folder(const fs::path& folder) {
  std::error_code error;
  const fs::path gone = beside(folder, ".gone-");
  fs::remove_all(gone, error);
  fs::rename(folder, gone, error);
  fs::remove_all(error ? folder : gone, error);
}

void clean_leftovers(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder, error)) found.push_back(entry.path());
  for (const fs::path& path : found) {
    const std::string name = path.filename().string();
    if (name.starts_with(".old-") && !fs::exists(folder / name.substr(5), error))
      fs::rename(path, folder / name.substr(5), error);
    else if (name.starts_with(".part-") || name.starts_with(".gone-") || name.starts_with(".old-") ||
             (name.starts_with(".tessera-") && name.ends_with(".tmp")))
      fs::remove_all(path, error);
  }
}

}  // namespace tessera::files
