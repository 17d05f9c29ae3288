#include "plan/footprint.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::plan {

void Footprint::add(const Plan& plan) {
  for (const Buffer& buffer : plan.persistent) {
    const auto [it, fresh] = persistent_.try_emplace(buffer.name, Room{buffer.bytes, false});
    CHECK(fresh || it->second.bytes == buffer.bytes,
          "two plans disagree about the size of " + buffer.name);
    it->second.shared |= buffer.shared;
  }
  arena_ = std::max(arena_, plan.arena_bytes);
  shared_ = std::max(shared_, plan.shared_bytes);
}

std::int64_t Footprint::persistent_bytes() const {
  std::int64_t n = 0;
  for (const auto& [name, room] : persistent_) n += room.bytes;
  return n;
}

}  // namespace tessera::plan
