// Preloaded into the binary under test (LD_PRELOAD): counts system calls on paths below one folder
// and makes a chosen one fail, wait, or be the last of its process. record.h says how it is told.
// Convention: a call whose path is elsewhere is passed on untouched, so libc, MPI and /proc stay
// sound; so are the files by which ranks watch each other, whose number depends on time.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "faults/record.h"

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

namespace {

using tessera::test::faults::Call;
using tessera::test::faults::Record;
namespace tf = tessera::test::faults;

struct Order {
  Record* record = nullptr;
  Call call = Call::open;
  long long first = 0, times = 0, value = 0;
  enum class Action { fail, slow, await, bus, die } action = Action::fail;
  bool armed = false;
  unsigned long slot = 0;
  char under[1024] = "", only[256] = "", awaited[1024] = "";
};
Order order;

// The function that this library stands before.
#define REAL(name)                                 \
  static decltype(&::name) known_##name = nullptr; \
  if (!known_##name) known_##name = reinterpret_cast<decltype(&::name)>(::dlsym(RTLD_NEXT, #name))

unsigned long own_slot() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) {
      const unsigned long slot = std::strtoul(rank, nullptr, 10) + 1;
      return slot < tf::slot_count ? slot : 0;
    }
  return 0;
}

__attribute__((constructor)) void read_order() {
  const char *under = std::getenv(tf::under_variable), *record = std::getenv(tf::record_variable);
  if (!under || !record || std::strlen(under) >= sizeof(order.under)) return;
  const int descriptor =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, record, O_RDWR | O_CLOEXEC));
  if (descriptor < 0) return;
  void* at = reinterpret_cast<void*>(::syscall(SYS_mmap, nullptr, sizeof(Record),
                                               PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
  ::syscall(SYS_close, descriptor);
  if (at == MAP_FAILED) return;
  std::strcpy(order.under, under);
  if (const char* only = std::getenv(tf::only_variable);
      only && std::strlen(only) < sizeof(order.only))
    std::strcpy(order.only, only);
  if (const char* awaited = std::getenv(tf::await_variable);
      awaited && std::strlen(awaited) < sizeof(order.awaited))
    std::strcpy(order.awaited, awaited);
  order.slot = own_slot();
  char call[16] = "", action[16] = "";
  long long slot = -1;
  const char* text = std::getenv(tf::fault_variable);
  if (text && std::sscanf(text, "%15s %lld %lld %15s %lld %lld", call, &order.first, &order.times,
                          action, &order.value, &slot) == 6) {
    for (unsigned long c = 0; c < tf::call_count; ++c)
      if (tf::call_names[c] == call)
        order.call = static_cast<Call>(c),
        order.armed = slot < 0 || static_cast<unsigned long>(slot) == order.slot;
    using enum Order::Action;
    for (const auto& [name, value] :
         {std::pair{"fail", fail}, {"slow", slow}, {"await", await}, {"bus", bus}, {"die", die}})
      if (std::strcmp(action, name) == 0) order.action = value;
  }
  order.record = static_cast<Record*>(at);  // last: from now on calls are counted
}

bool below(const char* path) {
  const std::size_t length = std::strlen(order.under);
  if (std::strncmp(path, order.under, length) != 0 || (path[length] != '/' && path[length] != '\0'))
    return false;
  const char* rest = path + length;
  if (std::strstr(rest, "/.ranks-") || std::strstr(rest, "/.pulse")) return false;
  return !order.only[0] || std::strstr(path, order.only);
}

// The whole path of one that may be relative to a descriptor; empty, which is below no folder,
// where it is too long.
void absolute(int folder, const char* path, char (&out)[1024]) {
  out[0] = '\0';
  if (path[0] == '/') {
    if (std::strlen(path) < sizeof(out)) std::strcpy(out, path);
    return;
  }
  char link[64], base[512] = "";
  if (folder == AT_FDCWD)
    std::snprintf(link, sizeof(link), "/proc/self/cwd");
  else
    std::snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
  const ssize_t got = ::readlink(link, base, sizeof(base) - 1);
  if (got <= 0 || static_cast<std::size_t>(got) + std::strlen(path) + 2 > sizeof(out)) return;
  std::strcpy(out, base);
  if (path[0]) std::strcat(std::strcat(out, "/"), path);
}

// What is to become of one call: nothing, or what the order says.
struct Fate {
  bool hit = false;
  bool fails() const { return hit && order.action == Order::Action::fail; }
  bool bus() const { return hit && order.action == Order::Action::bus; }
  // Once the call has been made.
  void after() const {
    if (hit && order.action == Order::Action::die) ::syscall(SYS_kill, ::getpid(), SIGKILL);
  }
};

void pause_for(long long milliseconds) {
  struct timespec pause = {static_cast<time_t>(milliseconds / 1000),
                           static_cast<long>(milliseconds % 1000 * 1'000'000)};
  while (::nanosleep(&pause, &pause) != 0 && errno == EINTR) {
  }
}

void hold_up() {
  const int before = errno;
  if (order.action == Order::Action::slow) pause_for(order.value);
  if (order.action == Order::Action::await)
    for (int i = 0; i < 12'000 && ::access(order.awaited, F_OK) != 0; ++i) pause_for(5);
  errno = before;
}

Fate fate_of(Call call, const char* path) {
  if (!order.record || !below(path)) return {};
  const long long n = order.record->seen[order.slot][static_cast<int>(call)].fetch_add(1) + 1;
  if (!order.armed || call != order.call || n < order.first || n - order.first >= order.times)
    return {};
  if (order.record->fired.fetch_add(1) == 0)
    std::snprintf(order.record->first, sizeof(order.record->first), "%s", path);
  hold_up();
  return {true};
}
Fate fate_at(Call call, int folder, const char* path) {
  if (!order.record || !path) return {};
  const int before = errno;
  char whole[1024];
  absolute(folder, path, whole);
  errno = before;
  return fate_of(call, whole);
}
Fate fate_of(Call call, int descriptor) {
  return descriptor < 0 ? Fate{} : fate_at(call, descriptor, "");
}

template <class Value>
Value failed(Value value) {
  errno = static_cast<int>(order.value);
  return value;
}

// Pages of an empty file: touching them is SIGBUS, as when the disk cannot give a page of a mapped
// file.
void spoil(void* at, std::size_t bytes) {
  const int descriptor = static_cast<int>(::syscall(SYS_memfd_create, "spoiled", 1u));
  const long page = ::sysconf(_SC_PAGESIZE);
  const std::size_t from = bytes / 2 / static_cast<std::size_t>(page) *
                           static_cast<std::size_t>(page);  // the header stays readable
  ::syscall(SYS_mmap, static_cast<char*>(at) + from, bytes - from, PROT_READ,
            MAP_PRIVATE | MAP_FIXED, descriptor, 0);
  ::syscall(SYS_close, descriptor);
}

mode_t mode_in(int flags, va_list& arguments) {
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return makes ? va_arg(arguments, mode_t) : 0;
}

}  // namespace

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

// A call with one path or descriptor by which it is judged; `bad` is what it returns when it fails.
#define CALL(type, bad, name, judged, parameters, ...) \
  type name parameters {                               \
    REAL(name);                                        \
    const Fate fate = judged;                          \
    if (fate.fails()) return failed(bad);              \
    const auto out = known_##name(__VA_ARGS__);        \
    return fate.after(), out;                          \
  }
#define BY_PATH(kind, type, bad, name, parameters, ...) \
  CALL(type, bad, name, fate_at(Call::kind, AT_FDCWD, path), parameters, __VA_ARGS__)
#define BY_FILE(kind, name, parameters, ...) \
  CALL(ssize_t, ssize_t{-1}, name, fate_of(Call::kind, file), parameters, __VA_ARGS__)

BY_PATH(open, FILE*, static_cast<FILE*>(nullptr), fopen, (const char* path, const char* mode), path,
        mode)
BY_PATH(open, FILE*, static_cast<FILE*>(nullptr), fopen64, (const char* path, const char* mode),
        path, mode)
BY_PATH(opendir, DIR*, static_cast<DIR*>(nullptr), opendir, (const char* path), path)
CALL(DIR*, static_cast<DIR*>(nullptr), fdopendir, fate_of(Call::opendir, file), (int file), file)
CALL(struct dirent*, static_cast<struct dirent*>(nullptr), readdir,
     fate_of(Call::readdir, ::dirfd(folder)), (DIR * folder), folder)
CALL(struct dirent64*, static_cast<struct dirent64*>(nullptr), readdir64,
     fate_of(Call::readdir, ::dirfd(folder)), (DIR * folder), folder)
BY_FILE(read, read, (int file, void* to, size_t bytes), file, to, bytes)
BY_FILE(read, pread, (int file, void* to, size_t bytes, off_t at), file, to, bytes, at)
BY_FILE(read, pread64, (int file, void* to, size_t bytes, off64_t at), file, to, bytes, at)
BY_FILE(read, readv, (int file, const struct iovec* to, int count), file, to, count)
BY_FILE(write, write, (int file, const void* from, size_t bytes), file, from, bytes)
BY_FILE(write, pwrite, (int file, const void* from, size_t bytes, off_t at), file, from, bytes, at)
BY_FILE(write, pwrite64, (int file, const void* from, size_t bytes, off64_t at), file, from, bytes,
        at)
BY_FILE(write, writev, (int file, const struct iovec* from, int count), file, from, count)
CALL(int, -1, fsync, fate_of(Call::fsync, file), (int file), file)
CALL(int, -1, fdatasync, fate_of(Call::fsync, file), (int file), file)
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
  return fate.after(), out;
}
int fclose(FILE* stream) {
  REAL(fclose);
  const Fate fate = fate_of(Call::close, ::fileno(stream));
  const int out = known_fclose(stream);
  if (fate.fails()) return failed(EOF);
  return fate.after(), out;
}

#define MMAP(name, offset)                                                               \
  void* name(void* at, size_t bytes, int protection, int flags, int file, offset from) { \
    REAL(name);                                                                          \
    const Fate fate = fate_of(Call::mmap, file);                                         \
    if (fate.fails()) return failed(MAP_FAILED);                                         \
    void* const out = known_##name(at, bytes, protection, flags, file, from);            \
    if (fate.bus() && out != MAP_FAILED) spoil(out, bytes);                              \
    return fate.after(), out;                                                            \
  }
MMAP(mmap, off_t)
MMAP(mmap64, off64_t)

}  // extern "C"
