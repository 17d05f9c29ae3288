// Looking at the disk. Convention: not being able to look is an error, never the answer that
// nothing is there; so is a link that leads to nothing, because the disk behind it may be missing
// for the moment.
#pragma once

#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tessera::files {

// Whether the path leads to something. Error(kind) when the system does not say.
bool is_there(const std::filesystem::path& path, ErrorKind kind = ErrorKind::disk);

// Everything in a folder, sorted by name; nothing when there is no such folder. Error(kind) when it
// cannot be read to its end.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder,
                                              ErrorKind kind = ErrorKind::disk);

// Device and number of what the path leads to: another file or folder under the same name has
// another one. Nothing when it is gone; Error(disk) when the system does not say.
using Identity = std::optional<std::pair<std::uint64_t, std::uint64_t>>;
Identity identity_of(const std::filesystem::path& path);

}  // namespace tessera::files
