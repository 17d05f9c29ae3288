#include "files/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tessera::files {
namespace {

constexpr int careful = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;

}  // namespace

std::optional<uid_t> owner_of(const std::filesystem::path& path) {
  struct stat about = {};
  if (::lstat(path.c_str(), &about) != 0) return std::nullopt;
  return about.st_uid;
}

bool is_own_folder(const std::filesystem::path& path) {
  struct stat about = {};
  return ::lstat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode) &&
         about.st_uid == ::geteuid();
}

std::optional<std::string> read_own(const std::filesystem::path& path, std::size_t most,
                                    uid_t owner) {
  const int file = ::open(path.c_str(), O_RDONLY | careful);
  if (file < 0) return std::nullopt;
  struct stat about = {};
  std::optional<std::string> text;
  if (::fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == owner &&
      about.st_size >= 0 && static_cast<std::size_t>(about.st_size) <= most) {
    text.emplace();
    char buffer[4096];
    for (ssize_t n; text->size() <= most && (n = ::read(file, buffer, sizeof(buffer))) != 0;) {
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) break;
      text->append(buffer, static_cast<std::size_t>(n));
    }
    if (text->size() > most) text.reset();  // it grew meanwhile
  }
  ::close(file);
  return text;
}

int open_own(const std::filesystem::path& path, int flags) {
  const int file = ::open(path.c_str(), O_WRONLY | careful | flags | O_CREAT | O_EXCL, 0644);
  if (file >= 0 || errno != EEXIST) return file;
  const int there = ::open(path.c_str(), O_WRONLY | careful | (flags & ~O_TRUNC));
  if (there < 0) return -1;
  struct stat about = {};
  int problem = ::fstat(there, &about) != 0 ? errno : 0;
  if (problem == 0 && !S_ISREG(about.st_mode)) problem = EINVAL;
  if (problem == 0 && about.st_uid != ::geteuid()) problem = EPERM;
  if (problem == 0 && (flags & O_TRUNC) && ::ftruncate(there, 0) != 0) problem = errno;
  if (problem == 0) return there;
  ::close(there);
  errno = problem;
  return -1;
}

}  // namespace tessera::files
