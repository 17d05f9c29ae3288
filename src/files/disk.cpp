#include "files/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "files/disk_call.h"

namespace tessera::files {
namespace {

namespace fs = std::filesystem;
constexpr const char* make_room =
    "free some space or write to another disk; what was there before is intact";

std::atomic<int> fault_errno{0};
std::atomic<std::int64_t> fault_after{0};

// `place`: where in the file, or -1: where it stands.
ssize_t write_some(int descriptor, std::span<const std::byte> bytes, std::int64_t place = -1) {
  std::size_t count = std::min<std::size_t>(bytes.size(), std::size_t{1} << 30);
  if (const int problem = fault_errno; problem != 0) {
    const std::int64_t left = fault_after;
    if (left <= 0) {
      errno = problem;
      return -1;
    }
    count = std::min<std::size_t>(
        count, static_cast<std::size_t>(left));  // a short write first, as a real disk gives
    fault_after -= static_cast<std::int64_t>(count);
  }
  return place < 0 ? ::write(descriptor, bytes.data(), count)
                   : ::pwrite(descriptor, bytes.data(), count, place);
}

struct Descriptor {
  explicit Descriptor(int opened) : number(opened) {}
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int number;
};

}  // namespace

std::optional<std::uint64_t> free_bytes(const fs::path& path) {
  std::error_code error;
  fs::path at = fs::absolute(path, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  struct statvfs disk {};
  if (::statvfs(at.c_str(), &disk) != 0 || disk.f_blocks == 0) return std::nullopt;
  return static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
}

void require_room(const fs::path& path, std::uint64_t bytes) {
  const auto room = free_bytes(path);
  if (!room || bytes <= *room) return;
  throw Error(ErrorKind::disk,
              fmt::format("the disk is too full: {} bytes are needed, {} are free", bytes, *room),
              path.string(), make_room);
}

void fail_disk(const fs::path& path, const char* verb, int problem, std::uint64_t needed) {
  const bool full = problem == ENOSPC || problem == EDQUOT || problem == EFBIG;
  std::string text = fmt::format("cannot {}: {}", verb, std::strerror(problem));
  if (full) {
    const auto room = free_bytes(path);
    if (needed > 0) text += fmt::format("; {} bytes are needed", needed);
    if (room)
      text += fmt::format("{} {} are free", needed > 0 ? "," : ";", *room) +
              (needed > 0 ? "" : " bytes");
    if (problem == EFBIG) text += " (a limit on the size of files, see `ulimit -f`)";
  }
  const bool refused = problem == EACCES || problem == EPERM || problem == EROFS;
  throw Error(ErrorKind::disk, text, path.string(),
              full      ? make_room
              : refused ? "make it readable and writable for this user, or choose another folder"
                        : "");
}

void write_all(int descriptor, std::span<const std::byte> bytes, const fs::path& path,
               std::uint64_t needed) {
  while (!bytes.empty()) {
    const DiskCall call("writing", path);
    const ssize_t wrote = write_some(descriptor, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) fail_disk(path, "write the file", wrote < 0 ? errno : ENOSPC, needed);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
}

void write_all_at(int descriptor, std::span<const std::byte> bytes, std::int64_t place,
                  const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t wrote = write_some(descriptor, bytes, place);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) fail_disk(path, "write the file", wrote < 0 ? errno : ENOSPC, bytes.size());
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    place += wrote;
  }
}

void read_all_at(int descriptor, std::span<std::byte> bytes, std::int64_t place,
                 const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor, bytes.data(),
                                std::min<std::size_t>(bytes.size(), std::size_t{1} << 30), place);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail_disk(path, "read the file", got < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    place += got;
  }
}

void sync_file(int descriptor, const fs::path& path, std::uint64_t needed) {
  const DiskCall call("flushing", path);
  while (::fsync(descriptor) != 0)
    if (errno != EINTR) fail_disk(path, "flush the file", errno, needed);
}

void sync_file(const fs::path& path) {
  const DiskCall call("flushing", path);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number < 0) fail_disk(path, "open the file to flush it", errno);
  sync_file(file.number, path);
}

void sync_folder(const fs::path& folder) {
  const DiskCall call("flushing", folder);
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.number < 0) fail_disk(folder, "open the folder to flush it", errno);
  while (::fsync(opened.number) != 0) {
    if (errno == EINVAL || errno == ENOTSUP || errno == ENOSYS)
      return;  // a file system without this call
    if (errno != EINTR) fail_disk(folder, "flush the folder", errno);
  }
}

DiskFault::DiskFault(std::uint64_t bytes, int problem) {
  fault_after = static_cast<std::int64_t>(bytes);
  fault_errno = problem;
}
DiskFault::~DiskFault() { fault_errno = 0; }

}  // namespace tessera::files
