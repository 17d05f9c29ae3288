// Reads .tar.gz archives from strangers: takes out the files it was told to expect and nothing
// else. Convention: names in the archive are only compared, never used as paths; a file appears
// under its expected name, complete or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tessera::data {

struct Expected {
  std::string name;  // in the archive: "folder/file"
  std::filesystem::path to;
  std::uint64_t max_bytes = 0;
};

// Throws Error(data) when the archive is damaged, holds an expected name twice, as anything but a
// regular file or larger than allowed, or lacks one (all missing are named); Error(disk) when it
// cannot be written. Entries with other names are passed over.
void unpack(const std::filesystem::path& archive, const std::vector<Expected>& expected);

}  // namespace tessera::data
