// Files in folders that others may write to: only a regular file of the right owner is looked at,
// no link is followed, no pipe or device is waited for, and no more is read than was allowed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

namespace tessera::files {

// The owner of what `path` names, a link itself and not what it leads to; nothing when there is no
// such entry.
std::optional<uid_t> owner_of(const std::filesystem::path& path);
// Whether `path` is a folder, not a link to one, and belongs to this process's user.
bool is_own_folder(const std::filesystem::path& path);

// The text of a regular file that `owner` has and that holds at most `most` bytes; nothing
// otherwise.
std::optional<std::string> read_own(const std::filesystem::path& path, std::size_t most,
                                    uid_t owner);

// A descriptor for writing, with more `flags` of open(2); the file is made where there is none. -1
// where there is something else than a regular file of this process's user; errno tells what
// (ELOOP: a link; EPERM: another user's).
int open_own(const std::filesystem::path& path, int flags);

}  // namespace tessera::files
