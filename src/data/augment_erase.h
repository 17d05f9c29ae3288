// Augmentations that hide a part of a normalised image: random erasing (Zhong et al. 2017) and
// cutout (DeVries and Taylor 2017). Convention: images are [height, width, channels]; 0 is the mean
// colour, since it comes after normalisation.
#pragma once

#include <span>

#include "data/augment_draw.h"
#include "data/resample.h"

namespace tessera::data {

struct EraseOptions {
  double probability = 0.0;
  double scale_low = 0.02, scale_high = 0.33;  // part of the area
  double ratio_low = 0.3, ratio_high = 3.3;    // height / width, log-uniform
  bool random = false;                         // standard normal values instead of 0
};

// The rectangle to erase; empty (h = 0) when chance said no, or ten rectangles did not fit.
Region draw_erase(Draw draw, const EraseOptions& options, int height, int width);
// A square around a pixel drawn from all, cut off at the borders.
Region draw_cutout(Draw draw, int size, int height, int width);

void erase(const Region& region, int width, int channels, std::span<float> image);
// Standard normal values keyed by their place in the rectangle (the last bit of a value may differ
// between C libraries).
void erase_random(const Region& region, Key key, int width, int channels, std::span<float> image);

}  // namespace tessera::data
