// Resizing as Pillow does it, bit for bit: across, then down, each with a triangle or a cubic
// filter in 22-bit fixed point and 8-bit rows in between. (Pillow 13 swaps the two for some sizes,
// which moves some values by 1.) Convention: outputs reuse the storage they are given; scratch
// memory belongs to the thread, so a loop over images allocates nothing.
#pragma once

#include <span>
#include <vector>

#include "base/resample_taps.h"
#include "data/image.h"

namespace tessera::data {

using tessera::Filter;

// `from` of an image is resized to h x w, as if nothing lay outside of it, and only `window` of
// that is kept.
struct Resampling {
  Region from;
  int h = 0, w = 0;
  Region window;
  Filter filter = Filter::bilinear;
};
// All of `from`, resized.
inline Resampling resized(const Region& from, int height, int width,
                          Filter filter = Filter::bilinear) {
  return {.from = from, .h = height, .w = width, .window = {0, 0, height, width}, .filter = filter};
}
// The height x width in the middle of the smallest image of the same proportions that covers
// cover_h x cover_w. With cover equal to height x width this fits an image to a size; with more it
// is torchvision's Resize and CenterCrop.
Resampling centered(int image_h, int image_w, int cover_h, int cover_w, int height, int width,
                    Filter filter = Filter::bilinear);

// `out` must be another image.
void resample(const Image& image, const Resampling& how, Image& out);
// The same of numbers, [h,w,c] each, in double between the passes and rounded to f32 at the end.
void resample(std::span<const float> image, int image_h, int image_w, int channels,
              const Resampling& how, std::vector<float>& out);
// The pixels that resample() reads.
Region read_by(const Resampling& how);

}  // namespace tessera::data
