// Reads the order, counts calls, and says of each what becomes of it; allocates nothing, since it
// stands before malloc too.
#include "preload/order.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tessera::test::faults {

Order order;

namespace {

Record own_record;

template <std::size_t size>
void copy(char (&to)[size], const char* from) {
  std::snprintf(to, size, "%s", from ? from : "");
}

unsigned long own_slot() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) {
      const unsigned long slot = std::strtoul(rank, nullptr, 10) + 1;
      return slot < slot_count ? slot : 0;
    }
  return 0;
}

// The one in the file that a test reads afterwards, or one of this process alone.
Record* record_in(const char* path) {
  if (!path) {
    for (auto& calls : own_record.seen)
      for (auto& seen : calls) seen = 0;
    return &own_record;
  }
  const int descriptor =
      static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  if (descriptor < 0) return nullptr;
  void* at = reinterpret_cast<void*>(::syscall(SYS_mmap, nullptr, sizeof(Record),
                                               PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
  ::syscall(SYS_close, descriptor);
  return at == MAP_FAILED ? nullptr : static_cast<Record*>(at);
}

void read_word(Order& out, const char* word) {
  const auto value_of = [&](const char* key) -> const char* {
    const std::size_t length = std::strlen(key);
    return std::strncmp(word, key, length) == 0 ? word + length : nullptr;
  };
  if (const char* value = value_of("from=")) out.from = std::atoll(value);
  if (const char* value = value_of("times=")) out.times = std::atoll(value);
  if (const char* value = value_of("rank="))
    out.armed &= std::strtoul(value, nullptr, 10) + 1 == out.slot;
  if (const char* value = value_of("errno=")) {
    out.action = Action::fail;
    out.value = std::atoll(value);
  }
  if (const char* value = value_of("slow=")) {
    out.action = Action::slow;
    out.value = static_cast<long long>(1000 * std::atof(value));
  }
  if (const char* value = value_of("await=")) {
    out.action = Action::await;
    copy(out.awaited, value);
  }
  if (value_of("die")) out.action = Action::die;
  if (value_of("back")) out.back = true;
}

__attribute__((constructor)) void read_first() { read_order(); }

// A test whose fault never came says so, beside what the binary said.
__attribute__((destructor)) void tell_what_never_came() {
  if (order.armed && order.call == Call::memory && order.record->fired == 0)
    std::fprintf(stderr, "fault: no thread called itself %s and allocated enough\n", order.where);
}

bool ends_with(const char* text, const char* end, std::size_t length) {
  const std::size_t all = std::strlen(text);
  return all >= length && std::strncmp(text + all - length, end, length) == 0;
}

bool concerned(const char* path) {
  const std::size_t length = std::strlen(order.under), where = std::strlen(order.where);
  if (std::strncmp(path, order.under, length) != 0 ||
      (length > 0 && path[length] != '/' && path[length] != '\0'))
    return false;
  const char* rest = path + length;
  // How often ranks look at each other depends on time; they are disturbed where that is asked.
  for (const char* hidden : {"/.ranks-", "/.pulse"})
    if (std::strstr(rest, hidden) && !std::strstr(order.where, hidden)) return false;
  if (where > 0 && order.where[where - 1] == '$') return ends_with(path, order.where, where - 1);
  return std::strstr(path, order.where) != nullptr;
}

// The whole path of one that may be relative to a descriptor; empty where it is too long.
void absolute(int folder, const char* path, char (&out)[1024]) {
  out[0] = '\0';
  if (path[0] == '/') {
    if (std::strlen(path) < sizeof(out)) std::strcpy(out, path);
    return;
  }
  char link[64], base[512] = "";
  if (folder == AT_FDCWD)
    copy(link, "/proc/self/cwd");
  else
    std::snprintf(link, sizeof(link), "/proc/self/fd/%d", folder);
  const ssize_t got = ::readlink(link, base, sizeof(base) - 1);
  if (got <= 0 || static_cast<std::size_t>(got) + std::strlen(path) + 2 > sizeof(out)) return;
  std::strcpy(out, base);
  if (path[0]) std::strcat(std::strcat(out, "/"), path);
}

void pause_for(long long milliseconds) {
  struct timespec pause = {static_cast<time_t>(milliseconds / 1000),
                           static_cast<long>(milliseconds % 1000 * 1'000'000)};
  while (::nanosleep(&pause, &pause) != 0 && errno == EINTR) {
  }
}

void hold_up() {
  const int before = errno;
  if (order.action == Action::slow) pause_for(order.value);
  if (order.action == Action::await)
    for (int i = 0; i < 12'000 && ::access(order.awaited, F_OK) != 0; ++i) pause_for(5);
  errno = before;
}

Fate next_of(Call call, const char* path) {
  const long long n = order.record->seen[order.slot][static_cast<int>(call)].fetch_add(1) + 1;
  if (!order.armed || call != order.call || n < order.from || n - order.from >= order.times)
    return {};
  if (order.record->fired.fetch_add(1) == 0) copy(order.record->first, path);
  hold_up();
  return {true};
}

}  // namespace

void read_order() {
  Order out;
  out.slot = own_slot();
  copy(out.under, std::getenv(under_variable));
  char words[2048];
  copy(words, std::getenv(fault_variable));
  char* rest = nullptr;
  if (const char* call = ::strtok_r(words, " ", &rest)) {
    for (std::size_t c = 0; c < call_count; ++c)
      if (call_names[c] == call) {
        out.call = static_cast<Call>(c);
        out.armed = true;
      }
    copy(out.where, ::strtok_r(nullptr, " ", &rest));
    while (const char* word = ::strtok_r(nullptr, " ", &rest)) read_word(out, word);
  }
  if (!out.armed && !std::getenv(record_variable)) return void(order = {});
  Record* const record = record_in(std::getenv(record_variable));
  order = out;
  order.record = record;  // last: from now on calls are counted
}

void Fate::after() const {
  if (hit && order.action == Action::die) ::syscall(SYS_kill, ::getpid(), SIGKILL);
}

Fate fate_at(Call call, int folder, const char* path) {
  if (!order.record || !path) return {};
  const int before = errno;
  char whole[1024];
  absolute(folder, path, whole);
  errno = before;
  return concerned(whole) ? next_of(call, whole) : Fate{};
}
Fate fate_of(Call call, int descriptor) {
  return descriptor < 0 ? Fate{} : fate_at(call, descriptor, "");
}
Fate fate_of_resource(Call call) {
  return order.record && order.armed && order.call == call ? next_of(call, order.where) : Fate{};
}

}  // namespace tessera::test::faults
