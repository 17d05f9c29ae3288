// Memory limits and events of this process's control group (version 2, or version 1's memory
// controller). Convention: the group is looked up at every call, nothing is remembered; where a
// container hides the path of its group, the root of what it sees is the group.
#pragma once

#include <cstdint>
#include <optional>

namespace tessera {

// Bytes until the limit of this group or of one above it is reached, counting file pages that the
// kernel would give back; none: there is no limit.
std::optional<std::int64_t> memory_left_in_group();
// How many processes the kernel has killed for lack of memory: in this group, else on this machine;
// -1: it does not say.
long long killed_for_memory();

}  // namespace tessera
