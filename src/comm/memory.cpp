// Memory that only its own rank reaches.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/cpus.h"
#include "comm/comm.h"

namespace tessera::comm {

namespace {

class PlainMemory final : public Memory {
 public:
  explicit PlainMemory(std::int64_t bytes) {
    bytes_ = bytes;
    if (bytes == 0) return;
    void* at = ::mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
      throw Error(ErrorKind::memory,
                  "the system has no " + std::to_string(bytes / 1'000'000) +
                      " MB more: " + std::strerror(errno),
                  "memory");
    ::madvise(at, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(at);
    // One thread writes the weights: their pages would all lie beside it, while threads of every
    // node read them.
    if (!has_several_nodes()) return;
    if (const std::vector<int> nodes = own_nodes(); nodes.size() > 1)
      (void)interleave(data_, static_cast<std::size_t>(bytes), nodes);
  }
  ~PlainMemory() override {
    if (data_) ::munmap(data_, static_cast<std::size_t>(bytes_));
  }
};

}  // namespace

std::unique_ptr<Memory> plain_memory(std::int64_t bytes) {
  return std::make_unique<PlainMemory>(bytes);
}

}  // namespace tessera::comm
