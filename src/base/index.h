// Variables, dims, axes and ranks are counted in int, containers in std::size_t: the one conversion
// between them, v[at(i)].
#pragma once

#include <cstddef>

namespace tessera {

constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace tessera
