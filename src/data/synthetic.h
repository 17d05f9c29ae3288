// Procedural textured shapes: a data set that needs no download and cannot be memorised from its
// background. Convention: integer arithmetic only, keyed by (seed, split, index), so every machine
// draws the same bytes.
//
// A class is a shape; beyond 10 classes a shape and a texture; beyond 80 also a smaller companion
// shape, beyond 800 with its own texture. The rest is drawn at random: place, size, turn, colours,
// gradient, blobs, noise, a bar in front, and up to 10 classes the texture; how wildly is drawn per
// image.
#pragma once

#include <memory>

#include "data/dataset.h"

namespace tessera::data {

struct SyntheticSpec {
  int h = 32, w = 32, c = 3, classes = 10;
  std::int64_t train = 10'000, test = 2'000;
  bool operator==(const SyntheticSpec&) const = default;
};

inline constexpr int max_synthetic_classes = 10 * 8 * 10 * 8;
inline constexpr int max_synthetic_side = 4096;
inline constexpr int max_synthetic_channels = 16;

// All that is wrong with a description, each a complete sentence part (empty: sound).
std::vector<std::string> problems(const SyntheticSpec& spec);

std::unique_ptr<Dataset> synthetic(const SyntheticSpec& spec, Split split, std::uint64_t seed);

}  // namespace tessera::data
