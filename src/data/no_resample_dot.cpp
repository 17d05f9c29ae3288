// For machines whose instructions have no such thing.
#include "data/resample_dot.h"

namespace tessera::data::dot {

bool available() { return false; }
void across(const std::uint8_t* const*, const Lookup*, const std::int32_t*, int, int, std::size_t,
            std::int32_t*, std::size_t) {}

}  // namespace tessera::data::dot
