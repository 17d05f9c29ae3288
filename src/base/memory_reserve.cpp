#include "base/memory_reserve.h"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <new>

namespace tessera {
namespace {

constexpr std::size_t reserved = std::size_t{4} << 20;
std::atomic<void*> reserve{nullptr};

void give_back_and_fail() {
  if (void* const at = reserve.exchange(nullptr)) ::munmap(at, reserved);
  throw std::bad_alloc();
}

}  // namespace

// Pages that nobody touches cost addresses alone.
void reserve_memory_for_the_way_out() {
  void* const at = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) return;
  reserve = at;
  std::set_new_handler(give_back_and_fail);
}

}  // namespace tessera
