// Page-aligned memory for buffers and arena: zeroed by the system, on large pages where there are any; what collectives read and write lies
// where other ranks of the machine reach it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "base/check.h"
#include "base/control_group.h"
#include "comm/comm.h"

namespace tessera::exec::cpu {

// Bytes that the system could still give us: /proc/meminfo, and the limit of its control group; a very large number where neither is known.
inline std::int64_t available_memory() {
  std::int64_t available = std::int64_t{1} << 60;
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;)
    if (std::int64_t kib = 0; word == "MemAvailable:" && info >> kib) available = kib << 10;
  return std::min(available, memory_left_in_group().value_or(available));
}

[[noreturn]] inline void out_of_memory(std::int64_t bytes, std::int64_t available) {
  throw Error(ErrorKind::memory,
              "the plan needs " + std::to_string(bytes >> 20) + " MiB more and the system has " + std::to_string(available >> 20) + " MiB",
              "memory",
              "use a smaller micro-batch (--accumulate), --set parallel.recompute=full or a smaller model; `tessera explain` shows the "
              "peak without running");
}

class Pages {
 public:
  Pages() = default;
  // The first `shared` bytes are for other ranks to reach too, where `comm` can do that; null: there are none.
  Pages(std::int64_t shared, std::int64_t own, comm::Comm* comm) : shared_(comm ? shared : 0) {
    try {
      memory_ = comm ? comm->allocate(shared, own) : comm::plain_memory(shared + own);
    } catch (const Error&) {
      out_of_memory(shared + own, available_memory());
    }
  }

  std::byte* data() const { return memory_ ? memory_->data() : nullptr; }
  std::int64_t bytes() const { return memory_ ? memory_->bytes() : 0; }
  std::int64_t shared() const { return shared_; }

 private:
  std::unique_ptr<comm::Memory> memory_;
  std::int64_t shared_ = 0;
};

}  // namespace tessera::exec::cpu
