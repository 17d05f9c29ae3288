#include "files/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "files/atomic_file.h"
#include "files/disk.h"

namespace tessera::files {

OpenFile open_regular(const std::filesystem::path& path, ErrorKind kind) {
  // O_NONBLOCK: opening a pipe that nobody writes must fail below, not wait here.
  const auto open = [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); };
  int descriptor = open();
  if (descriptor < 0 && errno == EMFILE) {  // a checkpoint of a thousand ranks has as many files
    struct rlimit limit {};
    const bool more = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max;
    limit.rlim_cur = limit.rlim_max;
    if (more && ::setrlimit(RLIMIT_NOFILE, &limit) == 0) descriptor = open();
    if (descriptor < 0) errno = EMFILE;
  }
  if (descriptor < 0) {
    const int problem = errno;
    throw Error(
        kind, fmt::format("cannot open the file: {}", std::strerror(problem)), path.string(),
        problem == ENOENT
            ? "check the path; it is taken from the working directory unless it starts with /"
        : problem == EACCES ? "make it readable for this user"
                            : "");
  }
  struct stat about {};
  if (::fstat(descriptor, &about) != 0 || !S_ISREG(about.st_mode)) {
    ::close(descriptor);
    throw Error(kind,
                S_ISDIR(about.st_mode) ? "expected a regular file, found a folder"
                                       : "expected a regular file, found a device or pipe",
                path.string(), S_ISDIR(about.st_mode) ? "name a file in it" : "");
  }
  return {descriptor, static_cast<std::size_t>(about.st_size)};
}

std::string read_text(const std::filesystem::path& path, std::size_t max_bytes, ErrorKind kind) {
  const OpenFile file = open_regular(path, kind);
  if (file.size > max_bytes) {
    ::close(file.descriptor);
    throw Error(kind,
                fmt::format("the file has {} bytes, at most {} are accepted", file.size, max_bytes),
                path.string());
  }
  // Files of /proc and /sys claim 0 bytes, and a file may grow meanwhile: read until the end,
  // within the cap.
  std::string text(std::min(std::max<std::size_t>(file.size + 1, 4096), max_bytes + 1), '\0');
  std::size_t filled = 0;
  for (;;) {
    if (filled == text.size()) text.resize(std::min(2 * text.size(), max_bytes + 1));
    const ssize_t got = ::read(file.descriptor, text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    const int problem = got < 0 ? errno : 0;
    if (got > 0) filled += static_cast<std::size_t>(got);
    if (got > 0 && filled <= max_bytes) continue;
    ::close(file.descriptor);
    if (problem != 0)
      throw Error(kind, fmt::format("cannot read the file: {}", std::strerror(problem)),
                  path.string());
    if (filled > max_bytes)
      throw Error(kind, fmt::format("the file has more than {} bytes", max_bytes), path.string());
    break;
  }
  text.resize(filled);
  return text;
}

void append_text(const std::filesystem::path& path, std::string_view text) {
  struct Opened {
    int descriptor;
    ~Opened() {
      if (descriptor >= 0) ::close(descriptor);
    }
  };
  Opened file{::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666)};
  if (file.descriptor < 0) fail_disk(path, "open the file", errno);
  write_all(file.descriptor, std::as_bytes(std::span(text)), path, text.size());
  // A shared file system may say only now that it is full.
  if (::close(std::exchange(file.descriptor, -1)) != 0) fail_disk(path, "close the file", errno);
}

void write_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path, text.size());
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace tessera::files
