// The transforms of images of numbers (npy.h): what augment.h does with pixels, as far as it makes
// sense where channels are no colours of 8 bits. Convention: the same draws by the same keys.
#pragma once

#include "data/augment.h"

namespace tessera::data {

class NumberTransform {
 public:
  NumberTransform(const AugmentOptions& options, bool train, int height, int width, int channels,
                  const Normalisation& statistics);

  // Writes [height, width, channels]: (number - mean) / deviation, computed in double.
  void apply(const Image& image, const SampleKey& key, std::span<float> out) const;

 private:
  Resampling fit(int image_h, int image_w, const SampleKey& key) const;
  void move(std::vector<float>& numbers, int h, int w, const SampleKey& key) const;

  AugmentOptions o_;
  bool train_;
  int h_, w_, c_;
  std::vector<double> mean_, deviation_;  // per channel
};

}  // namespace tessera::data
