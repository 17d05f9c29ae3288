// Memory of the host beside a device, which runs of a plan pass through: what they are fed with,
// and the small results that they leave. Convention: bytes of one copy; there are plan.copies of
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace tessera::exec {

struct HostRoom {
  std::int64_t feed = 0, results = 0;
  std::vector<std::int64_t> places{};  // where outputs lie among them; -1: one stays on the device
  std::int64_t bytes() const { return feed + results; }
};

// Single numbers come with the run that leaves them, and so do other results of it as long as all
// of them are about as fast to copy (the logits of a few images).
inline HostRoom host_room(const plan::Plan& plan) {
  constexpr std::int64_t most_bytes = 64 << 10;
  HostRoom room{.feed = plan.feed_bytes};
  for (const plan::Binding& output : plan.outputs) {
    const plan::Slot& slot = output.slot;
    const std::int64_t bytes = slot ? slot.type.bytes() : 0;
    const bool comes = slot && (slot.type.rank() == 0 || (slot.base == plan::Slot::result &&
                                                          room.results + bytes <= most_bytes));
    room.places.push_back(comes ? room.results : -1);
    if (comes) room.results += (bytes + 15) / 16 * 16;
  }
  room.results = (room.results + 255) / 256 * 256;
  return room;
}

}  // namespace tessera::exec
