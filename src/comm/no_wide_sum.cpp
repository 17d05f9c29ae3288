// For machines whose baseline has their vectors already (aarch64).
#include "comm/wide_sum.h"

namespace tessera::comm::wide {

bool sum(std::span<const std::byte* const>, std::span<std::byte* const>, std::int64_t) {
  return false;
}

}  // namespace tessera::comm::wide
