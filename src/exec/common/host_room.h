// Memory of the host beside a device, which runs of a plan pass through: what they are fed with,
// and the single numbers that they leave. Convention: bytes of one copy; there are plan.copies of
// them.
#pragma once

#include <cstdint>

#include "plan/plan.h"

namespace tessera::exec {

struct HostRoom {
  std::int64_t feed = 0, scalars = 0;
  std::int64_t bytes() const { return feed + scalars; }
};

inline HostRoom host_room(const plan::Plan& plan) {
  std::int64_t scalars = 0;
  for (const plan::Binding& output : plan.outputs)
    if (output.slot && output.slot.type.rank() == 0) ++scalars;
  return {plan.feed_bytes, (scalars * 8 + 255) / 256 * 256};
}

}  // namespace tessera::exec
