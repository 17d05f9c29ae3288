// Resizing as Pillow does it, bit for bit: across, then down, each with a triangle filter in 22-bit fixed point and 8-bit rows in between.
// (Pillow 13 swaps the two for some sizes, which moves some values by 1.)
// Convention: outputs reuse the storage they are given; scratch memory belongs to the thread, so a loop over images allocates nothing.
#pragma once

#include "data/image.h"

namespace tessera::data {

// A rectangle of an image, in pixels.
struct Region {
  int top = 0, left = 0, h = 0, w = 0;
  bool operator==(const Region&) const = default;
};

inline Region whole(const Image& image) { return {0, 0, image.h, image.w}; }

// Gives `image` a size without caring for its pixels, which are unspecified afterwards.
void shape(Image& image, int height, int width, int channels);

// `from` of `image`, resized to height x width as if nothing lay outside of it; of the result, only `window` is computed and written to
// `out`, which must be another image.
void resample(const Image& image, const Region& from, int height, int width, const Region& window, Image& out);

// The height x width in the middle of the smallest image of the same proportions that covers cover_h x cover_w. With cover equal to
// height x width this fits an image to a size; with more it is torchvision's Resize and CenterCrop.
void resample_center(const Image& image, int cover_h, int cover_w, int height, int width, Image& out);

}  // namespace tessera::data
