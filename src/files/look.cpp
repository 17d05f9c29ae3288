#include "files/look.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "files/disk_call.h"

namespace tessera::files {
namespace {

namespace fs = std::filesystem;

bool is_missing(int problem) { return problem == ENOENT || problem == ENOTDIR; }

[[noreturn]] void cannot_look(const fs::path& path, int problem, ErrorKind kind) {
  throw Error(kind, fmt::format("cannot look here: {}", std::strerror(problem)), path.string(),
              "see that its disk is there and make it readable, then give the same command again");
}

// The first part of a missing path that exists must not be a link: what it leads to may come back.
void refuse_broken_link(fs::path at, ErrorKind kind) {
  for (;;) {
    struct stat about {};
    if (::lstat(at.c_str(), &about) == 0) {
      if (S_ISLNK(about.st_mode) && ::stat(at.c_str(), &about) != 0)
        throw Error(
            kind, fmt::format("is a link to {}, which is not there", fs::read_symlink(at).string()),
            at.string(),
            "mount the disk that it leads to or bring back what was there, or remove the link");
      return;
    }
    if (!at.has_parent_path() || at.parent_path() == at) return;
    at = at.parent_path();
  }
}

}  // namespace

bool is_there(const fs::path& path, ErrorKind kind) {
  const DiskCall call("looking at", path);
  struct stat about {};
  if (::stat(path.c_str(), &about) == 0) return true;
  if (const int problem = errno; !is_missing(problem)) cannot_look(path, problem, kind);
  refuse_broken_link(path, kind);
  return false;
}

std::vector<fs::path> entries_of(const fs::path& folder, ErrorKind kind) {
  std::vector<fs::path> out;
  const DiskCall call("listing", folder);
  std::error_code problem;
  fs::directory_iterator at(folder, problem);
  if (problem == std::errc::no_such_file_or_directory) {
    refuse_broken_link(folder, kind);
    return out;
  }
  for (; !problem && at != fs::directory_iterator(); at.increment(problem))
    out.push_back(at->path());
  if (problem) cannot_look(folder, problem.value(), kind);
  std::sort(out.begin(), out.end());
  return out;
}

Identity identity_of(const fs::path& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) {
    if (!is_missing(errno)) cannot_look(path, errno, ErrorKind::disk);
    return std::nullopt;
  }
  return std::pair<std::uint64_t, std::uint64_t>{about.st_dev, about.st_ino};
}

}  // namespace tessera::files
