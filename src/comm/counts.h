// Parts side by side: where each begins, and copies between them.
#pragma once

#include <cstring>
#include <numeric>
#include <vector>

#include "comm/comm.h"

namespace tessera::comm {

// One more than parts: the last is the end of all.
inline std::vector<std::int64_t> offsets(Counts counts) {
  std::vector<std::int64_t> at(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), at.begin() + 1);
  return at;
}

inline void move_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace tessera::comm
