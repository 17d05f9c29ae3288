// The order that this process was given, and what becomes of a call. Convention: a call whose path
// is elsewhere is passed on untouched, so libc, MPI and /proc stay sound; so are the files by which
// ranks watch each other, whose number depends on time.
#pragma once

#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/types.h>

#include <cerrno>

#include "preload/fault.h"

namespace tessera::test::faults {

enum class Action { fail, slow, await, die };

struct Order {
  Record* record = nullptr;
  bool armed = false;
  Call call = Call::open;
  Action action = Action::fail;
  long long from = 1, times = 1'000'000'000'000, value = 0;  // an errno, or milliseconds
  unsigned long slot = 0;
  bool back = false;
  char under[1024] = "", where[256] = "", awaited[1024] = "";
};
extern Order order;

// Says what is to become of one call: nothing, or what the order says.
struct Fate {
  bool hit = false;
  bool fails() const { return hit && order.action == Action::fail; }
  void after() const;  // once the call has been made
};
Fate fate_of(Call call, int descriptor);
Fate fate_at(Call call, int folder, const char* path);  // path: relative to the folder, or absolute
Fate fate_of_resource(Call call);                       // a thread, memory

template <class Value>
Value failed(Value value) {
  errno = static_cast<int>(order.value);
  return value;
}

// The mode that open takes behind its flags where it may make a file.
inline mode_t mode_in(int flags, va_list& arguments) {
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return makes ? va_arg(arguments, mode_t) : 0;
}

// The function that this library stands before.
#define REAL(name)                                 \
  static decltype(&::name) known_##name = nullptr; \
  if (!known_##name) known_##name = reinterpret_cast<decltype(&::name)>(::dlsym(RTLD_NEXT, #name))

// A call that is judged by a path or a descriptor; `bad` is what it returns when it fails.
#define CALL(type, bad, name, judged, parameters, ...) \
  type name parameters {                               \
    REAL(name);                                        \
    const Fate fate = judged;                          \
    if (fate.fails()) return failed<type>(bad);        \
    const auto out = known_##name(__VA_ARGS__);        \
    return fate.after(), out;                          \
  }

}  // namespace tessera::test::faults
