// How much memory there is, and what to say when it is not enough.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

#include "base/check.h"

namespace tessera::exec::cpu {

// Bytes that the system could still give us: /proc/meminfo, and the limit of a container; a very large number where neither is known.
inline std::int64_t available_memory() {
  std::int64_t available = std::int64_t{1} << 60;
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;)
    if (std::int64_t kib = 0; word == "MemAvailable:" && info >> kib) available = kib << 10;
  std::int64_t limit = 0, used = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> limit && std::ifstream("/sys/fs/cgroup/memory.current") >> used)
    available = std::min(available, std::max<std::int64_t>(0, limit - used));
  return available;
}

[[noreturn]] inline void out_of_memory(std::int64_t bytes, std::int64_t available) {
  throw Error(ErrorKind::memory,
              "the plan needs " + std::to_string(bytes >> 20) + " MiB more and the system has " + std::to_string(available >> 20) + " MiB",
              "memory",
              "use a smaller micro-batch (--accumulate), --set parallel.recompute=full or a smaller model; `tessera explain` shows the "
              "peak without running");
}

}  // namespace tessera::exec::cpu
