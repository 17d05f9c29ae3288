// From bytes to the numbers that a model reads: (value / 255 - mean) / deviation, channel by
// channel, from a table. Convention: the table is computed in double and rounded once, so that
// every path through the augmentations gives the same bits. Rows that lie in order are computed
// instead, four values at a time, if that was found to give the table's bits for all 256 values.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "data/augment_geometry.h"

namespace tessera::data {

// Mean and deviation of values in [0, 1]; one number serves every channel. The defaults hold for
// training, evaluation and prediction where nothing else is said.
struct Normalisation {
  std::vector<float> mean = {0.5f}, deviation = {0.5f};
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
  // crop(), mirror() and normalisation in one pass, bit for bit.
  void operator()(const Image& image, const Region& from, Padding padding, bool mirrored,
                  std::span<float> out) const;

 private:
  void row(const std::uint8_t* src, int count, int step, float* out) const;
  bool find_lines(const std::vector<double>& slope, const std::vector<double>& offset);

  int channels_;
  std::vector<std::uint8_t> black_;  // one pixel of padding
  std::vector<float> table_;         // [channel][256]
  std::vector<float>
      lines_;  // four numbers for each value of a block; empty where the table is needed
};

}  // namespace tessera::data
