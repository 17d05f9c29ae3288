// The seam between data sets and models: what turns one decoded image into one of the model's size,
// as pixels or as the numbers that a model reads. Convention: a transform is a pure function of the
// image and of the sample's global identity, never of the thread or rank that runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "data/image.h"

namespace tessera::data {

// The identity of a sample in a run: the same wherever and by whomever it is prepared.
struct SampleKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0, position = 0;  // of the epoch's order
  std::int64_t index = 0;                // in the data set
};

// The functions are thread-safe.
struct Transform {
  // The pixels that apply() will read of a picture of this size, known before it is decoded. Unset:
  // all of it, as stored.
  std::function<Want(int height, int width, const SampleKey& key)> wants = {};
  // Writes [height, width, channels] normalised values of the model's size.
  std::function<void(const Image& image, const SampleKey& key, std::span<float> out_hwc)> apply =
      {};
  // The same before normalisation; what comes after it (erasing, cutout) is left out.
  std::function<void(const Image& image, const SampleKey& key, std::span<std::uint8_t> out_hwc)>
      pixels = {};

  // `key` must outlive the result.
  Wants wants_of(const SampleKey& key) const {
    if (!wants) return {};
    return [this, &key](int height, int width) { return wants(height, width, key); };
  }
};

}  // namespace tessera::data
