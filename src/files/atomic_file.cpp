#include "files/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tessera::files {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* verb, int problem) {
  const bool full = problem == ENOSPC || problem == EDQUOT || problem == EFBIG;
  throw Error(ErrorKind::disk, fmt::format("cannot {}: {}", verb, std::strerror(problem)), path.string(),
              full ? "free some space or write to another disk; the previous file, if any, is intact" : "");
}

std::filesystem::path folder_of(const std::filesystem::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  // A rename would replace a device (/dev/null) or fail late on a folder.
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(ErrorKind::disk, "cannot be written: it exists and is not a regular file", path.string());

  static std::atomic<unsigned> counter{0};
  do {
    temporary_ = folder_of(path) / fmt::format(".tessera-{}-{}.tmp", ::getpid(), counter++);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail(path_, "create a file in this folder", errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  CHECK(descriptor_ >= 0, "write after commit");
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(descriptor_, bytes.data(), std::min<std::size_t>(bytes.size(), std::size_t{1} << 30));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) fail(path_, "write the file", wrote < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
}

void AtomicFile::commit() {
  CHECK(descriptor_ >= 0, "commit after commit");
  if (::fsync(descriptor_) != 0) fail(path_, "flush the file", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "rename the finished file", errno);
  // From here the new file is in place: nothing is left to remove.
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) fail(path_, "close the file", errno);
  // The rename itself must survive a crash; file systems without folder fsync refuse harmlessly.
  if (const int folder = ::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
}

}  // namespace tessera::files
