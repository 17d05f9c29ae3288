// The transform without augmentation: the middle of the picture in the model's proportions, resized, mirrored if asked, normalised.
// Convention: training without augmentation, evaluation and prediction all use this one.
#pragma once

#include <cstdint>
#include <vector>

#include "data/transform.h"

namespace tessera::data {

// (x / 255 - mean) / deviation of every byte x, per channel: [channel][256]. One number serves every channel. Throws Error(usage) for other
// counts and for a deviation that is not above 0.
std::vector<float> normalisation_table(const std::vector<float>& mean, const std::vector<float>& deviation, int channels);

// Every pixel through the table, each row backwards when `mirrored`.
void normalise(const Image& image, const std::vector<float>& table, bool mirrored, std::span<float> out_hwc);

// Whether the sample is mirrored: half of them are, keyed by (seed, epoch, position).
bool flipped(const SampleKey& key);

struct StandardOptions {
  int height = 0, width = 0, channels = 3;
  bool flip = false;
  std::vector<float> mean, deviation;
};
Transform standard_transform(const StandardOptions& options);

}  // namespace tessera::data
