#include "files/atomic_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>  // renameat2

#include <cerrno>

#include "base/check.h"
#include "files/disk.h"
#include "files/disk_call.h"
#include "files/look.h"

namespace tessera::files {
namespace {

namespace fs = std::filesystem;

fs::path beside(const fs::path& place, const char* prefix) {
  return place.parent_path() / (prefix + place.filename().string());
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_disk(to, "put the folder in its place", errno);
}

}  // namespace

fs::path AtomicFolder::part_of(const fs::path& place) { return beside(place, ".part-"); }

AtomicFolder::AtomicFolder(const fs::path& place) : place_(place), part_(part_of(place)) {
  const DiskCall call("making", part_);
  std::error_code error;
  fs::remove_all(part_, error);  // what a torn write left must not become part of this one
  if (!error) fs::create_directories(part_, error);
  if (error)
    throw Error(ErrorKind::disk, "cannot make the folder: " + error.message(), part_.string(),
                "free some space or choose another folder");
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
  const DiskCall call("putting in its place", place_);
  sync_folder(part_);
  std::error_code ignored;  // of removals: the next process tries again, and says it
  if (!is_there(place_)) {
    rename_or_throw(part_, place_);
    done_ = true;
    sync_folder(place_.parent_path());
    return;
  }
  fs::path old = part_;  // after a swap: what was there before
  if (::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, place_.c_str(), RENAME_EXCHANGE) != 0) {
    // Not every file system can swap two names: the old folder steps aside, and clean_leftovers()
    // brings it back after a crash in between.
    old = beside(place_, ".old-");
    fs::remove_all(old, ignored);
    rename_or_throw(place_, old);
    if (::rename(part_.c_str(), place_.c_str()) != 0) {
      const int problem = errno;
      fs::rename(old, place_, ignored);
      fail_disk(place_, "put the folder in its place", problem);
    }
  }
  done_ = true;
  sync_folder(place_.parent_path());  // the old one goes only when the new one is known to be there
  fs::remove_all(old, ignored);
}

std::string remove_folder(const fs::path& folder) {
  const DiskCall call("removing", folder);
  std::error_code error;
  const fs::path gone = beside(folder, ".gone-");
  fs::remove_all(gone, error);
  if (error) return fmt::format("{} is in its way: {}", gone.string(), error.message());
  fs::rename(folder, gone, error);
  if (error) return error.message() + "; it stays whole";
  // Its other name is on the disk before its first file goes: a disk that did the second alone
  // would show a damaged folder. What is left when this fails, clean_leftovers() takes.
  sync_folder(gone.parent_path());
  fs::remove_all(gone, error);
  return error ? fmt::format("{}; what is left of it is {}", error.message(), gone.string()) : "";
}

std::vector<std::string> clean_leftovers(const fs::path& folder) {
  std::vector<std::string> stuck;
  for (const fs::path& path : entries_of(folder)) {
    std::error_code error;
    const std::string name = path.filename().string();
    if (name.starts_with(".old-") && !is_there(folder / name.substr(5)))
      rename_or_throw(path, folder / name.substr(5));
    else if (name.starts_with(".part-") || name.starts_with(".gone-") ||
             name.starts_with(".old-") || (name.starts_with(".tessera-") && name.ends_with(".tmp")))
      fs::remove_all(path, error);
    if (error)
      stuck.push_back(fmt::format(
          "{}, which an earlier process left, cannot be removed: {}; it takes room on the disk: "
          "remove it yourself",
          path.string(), error.message()));
  }
  return stuck;
}

}  // namespace tessera::files
