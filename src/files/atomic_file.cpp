#include "files/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "files/disk.h"
#include "files/disk_call.h"

namespace tessera::files {
namespace {

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

}  // namespace

AtomicFile::AtomicFile(const std::filesystem::path& path, std::uint64_t bytes)
    : path_(path), needed_(bytes) {
  // A rename would replace a device (/dev/null) or fail late on a folder.
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw Error(ErrorKind::disk, "cannot be written: it exists and is not a regular file",
                path.string());

  const DiskCall call("creating", path);
  require_room(folder_of(path), bytes);
  static std::atomic<unsigned> counter{0};
  do {
    temporary_ = folder_of(path) / fmt::format(".tessera-{}-{}.tmp", ::getpid(), counter++);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && errno == EEXIST);
  if (descriptor_ < 0) fail_disk(path_, "create a file in this folder", errno);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  CHECK(descriptor_ >= 0, "write after commit");
  write_all(descriptor_, bytes, path_, needed_);
}

void AtomicFile::overwrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  CHECK(descriptor_ >= 0, "write after commit");
  while (!bytes.empty()) {
    const ssize_t done =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail_disk(path_, "write the file", errno, needed_);
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void AtomicFile::commit() {
  CHECK(descriptor_ >= 0, "commit after commit");
  sync_file(descriptor_, path_, needed_);
  const DiskCall call("renaming and flushing", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_disk(path_, "rename the finished file", errno);
  // From here the new file is in place: nothing is left to remove.
  const int closed = ::close(std::exchange(descriptor_, -1));
  if (closed != 0) fail_disk(path_, "close the file", errno);
  sync_folder(folder_of(path_));
}

void AtomicFile::hand_over() {
  CHECK(descriptor_ >= 0, "hand_over after commit");
  sync_file(descriptor_, path_, needed_);
  const DiskCall call("handing over", path_);
  const auto give_up = [&](const char* verb) {
    const int problem = errno;
    ::unlink(temporary_.c_str());
    fail_disk(path_, verb, problem);
  };
  if (::close(std::exchange(descriptor_, -1)) != 0) give_up("close the file");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) give_up("rename the finished file");
}

}  // namespace tessera::files
