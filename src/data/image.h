// An 8-bit image in memory and the few geometric operations that a classifier needs.
// Convention: pixels are rows of interleaved channels (HWC); 1 channel is grey, 2 grey+alpha, 3 RGB, 4 RGBA. Functions with an `out` reuse
// its storage, so that a loop over images allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::data {

struct Image {
  int h = 0, w = 0, c = 0;
  std::vector<std::uint8_t> pixels;

  Image() = default;
  Image(int height, int width, int channels);
  // Another size, keeping the storage; the pixels are then whatever they were.
  void reshape(int height, int width, int channels);
  std::uint8_t* at(int y, int x) { return pixels.data() + (static_cast<std::size_t>(y) * w + x) * c; }
  const std::uint8_t* at(int y, int x) const { return pixels.data() + (static_cast<std::size_t>(y) * w + x) * c; }
  bool operator==(const Image&) const = default;
};

// What the reader of an image needs of it: a decoder that can shrink on the way may give any size whose sides are still at least these
// (0: as stored), and with `center` leave out what lies outside center_box().
struct Want {
  int height = 0, width = 0;
  bool center = false;
};

// A rectangle of an image.
struct Box {
  int top = 0, left = 0, h = 0, w = 0;
};

// Between 1, 2, 3 and 4 channels: grey is replicated, colour becomes luma (BT.601), alpha is dropped or made opaque.
Image to_channels(const Image& image, int channels);
void to_channels(const Image& image, int channels, Image& out);

// Triangle filter over the pixels' centres, widened when shrinking, so that a thumbnail is not aliased. `box`: of that part alone.
Image resize_bilinear(const Image& image, int height, int width);
void resize_bilinear(const Image& image, const Box& box, int height, int width, Image& out);

// The middle height x width, which must fit; an odd rest goes to the right and bottom.
Image center_crop(const Image& image, int height, int width);

// The largest middle part in the proportions of height x width: what evaluation and prediction resize.
Box center_box(int image_h, int image_w, int height, int width);

}  // namespace tessera::data
