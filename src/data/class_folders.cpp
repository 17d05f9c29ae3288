#include "data/class_folders.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::data {

namespace fs = std::filesystem;

namespace {

// No folder can be at this path: nothing is there, a file is in the way, the name is longer than
// the file system allows, or links lead in a circle. Every other problem hides a folder that may be
// there.
bool no_folder(const std::error_code& problem) {
  return problem == std::errc::no_such_file_or_directory || problem == std::errc::not_a_directory ||
         problem == std::errc::filename_too_long ||
         problem == std::errc::too_many_symbolic_link_levels;
}

}  // namespace

std::vector<std::string> folders_in(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code problem;
  fs::directory_iterator it(dir, problem), end;
  if (no_folder(problem)) return names;
  for (; !problem && it != end; it.increment(problem)) {
    std::string name = it->path().filename().string();
    if (name.starts_with(".")) continue;
    std::error_code hidden;
    const fs::file_status status = it->status(hidden);  // of what a link leads to
    if (status.type() == fs::file_type::none && !no_folder(hidden))
      throw Error(ErrorKind::data, "cannot look at the folder of a class: " + hidden.message(),
                  it->path().string(), "make it readable, or take it out of the data set");
    if (fs::is_directory(status)) names.push_back(std::move(name));
  }
  // Half a list would be a data set with fewer classes.
  if (problem)
    throw Error(ErrorKind::data, "cannot list the folder: " + problem.message(), dir.string(),
                "make it readable, or give another folder");
  std::sort(names.begin(), names.end());
  return names;
}

ClassFolders class_folders(const fs::path& dir) {
  ClassFolders out;
  std::error_code ignored;
  // A folder called train that holds pictures and no folders is a class of that name.
  const bool split = fs::is_directory(dir / "train", ignored) && !folders_in(dir / "train").empty();
  out.train = split ? dir / "train" : dir;
  if (split)
    for (const char* name : {"val", "test"})
      if (out.test.empty() && fs::is_directory(dir / name, ignored)) out.test = dir / name;
  out.names = folders_in(out.train);
  return out;
}

}  // namespace tessera::data
