#include "ranks/memory_limit.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>

namespace tessera::run {

const char* const memory_limit_help =
    "`ulimit -v` shows that limit; --comm local starts ranks as threads of one process";

std::optional<std::uint64_t> memory_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

bool memory_is_short() { return memory_limit().value_or(least_memory) < least_memory; }

bool follows_from_no_memory(int signal) {
  return signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT;
}

std::string memory_limit_text() {
  return fmt::format("each process may have {} MB", memory_limit().value_or(0) / 1'000'000);
}

}  // namespace tessera::run
