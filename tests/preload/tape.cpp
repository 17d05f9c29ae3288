// A library that stands before the C library in the binary under test (LD_PRELOAD) and records what
// changes files and folders (tape.h). Convention: a call and its entry are made under one lock of
// all threads and processes, so the order of the tape is the order of the calls; what ranks watch
// each other by is left out.
#include <fcntl.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "preload/order.h"  // defines: REAL
#include "preload/tape.h"

#undef open64
#undef openat64
#undef fopen64
#undef pwrite64
#undef truncate64
#undef ftruncate64

using namespace tessera::test::faults;

namespace {

constexpr std::size_t longest = 1024;
std::mutex threads;
int tape = -1;
pid_t owner = 0;  // a forked process needs a lock of its own

struct Path {
  char text[longest] = "";
  bool here = false;  // below the folder that is recorded
};

void resolve(int folder, const char* path, Path& out) {
  static const char* const under = std::getenv(tape_under_variable);
  if (!under || !path) return;
  if (path[0] == '/') {
    std::snprintf(out.text, longest, "%s", path);
  } else {
    char link[64];
    std::snprintf(link, sizeof(link), folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d",
                  folder);
    const ssize_t got = ::readlink(link, out.text, longest - 2);
    if (got <= 0) return;
    out.text[got] = '\0';
    if (path[0])
      std::snprintf(out.text + got, longest - static_cast<std::size_t>(got), "/%s", path);
  }
  const std::size_t length = std::strlen(under);
  out.here = std::strncmp(out.text, under, length) == 0 &&
             (out.text[length] == '/' || out.text[length] == '\0') &&
             !std::strstr(out.text, "/.ranks-") && !std::strstr(out.text, "/.pulse") &&
             !std::strstr(out.text, " (deleted)");
}

// Held from before a call until its entry is on the tape.
class Recorded {
 public:
  explicit Recorded(int folder, const char* path, int second = AT_FDCWD, const char* to = nullptr) {
    const int before = errno;
    resolve(folder, path, path_);
    resolve(second, to, other_);
    if (path_.here || other_.here) hold();
    errno = before;
  }
  ~Recorded() {
    if (!held_) return;
    const int before = errno;
    ::flock(tape, LOCK_UN);
    threads.unlock();
    errno = before;
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  bool here() const { return held_ && path_.here; }
  bool exists() const { return ::access(path_.text, F_OK) == 0; }
  void entry(Change change, std::uint64_t offset = 0, const struct iovec* data = nullptr,
             std::size_t bytes = 0) const {
    if (!held_) return;
    const int before = errno;
    Entry head;
    head.change = change;
    head.offset = offset;
    head.data = bytes;
    head.path = static_cast<std::uint32_t>(std::strlen(path_.text));
    head.other = static_cast<std::uint32_t>(std::strlen(other_.text));
    put(&head, sizeof(head));
    put(path_.text, head.path);
    put(other_.text, head.other);
    for (; bytes > 0; ++data) {
      const std::size_t piece = data->iov_len < bytes ? data->iov_len : bytes;
      put(data->iov_base, piece);
      bytes -= piece;
    }
    errno = before;
  }

 private:
  void hold() {
    threads.lock();
    if (owner != ::getpid()) {
      const char* const name = std::getenv(tape_variable);
      tape = name ? static_cast<int>(::syscall(SYS_openat, AT_FDCWD, name,
                                               O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600))
                  : -1;
      owner = ::getpid();
    }
    held_ = tape >= 0;
    if (!held_) return threads.unlock();
    while (::flock(tape, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  static void put(const void* from, std::size_t bytes) {
    for (const char* at = static_cast<const char*>(from); bytes > 0;) {
      const long done = ::syscall(SYS_write, tape, at, bytes);
      if (done <= 0) std::abort();  // a tape with a hole is worth nothing
      at += done;
      bytes -= static_cast<std::size_t>(done);
    }
  }

  Path path_, other_;
  bool held_ = false;
};

template <class Call>
int recorded_open(int folder, const char* path, int flags, Call&& call) {
  const bool changes = (flags & (O_CREAT | O_TRUNC)) != 0;
  const Recorded recorded(folder, changes ? path : nullptr);
  const bool old = recorded.here() && recorded.exists();
  const int out = call();
  if (out >= 0 && recorded.here() && !old) recorded.entry(Change::create);
  if (out >= 0 && recorded.here() && old && (flags & O_TRUNC)) recorded.entry(Change::resize, 0);
  return out;
}

template <class Call>
ssize_t recorded_write(int file, const struct iovec* data, off64_t at, Call&& call) {
  const Recorded recorded(file, "");
  const ssize_t out = call();
  if (out <= 0 || !recorded.here()) return out;
  const off64_t from = at >= 0 ? at : ::lseek64(file, 0, SEEK_CUR) - out;
  recorded.entry(Change::write, static_cast<std::uint64_t>(from), data,
                 static_cast<std::size_t>(out));
  return out;
}

template <class Call>
int recorded_change(const Recorded& recorded, Change change, std::uint64_t offset, Call&& call) {
  const int out = call();
  if (out == 0) recorded.entry(change, offset);
  return out;
}

template <class Call>
FILE* recorded_fopen(const char* path, const char* mode, Call&& call) {
  FILE* out = nullptr;
  const int flags = mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT : 0;
  recorded_open(AT_FDCWD, path, flags, [&] { return (out = call()) ? 0 : -1; });
  return out;
}

}  // namespace

extern "C" {

#define OPEN(name)                                                                                \
  int name(const char* path, int flags, ...) {                                                    \
    REAL(name);                                                                                   \
    va_list arguments;                                                                            \
    va_start(arguments, flags);                                                                   \
    const mode_t mode = mode_in(flags, arguments);                                                \
    va_end(arguments);                                                                            \
    return recorded_open(AT_FDCWD, path, flags, [&] { return known_##name(path, flags, mode); }); \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                               \
  int name(int folder, const char* path, int flags, ...) {                         \
    REAL(name);                                                                    \
    va_list arguments;                                                             \
    va_start(arguments, flags);                                                    \
    const mode_t mode = mode_in(flags, arguments);                                 \
    va_end(arguments);                                                             \
    return recorded_open(folder, path, flags,                                      \
                         [&] { return known_##name(folder, path, flags, mode); }); \
  }
OPENAT(openat)
OPENAT(openat64)

FILE* fopen(const char* path, const char* mode) {
  REAL(fopen);
  return recorded_fopen(path, mode, [&] { return known_fopen(path, mode); });
}
FILE* fopen64(const char* path, const char* mode) {
  REAL(fopen64);
  return recorded_fopen(path, mode, [&] { return known_fopen64(path, mode); });
}

ssize_t write(int file, const void* from, size_t bytes) {
  REAL(write);
  const struct iovec data = {const_cast<void*>(from), bytes};
  return recorded_write(file, &data, -1, [&] { return known_write(file, from, bytes); });
}
ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  REAL(pwrite);
  const struct iovec data = {const_cast<void*>(from), bytes};
  return recorded_write(file, &data, at, [&] { return known_pwrite(file, from, bytes, at); });
}
ssize_t pwrite64(int file, const void* from, size_t bytes, off64_t at) {
  REAL(pwrite64);
  const struct iovec data = {const_cast<void*>(from), bytes};
  return recorded_write(file, &data, at, [&] { return known_pwrite64(file, from, bytes, at); });
}
ssize_t writev(int file, const struct iovec* from, int count) {
  REAL(writev);
  return recorded_write(file, from, -1, [&] { return known_writev(file, from, count); });
}

int fsync(int file) {
  REAL(fsync);
  return recorded_change(Recorded(file, ""), Change::sync, 0, [&] { return known_fsync(file); });
}
int fdatasync(int file) {
  REAL(fdatasync);
  return recorded_change(Recorded(file, ""), Change::sync, 0,
                         [&] { return known_fdatasync(file); });
}

int rename(const char* from, const char* to) {
  REAL(rename);
  return recorded_change(Recorded(AT_FDCWD, from, AT_FDCWD, to), Change::rename, 0,
                         [&] { return known_rename(from, to); });
}
int renameat(int here, const char* from, int there, const char* to) {
  REAL(renameat);
  return recorded_change(Recorded(here, from, there, to), Change::rename, 0,
                         [&] { return known_renameat(here, from, there, to); });
}
int renameat2(int here, const char* from, int there, const char* to, unsigned int flags) {
  REAL(renameat2);
  return recorded_change(Recorded(here, from, there, to),
                         (flags & RENAME_EXCHANGE) ? Change::exchange : Change::rename, 0,
                         [&] { return known_renameat2(here, from, there, to, flags); });
}

int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  return recorded_change(Recorded(AT_FDCWD, path), Change::mkdir, 0,
                         [&] { return known_mkdir(path, mode); });
}

#define TRUNCATE(name, type)                                                                      \
  int name(const char* path, type bytes) {                                                        \
    REAL(name);                                                                                   \
    return recorded_change(Recorded(AT_FDCWD, path), Change::resize,                              \
                           static_cast<std::uint64_t>(bytes),                                     \
                           [&] { return known_##name(path, bytes); });                            \
  }                                                                                               \
  int f##name(int file, type bytes) {                                                             \
    REAL(f##name);                                                                                \
    return recorded_change(Recorded(file, ""), Change::resize, static_cast<std::uint64_t>(bytes), \
                           [&] { return known_f##name(file, bytes); });                           \
  }
TRUNCATE(truncate, off_t)
TRUNCATE(truncate64, off64_t)

#define UNLINK(name)                                                    \
  int name(const char* path) {                                          \
    REAL(name);                                                         \
    return recorded_change(Recorded(AT_FDCWD, path), Change::unlink, 0, \
                           [&] { return known_##name(path); });         \
  }
UNLINK(unlink)
UNLINK(rmdir)
UNLINK(remove)

int unlinkat(int folder, const char* path, int flags) {
  REAL(unlinkat);
  return recorded_change(Recorded(folder, path), Change::unlink, 0,
                         [&] { return known_unlinkat(folder, path, flags); });
}

}  // extern "C"
