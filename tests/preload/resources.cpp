// Memory and threads that are not to be had, and a job that does not end. Convention: malloc of
// glibc is reached by its other name, since looking it up would itself allocate; operator new calls
// malloc wherever libstdc++ is.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "preload/order.h"

using namespace tessera::test::faults;

namespace {

// A thread names itself; the name is noticed in that call, so it does not matter what the kernel
// makes of it. Its place is known when the library is loaded: finding it must not allocate either.
__attribute__((tls_model("initial-exec"))) thread_local bool is_named = false;

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t bytes);

void* malloc(std::size_t bytes) noexcept {
  if (is_named && fate_of_resource(Call::memory).fails()) return failed<void*>(nullptr);
  return __libc_malloc(bytes);
}

int munmap(void* at, std::size_t bytes) noexcept {
  const bool fired = is_named && order.record && order.record->fired > 0;
  if (order.back && fired && bytes >= std::size_t{1} << 20) order.armed = false;
  return static_cast<int>(::syscall(SYS_munmap, at, bytes));
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  REAL(pthread_create);
  if (fate_of_resource(Call::thread).fails()) return static_cast<int>(order.value);
  return known_pthread_create(thread, attributes, body, argument);
}

int pthread_setname_np(pthread_t thread, const char* name) noexcept {
  REAL(pthread_setname_np);
  if (::pthread_equal(thread, ::pthread_self())) is_named = std::strcmp(name, order.where) == 0;
  return known_pthread_setname_np(thread, name);
}

// The end of a job by MPI, which never comes where the variable is set.
int MPI_Abort(void* world, int code) noexcept {
  REAL(MPI_Abort);
  while (std::getenv(abort_variable)) ::pause();
  return known_MPI_Abort(world, code);
}

}  // extern "C"
