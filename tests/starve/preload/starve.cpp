// Preloaded into the binary under test (LD_PRELOAD): makes memory, threads or the disk run out at a
// chosen place.
//   TESSERA_STARVE_SAVER=N    the N-th allocation of the thread that writes checkpoints fails, and
//   all after it TESSERA_STARVE_THREADS=N  the N-th thread is not to be had, nor any after it
//   TESSERA_STARVE_READ=TEXT  files whose path contains TEXT cannot be read from their 4096th byte
//   on (EIO)
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#undef pread64

namespace {

long number_in(const char* name) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : 0;
}

// The thread that writes checkpoints names itself. The name is noticed in that call, so it does not
// matter what the kernel makes of it.
thread_local bool is_saver = false;
std::atomic<bool> saver_seen{false};

// A test whose fault never came says so, beside what the binary said.
__attribute__((destructor)) void tell_what_never_came() {
  if (number_in("TESSERA_STARVE_SAVER") > 0 && !saver_seen)
    std::fputs("starve: no thread called itself tessera-saver in this process\n", stderr);
}

bool unreadable(int descriptor, off_t end) {
  const char* text = std::getenv("TESSERA_STARVE_READ");
  if (!text || end <= 4096) return false;
  char link[64], path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", descriptor);
  const ssize_t length = ::readlink(link, path, sizeof(path) - 1);
  if (length <= 0) return false;
  path[length] = 0;
  return std::strstr(path, text) != nullptr;
}

template <class F>
F real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

ssize_t read_or_fail(const char* name, int descriptor, void* into, size_t bytes, off_t offset) {
  if (unreadable(descriptor, offset + static_cast<off_t>(bytes))) return errno = EIO, -1;
  return real<ssize_t (*)(int, void*, size_t, off_t)>(name)(descriptor, into, bytes, offset);
}

}  // namespace

void* operator new(std::size_t bytes) {
  static const long first = number_in("TESSERA_STARVE_SAVER");
  static std::atomic<long> count{0};
  if (first > 0 && is_saver && ++count >= first) throw std::bad_alloc();
  if (void* at = std::malloc(bytes ? bytes : 1)) return at;
  throw std::bad_alloc();
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }

extern "C" {

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  static const long first = number_in("TESSERA_STARVE_THREADS");
  static std::atomic<long> count{0};
  if (first > 0 && ++count >= first) return EAGAIN;
  return real<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>(
      "pthread_create")(thread, attributes, body, argument);
}

int pthread_setname_np(pthread_t thread, const char* name) noexcept {
  if (::pthread_equal(thread, ::pthread_self()) && std::strcmp(name, "tessera-saver") == 0) {
    is_saver = true;
    saver_seen = true;
  }
  return real<int (*)(pthread_t, const char*)>("pthread_setname_np")(thread, name);
}

ssize_t pread(int descriptor, void* into, size_t bytes, off_t offset) {
  return read_or_fail("pread", descriptor, into, bytes, offset);
}
ssize_t pread64(int descriptor, void* into, size_t bytes, off_t offset) {
  return read_or_fail("pread64", descriptor, into, bytes, offset);
}

}  // extern "C"
