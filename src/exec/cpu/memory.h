// Page-aligned memory for buffers and arena: zeroed by the system, on large pages where there are any.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

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

class Pages {
 public:
  Pages() = default;
  explicit Pages(std::int64_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* at = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) out_of_memory(bytes, available_memory());
    ::madvise(at, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(at);
  }
  ~Pages() {
    if (data_) ::munmap(data_, static_cast<std::size_t>(bytes_));
  }
  Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace tessera::exec::cpu
