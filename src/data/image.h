// An 8-bit image in memory, or one of numbers, a part of one, and what a reader wants of it.
// Convention: pixels are rows of interleaved channels (HWC); 1 channel is grey, 2 grey+alpha, 3
// RGB, 4 RGBA. Functions with an `out` reuse its storage, so that a loop over images allocates
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::data {

struct Image {
  int h = 0, w = 0, c = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<float>
      numbers;  // instead of pixels where channels have no 8 bits (npy.h); else empty

  Image() = default;
  Image(int height, int width, int channels);
  // Another size, keeping the storage; the pixels are then whatever they were.
  void reshape(int height, int width, int channels);
  std::uint8_t* at(int y, int x) {
    return pixels.data() + (static_cast<std::size_t>(y) * w + x) * c;
  }
  const std::uint8_t* at(int y, int x) const {
    return pixels.data() + (static_cast<std::size_t>(y) * w + x) * c;
  }
  bool operator==(const Image&) const = default;
};

// A rectangle of an image, in pixels.
struct Region {
  int top = 0, left = 0, h = 0, w = 0;
  bool operator==(const Region&) const = default;
};
inline Region whole(const Image& image) { return {0, 0, image.h, image.w}; }

// The pixels that the reader of a picture needs: those outside of `part` may be left as they are.
// With a size, the part will be resized to it, so that a decoder that can shrink on the way may
// give a smaller picture, as long as the part is no smaller than that.
struct Want {
  Region part;
  int height = 0, width = 0;
};
// Asked with the size of the stored picture and, should it be shrunk, again with that one's. Empty:
// all of it, as stored.
using Wants = std::function<Want(int height, int width)>;

// Between 1, 2, 3 and 4 channels: grey is replicated, colour becomes luma (BT.601), alpha is
// dropped or made opaque.
Image to_channels(const Image& image, int channels);
void to_channels(const Image& image, int channels, Image& out);

}  // namespace tessera::data
