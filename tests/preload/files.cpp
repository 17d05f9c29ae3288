// Files and folders: every call on them but those in flush.cpp.
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstdio>

#include "preload/order.h"

// glibc's headers make some of these names macros or declare them with attributes; what is defined
// below has C linkage and their types.
#undef open64
#undef openat64
#undef fopen64
#undef readdir64
#undef pread64
#undef pwrite64
#undef mmap64
#undef truncate64
#undef ftruncate64
#undef stat64
#undef lstat64
#undef fstatat64

using namespace tessera::test::faults;

extern "C" {

#define OPEN(name)                                         \
  int name(const char* path, int flags, ...) {             \
    REAL(name);                                            \
    va_list arguments;                                     \
    va_start(arguments, flags);                            \
    const mode_t mode = mode_in(flags, arguments);         \
    va_end(arguments);                                     \
    const Fate fate = fate_at(Call::open, AT_FDCWD, path); \
    if (fate.fails()) return failed(-1);                   \
    const int out = known_##name(path, flags, mode);       \
    return fate.after(), out;                              \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                         \
  int name(int folder, const char* path, int flags, ...) {   \
    REAL(name);                                              \
    va_list arguments;                                       \
    va_start(arguments, flags);                              \
    const mode_t mode = mode_in(flags, arguments);           \
    va_end(arguments);                                       \
    const Fate fate = fate_at(Call::open, folder, path);     \
    if (fate.fails()) return failed(-1);                     \
    const int out = known_##name(folder, path, flags, mode); \
    return fate.after(), out;                                \
  }
OPENAT(openat)
OPENAT(openat64)

#define BY_PATH(kind, type, bad, name, parameters, ...) \
  CALL(type, bad, name, fate_at(Call::kind, AT_FDCWD, path), parameters, __VA_ARGS__)
#define BY_FILE(kind, name, parameters, ...) \
  CALL(ssize_t, -1, name, fate_of(Call::kind, file), parameters, __VA_ARGS__)

BY_PATH(open, FILE*, nullptr, fopen, (const char* path, const char* mode), path, mode)
BY_PATH(open, FILE*, nullptr, fopen64, (const char* path, const char* mode), path, mode)
CALL(struct dirent*, nullptr, readdir, fate_of(Call::readdir, ::dirfd(folder)), (DIR * folder),
     folder)
CALL(struct dirent64*, nullptr, readdir64, fate_of(Call::readdir, ::dirfd(folder)), (DIR * folder),
     folder)
BY_FILE(read, read, (int file, void* to, size_t bytes), file, to, bytes)
BY_FILE(read, pread, (int file, void* to, size_t bytes, off_t at), file, to, bytes, at)
BY_FILE(read, pread64, (int file, void* to, size_t bytes, off64_t at), file, to, bytes, at)
BY_FILE(read, readv, (int file, const struct iovec* to, int count), file, to, count)
BY_FILE(write, write, (int file, const void* from, size_t bytes), file, from, bytes)
BY_FILE(write, pwrite, (int file, const void* from, size_t bytes, off_t at), file, from, bytes, at)
BY_FILE(write, pwrite64, (int file, const void* from, size_t bytes, off64_t at), file, from, bytes,
        at)
BY_FILE(write, writev, (int file, const struct iovec* from, int count), file, from, count)
CALL(int, -1, rename, fate_at(Call::rename, AT_FDCWD, to), (const char* from, const char* to), from,
     to)
CALL(int, -1, renameat, fate_at(Call::rename, there, to),
     (int here, const char* from, int there, const char* to), here, from, there, to)
CALL(int, -1, renameat2, fate_at(Call::rename, there, to),
     (int here, const char* from, int there, const char* to, unsigned int flags), here, from, there,
     to, flags)
CALL(int, -1, stat, fate_at(Call::stat, AT_FDCWD, path), (const char* path, struct stat* out_),
     path, out_)
CALL(int, -1, stat64, fate_at(Call::stat, AT_FDCWD, path), (const char* path, struct stat64* out_),
     path, out_)
CALL(int, -1, lstat, fate_at(Call::stat, AT_FDCWD, path), (const char* path, struct stat* out_),
     path, out_)
CALL(int, -1, lstat64, fate_at(Call::stat, AT_FDCWD, path), (const char* path, struct stat64* out_),
     path, out_)
CALL(int, -1, fstatat, fate_at(Call::stat, folder, path),
     (int folder, const char* path, struct stat* out_, int flags), folder, path, out_, flags)
CALL(int, -1, mkdir, fate_at(Call::mkdir, AT_FDCWD, path), (const char* path, mode_t mode), path,
     mode)
CALL(int, -1, truncate, fate_at(Call::truncate, AT_FDCWD, path), (const char* path, off_t bytes),
     path, bytes)
CALL(int, -1, truncate64, fate_at(Call::truncate, AT_FDCWD, path),
     (const char* path, off64_t bytes), path, bytes)
CALL(int, -1, ftruncate, fate_of(Call::truncate, file), (int file, off_t bytes), file, bytes)
CALL(int, -1, unlink, fate_at(Call::unlink, AT_FDCWD, path), (const char* path), path)
CALL(int, -1, rmdir, fate_at(Call::unlink, AT_FDCWD, path), (const char* path), path)
CALL(int, -1, remove, fate_at(Call::unlink, AT_FDCWD, path), (const char* path), path)
CALL(int, -1, unlinkat, fate_at(Call::unlink, folder, path),
     (int folder, const char* path, int flags), folder, path, flags)

// Closing always closes; what fails is what it says.
int close(int file) {
  REAL(close);
  const Fate fate = fate_of(Call::close, file);
  const int out = known_close(file);
  if (fate.fails()) return failed(-1);
  fate.after();
  return out;
}
int fclose(FILE* stream) {
  REAL(fclose);
  const Fate fate = fate_of(Call::close, ::fileno(stream));
  const int out = known_fclose(stream);
  if (fate.fails()) return failed(EOF);
  fate.after();
  return out;
}

#define MMAP(name, offset)                                                               \
  void* name(void* at, size_t bytes, int protection, int flags, int file, offset from) { \
    REAL(name);                                                                          \
    const Fate fate = fate_of(Call::mmap, file);                                         \
    if (fate.fails()) return failed(MAP_FAILED);                                         \
    void* const out = known_##name(at, bytes, protection, flags, file, from);            \
    return fate.after(), out;                                                            \
  }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

}  // extern "C"
