// Which sample stands where in an epoch: a pure function of (seed, epoch), and the counts of
// classes that sampling and weighting need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::data {

// order[position] = index of the sample; every index in [0, samples) once.
std::vector<std::int64_t> epoch_order(std::uint64_t seed, std::int64_t epoch, std::int64_t samples);

// As many draws as there are labels, the classes taking turns (in a new order each turn, classes
// without samples left out): their shares of an epoch differ by at most one. Within a class no
// sample comes again before all others of it have come.
std::vector<std::int64_t> balanced_order(std::uint64_t seed, std::int64_t epoch,
                                         std::span<const std::int32_t> labels, int classes);

// Inverse to the frequency of each class, scaled so that the mean over the samples is 1; 0 for a
// class without samples.
std::vector<float> class_weights(std::span<const std::int32_t> labels, int classes);

}  // namespace tessera::data
