#include "plan/footprint.h"

#include <algorithm>

#include "base/check.h"

namespace tessera::plan {

void Footprint::add(const Plan& plan) {
  for (const Buffer& buffer : plan.persistent) {
    const auto [it, fresh] = persistent_.try_emplace(
        buffer.name,
        Room{.bytes = buffer.bytes, .shared = false, .home = buffer.home, .aside = buffer.aside});
    Room& room = it->second;
    CHECK(fresh || room.bytes == buffer.bytes,
          "two plans disagree about the size of " + buffer.name);
    if (room.aside != buffer.aside) {
      room.aside = false;
      room.home = ir::Home::device;
    }
    CHECK(room.home == buffer.home || buffer.aside,
          "two plans disagree about where " + buffer.name + " is");
    room.shared |= buffer.shared;
  }
  arena_ = std::max(arena_, plan.arena_bytes + plan.outside_bytes());
  shared_ = std::max(shared_, plan.shared_bytes);
}

Footprint footprint_of(const Plan& plan) {
  Footprint out;
  out.add(plan);
  return out;
}

std::int64_t Footprint::bytes_on(ir::Home home) const {
  std::int64_t n = 0;
  for (const auto& [name, room] : persistent_)
    if (room.home == home) n += room.bytes;
  return n;
}

}  // namespace tessera::plan
