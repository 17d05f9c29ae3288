// From bytes to the numbers that a model reads: (value / 255 - mean) / deviation, channel by
// channel, from a table. Convention: the table is computed in double and rounded once, as the op
// normalise does, which takes the place of this where batches stay pixels.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "data/image.h"

namespace tessera::data {

// Mean and deviation of values in [0, 1]; one number serves every channel. They count as rounded to
// f32. The defaults hold for training, evaluation and prediction where nothing else is said.
struct Normalisation {
  std::vector<double> mean = {0.5}, deviation = {0.5};
};

// half (0.5 and 0.5), imagenet, cifar10 or cifar100: the statistics of those data sets. Throws
// Error(usage) on another name.
Normalisation normalisation(std::string_view preset);

class Normalise {
 public:
  // Throws Error(usage) unless there are 1 or `channels` finite numbers of each, deviations above
  // 0.
  Normalise(const Normalisation& statistics, int channels);

  void operator()(const Image& image, std::span<float> out) const;

 private:
  int channels_;
  std::vector<float> table_;  // [channel][256]
};

}  // namespace tessera::data
