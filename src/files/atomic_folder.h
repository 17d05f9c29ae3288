// A folder that appears complete or not at all: filled under a hidden name beside its place,
// flushed, renamed, and its parent flushed. Convention: names that start with ".part-", ".gone-" or
// ".old-" belong to this file; whatever a killed process leaves under them is cleaned up by
// clean_leftovers().
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tessera::files {

class AtomicFolder {
 public:
  // Error(disk) when the folder cannot be made.
  explicit AtomicFolder(const std::filesystem::path& place);
  ~AtomicFolder();  // without commit() nothing is left of it
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  const std::filesystem::path& path() const { return part_; }  // write here
  static std::filesystem::path part_of(
      const std::filesystem::path& place);  // the same, for who did not make it
  void commit();                            // replaces what was in its place, if anything

 private:
  std::filesystem::path place_, part_;
  bool done_ = false;
};

// A folder that is whole or gone: renamed before its files are removed. The result says why one
// that cannot be removed stays, and what is left of it; "": it is gone. Error(disk) when its other
// name cannot be flushed.
std::string remove_folder(const std::filesystem::path& folder);

// Removes what torn writes left in `folder` and brings back what stepped aside; only one process
// may write there at a time. The result has a sentence on each that cannot be removed, which costs
// room and nothing else. Error(disk) when the folder cannot be looked at.
std::vector<std::string> clean_leftovers(const std::filesystem::path& folder);

}  // namespace tessera::files
