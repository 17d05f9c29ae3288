// Arithmetic of indices. Variables, dims, axes and ranks are counted in int, containers in
// std::size_t: v[at(i)] is the one conversion between them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera {

constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

// n / d, rounded up, for n >= 0 and d > 0.
constexpr std::int64_t ceil_div(std::int64_t n, std::int64_t d) { return (n + d - 1) / d; }

}  // namespace tessera
