// The part of training's augmentations that a device can do inside of the step, and its numbers for
// that. Convention: numbers are drawn here, from the keys that the loader's own augmentations draw
// from, so that whoever moves the pixels moves the same ones; pixels are not touched.
//
// A device takes what comes last: erasing, cutout, normalisation and mixing; and before them the
// padded crop and the flip, unless policies or colour jitter stand in between. Resizing, policies
// and colours are the loader's, and so is everything where erasing writes random values.
#pragma once

#include <span>

#include "base/picture_draw.h"
#include "data/augment.h"
#include "data/mix.h"

namespace tessera::data {

struct DeviceWork {
  bool moves = false, hides = false, mixes = false;  // crop and flip; erasing and cutout; mixing
  bool any() const { return moves || hides || mixes; }
  bool operator==(const DeviceWork&) const = default;
};

// All that a device can do of these.
DeviceWork device_work(const AugmentOptions& options, const MixOptions& mixing);

// The same options without what the device does.
AugmentOptions left_to_loader(AugmentOptions options, const DeviceWork& work);
// Whether a picture of the model's size reaches the device as the data set has it.
bool touches_pictures(const AugmentOptions& left);

// The row of one sample, for a model of this size; what is mixed is said by draw_partners().
PictureDraw draw_picture(const AugmentOptions& options, const DeviceWork& work, int height,
                         int width, const SampleKey& key);
// Draws what the samples of a whole batch get from their partners (data/mix.h).
void draw_partners(const Mix& how, std::span<PictureDraw> draws);

}  // namespace tessera::data
