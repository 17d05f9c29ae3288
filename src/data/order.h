// The order of the samples in an epoch: a permutation that is a pure function of (seed, epoch).
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::data {

// order[position] = index of the sample; every index in [0, samples) once.
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t samples);

}  // namespace tessera::data
