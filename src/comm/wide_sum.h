// Sums of f32 buffers by wide vectors where this machine has them: what a reduction of ranks in
// shared memory spends its time on. Convention: the bits are those of the plain loops in
// reduce.cpp: elements are added in the order of the buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::comm::wide {

// As reduce() for sums of f32. False where there is nothing better than the compiler's own vectors,
// and then nothing was done.
bool sum(std::span<const std::byte* const> from, std::span<std::byte* const> to,
         std::int64_t elements);

}  // namespace tessera::comm::wide
